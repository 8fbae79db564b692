"""Aggregates written in SQL: figures 4 to 7 of the Stream Mill paper, and what else could do the same.

    python benchmarks/aggregates.py [--quick] [--only fig4,fig5,fig6,keys,spark] [--out out/aggregates]

Figures 4 and 5, what a row costs by the size of the window: (A) the SQL aggregate with EXPIRE, run by its kernel, and
through the whole engine; (B) the same written by hand in Numba: Arrow in and out, NULLs, state between batches, and
for frequent items the counting tables as plain arrays; (B, bare) less than that: no NULLs, no bounds, and the hash
functions as constants; (C) SQL without EXPIRE, which keeps its own table of the last rows; (D) the naive one, which
looks at the whole window for each row. Figures 6 and 7: a window of 40,000 rows with SLIDE, with the rules for slides
and without (delta only). Contenders take turns; the least time of each counts. Machines are noisy: read the ratios. The
same is written to `figures.txt`, with a PNG for each figure.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from aggregates_figures import AVERAGE, ITEMS, SLIDES, Job, by_slide, by_window
from aggregates_others import bytewax, on_spark, per_key
from aggregates_plots import draw
from aggregates_sql import BATCH_ROWS, Data
from millstream.kernels import jit

PARTS = ("fig4", "fig5", "fig6", "keys", "spark")


def shown(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


class Report:
    """What is printed and written: tables, and ratios with what was wanted."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.lines: list[str] = []
        out.mkdir(parents=True, exist_ok=True)

    def say(self, text: str = "") -> None:
        print(text, flush=True)
        self.lines.append(text)
        (self.out / "figures.txt").write_text("\n".join(self.lines) + "\n")

    def table(self, first: str, places: tuple[int, ...], columns: dict[str, list[Any]]) -> None:
        widths = {name: max(len(name), 9) for name in columns}
        self.say(f"  {first:>9} " + " ".join(f"{name:>{width}}" for name, width in widths.items()))
        for i, place in enumerate(places):
            cells = (f"{shown(columns[name][i]):>{width}}" for name, width in widths.items())
            self.say(f"  {place:>9,} " + " ".join(cells))

    def ratio(self, what: str, value: float | None, least: float | None = None, most: float | None = None) -> None:
        if value is None:
            self.say(f"  {what:<60}        –")
            return
        wanted = f"at least {least:g}" if least is not None else f"at most {most:g}"
        met = value >= least if least is not None else value <= (most or 0)
        self.say(f"  {what:<60} {value:8.2f}x   (wanted: {wanted}) {'' if met else 'NOT MET'}".rstrip())

    def draw(self, name: str, *what: Any, **how: Any) -> None:
        try:
            draw(self.out / f"{name}.png", *what, **how)
        except ImportError:
            self.say(f"  {name}.png is not drawn: matplotlib is missing (pip install 'millstream[bench]')")


def windows_figure(report: Report, number: int, job: Job, data: Data, quick: bool) -> None:
    # Every window is a kernel of its own to compile, and those of the frequent items are large.
    few = (10, 100, 1_000) if job is AVERAGE else (10, 100)
    windows = few if quick else (10, 100, 1_000, 10_000, 100_000)
    title = {"avg": "window average", "items": "approximate frequent items, 3 counting tables"}[job.name]
    report.say(f"\nFigure {number}: {title}; nanoseconds per row by window, batches of {BATCH_ROWS:,} rows")
    found = by_window(job, data, windows, 2 if quick else 6, 3 if quick else 25)
    report.table("window", windows, found)
    report.ratio("A / B, the worst window", max(a / b for a, b in zip(found["A"], found["B"], strict=True)), most=1.2)
    report.ratio("A: costliest / cheapest window", max(found["A"]) / min(found["A"]), most=1.3)
    for name, text, least in (("C", "C / A, the nearest window", 1.0), ("D", "D / A at the largest window of D", 1.0)):
        pairs = [(c, a) for c, a in zip(found[name], found["A"], strict=True) if c is not None]
        ratios = [c / a for c, a in pairs]
        report.ratio(text, (min(ratios) if name == "C" else ratios[-1]) if ratios else None, least=least)
    naive = [(w, d) for w, d in zip(windows, found["D"], strict=True) if d is not None]
    if len(naive) > 1:
        (before, low), (last, high) = naive[-2:]
        report.ratio(f"D: growth from {before:,} to {last:,} rows / growth of the window",
                     high / low / (last / before), least=0.5)  # fmt: skip
    report.draw(f"figure{number}", f"Figure {number}: {title}", "window, rows", "ns per row", windows, found)


def slides_figures(report: Report, data: Data, quick: bool) -> None:
    slides = (1, 1_000, 10_000, 40_000) if quick else SLIDES
    for preceding in (39_999, 40_000):
        report.say(
            f"\nFigures 6 and 7: sum(price) OVER (ROWS {preceding} PRECEDING SLIDE N), values held and rate by N"
        )
        found = by_slide(preceding, data, slides, 2 if quick else 4)
        report.table("slide", slides, found)
        gain = [p / d for p, d in zip(found["panes: M rows/s"], found["delta: M rows/s"], strict=True)]
        held = found["panes: values held"][slides.index(10_000)]
        report.ratio(f"ROWS {preceding}: values held at a slide of 10,000 / 5", held / 5, most=1)
        report.ratio(f"ROWS {preceding}: rate at the largest slide / rate at slide 1",
                     found["panes: M rows/s"][-1] / found["panes: M rows/s"][0], least=1.0)  # fmt: skip
        report.ratio(f"ROWS {preceding}: rate at the largest slide / delta only", gain[-1], least=1.0)
        held_lines = {name: found[f"{name}: values held"] for name in ("panes", "delta")}
        rate_lines = {name: found[f"{name}: M rows/s"] for name in ("panes", "delta")}
        text = f"sum OVER (ROWS {preceding} PRECEDING SLIDE N)"
        report.draw(f"figure6_{preceding}", f"Figure 6: {text}", "slide, rows", "values held", slides, held_lines)
        report.draw(
            f"figure7_{preceding}", f"Figure 7: {text}", "slide, rows", "M rows/s", slides, rate_lines, log=False
        )


def keys_table(report: Report, data: Data, python: Path | None, quick: bool) -> float:
    report.say("\nA decayed average per key (E8), 1,000 keys; M rows/s")
    rates = per_key(data, 2 if quick else 5)
    rate, how = bytewax(20_000 if quick else 200_000, 1_000, python)
    for name, value in rates.items():
        report.say(f"  {name:<44} {value / 1e6:8.3f}")
    report.say(f"  {'Bytewax fold_window':<44} " + ("–" if rate is None else f"{rate / 1e6:8.3f}") + f"   ({how})")
    report.ratio("compiled / Python loop over Arrow columns", rates["compiled"] / rates["python loop"], least=50)
    report.ratio(
        "compiled / the loop alone, lists given", rates["compiled"] / rates["python loop, lists given"], least=50
    )
    report.ratio("compiled / Bytewax", None if rate is None else rates["compiled"] / rate, least=100)
    return rates["compiled"]


def spark_table(report: Report, compiled: float | None, quick: bool) -> None:
    rows, files, per_trigger = (400_000, 4, 2) if quick else (10_000_000, 20, 10)
    report.say(f"\nOn Spark, local[2], {rows:,} rows, 10,000 keys: a window average of 10 rows per key; M rows/s")
    rates = on_spark(rows, 10_000, files, per_trigger, 10)
    for name, value in rates.items():
        report.say(f"  {name:<44} {value / 1e6:8.3f}")
    for mode in ("streaming", "batch"):
        ratio = rates[f"{mode}: SQL aggregate"] / rates[f"{mode}: built-in avg"]
        report.ratio(f"{mode}: SQL aggregate / built-in avg", ratio, least=0.5)
    if compiled is not None:
        slow = rates["streaming: applyInPandasWithState"]
        report.ratio("compiled in-process / applyInPandasWithState", compiled / slow, least=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="everything small")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, default=Path("out/aggregates"))
    parser.add_argument("--bytewax", type=Path, help="a Python that has bytewax, instead of a new environment")
    options = parser.parse_args()
    chosen = [part for part in options.only.split(",") if part]
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there is {', '.join(PARTS)}")
    report = Report(options.out)
    data = Data((2 if options.quick else 12) * BATCH_ROWS)
    compiled = None
    with jit.using("on", threads=1):
        if "fig4" in chosen:
            windows_figure(report, 4, AVERAGE, data, options.quick)
        if "fig5" in chosen:
            windows_figure(report, 5, ITEMS, data, options.quick)
        if "fig6" in chosen:
            slides_figures(report, data, options.quick)
        if "keys" in chosen:
            compiled = keys_table(report, data, options.bytewax, options.quick)
    if "spark" in chosen:
        spark_table(report, compiled, options.quick)
    print(f"\nwritten to {options.out}")


if __name__ == "__main__":
    sys.exit(main())
