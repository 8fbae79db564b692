"""The experiments E1 to E10 of the thesis on relations: intervals against changes, in one run.

    python benchmarks/relations.py [--rows 300000] [--rounds 3] [--only E5,E8] [--out DIR]

Rows with intervals are the thesis' time-interval approach, changes its positive-negative approach. Read the ratios, not
the seconds: what counts is who is faster, and by how much.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import relations_data as data
import relations_kernels as kernels

Measured = dict[str, tuple[float, int]]


class Report:
    """Prints what was found beside what the thesis says, and keeps figures for a picture."""

    def __init__(self) -> None:
        self.ratios: dict[str, float] = {}

    def title(self, number: str, what: str) -> None:
        print(f"\n{number}  {what}", flush=True)

    def table(self, measured: Measured, rows: int) -> None:
        for name, (seconds, results) in measured.items():
            rate = rows / seconds / 1e6
            print(f"    {name:<34} {seconds:8.3f} s  {rate:8.2f} M rows/s  {results:>10,} results", flush=True)

    def ratio(self, what: str, value: float, wanted: str, holds: bool) -> None:
        self.ratios[what] = value
        print(f"    {what:<60} {value:6.2f}   thesis: {wanted}   {'as there' if holds else 'DIFFERS'}", flush=True)

    def note(self, text: str) -> None:
        print(f"    {text}", flush=True)


def both(sql: str, rules: str = "on") -> dict[str, data.Physical]:
    return {form: data.physical_plan(sql, form, rules=rules) for form in ("intervals", "changes")}


class Experiments:
    """One set of streams for all of them."""

    def __init__(self, bids: int, rounds: int, report: Report) -> None:
        self.report, self.rounds = report, rounds
        self.auctions = data.make_auctions(bids)
        self.feeds = self.auctions.feeds()
        self.few = data.make_auctions(max(1_000, bids // 10))

    def forms(
        self, what: str, sql: str, wanted: str, low: float, high: float, few: bool = False, rules: str = "on"
    ) -> Measured:
        """A query in both forms; between `low` and `high`, their ratio is as in the thesis."""
        feeds, rows = (self.few.feeds(), self.few.rows) if few else (self.feeds, self.auctions.rows)
        measured = data.compare(both(sql, rules), feeds, self.rounds)
        self.report.table(measured, rows)
        ratio = measured["changes"][0] / measured["intervals"][0]
        self.report.ratio(f"{what}: changes / intervals, seconds", ratio, wanted, low < ratio < high)
        return measured

    def e1_stateless(self) -> None:
        self.report.title("E1 E2", "Q1, currency conversion at the instant")
        measured = self.forms("Q1", data.Q1, "about 2", 1.5, 4, rules="off")
        twice = measured["changes"][1] / measured["intervals"][1]
        self.report.ratio("Q1: changes / intervals, results", twice, "2", 1.9 < twice < 2.1)
        self.report.title("E1 E3", "Q2, selection of five items at the instant")
        self.forms("Q2", data.Q2, "almost 3", 1.5, 4, rules="off")
        self.report.note(
            "These two are planned as written. With our rules (10.8, 10.9) filters and maps go below windows"
        )
        self.report.note(
            "of time, and see no negative rows in either form. What is left of the difference is the window;"
        )
        self.report.note("the filter itself is a small part of it, as it runs over whole columns:")
        for name, sql in (("Q1", data.Q1), ("Q2", data.Q2)):
            measured = data.compare(both(sql), self.feeds, self.rounds)
            ratio = measured["changes"][0] / measured["intervals"][0]
            self.report.note(f"{name} with rules: changes / intervals, seconds {ratio:.2f}")

    def e4_window_state(self) -> None:
        self.report.title("E4", "rows that a window of time keeps to send their negatives")
        wanted = {"NOW": (1, 6), "10 MINUTES": (10 * data.MINUTE, 97), "5 HOURS": (5 * data.HOUR, 2_880)}
        times = data.times(data.make_auctions(100_000).tables["Bid"])
        for name, (size, mean) in wanted.items():
            held = kernels.window_state(times, size)
            middle = held[len(held) // 4 : 3 * len(held) // 4]
            text = f"{name}: {held.min()} to {held.max()} rows, on average {middle.mean():,.0f}"
            self.report.note(f"{text:<60}          thesis: on average {mean:,}")
        self.report.note("Windows on intervals are stages without any state: 0 rows.")

    def e5_join(self) -> None:
        self.report.title("E1 E5", "Q3, short auctions: windowed join by hash, and by nested loops")
        self.forms("Q3 by hash", data.Q3, "between 1 and 2", 1, 2)
        self.forms("Q3 by nested loops", data.Q3_NESTED, "more than 2", 2, 4, few=True)
        self.report.note("items whose numbers differ by at most 1, by buckets of numbers and by nested loops:")
        ways = {"by buckets": data.Q3_BAND, "by nested loops": data.Q3_BAND_NESTED}
        plans = {name: both(sql)["intervals"] for name, sql in ways.items()}
        self.report.table(data.compare(plans, self.few.feeds(), self.rounds), self.few.rows)

    def e6_highest(self) -> None:
        self.report.title("E1 E6", "Q4, highest bid: MAX and a join with it")
        plans = both(data.Q4)
        plans["intervals, put together"] = data.coalesced(plans["intervals"], data.HOUR)
        plans["changes, MAX on intervals"] = data.mixed(plans["changes"], plans["intervals"])
        measured = data.compare(plans, self.feeds, self.rounds)
        self.report.table(measured, self.auctions.rows)
        seconds = {name: measured[name][0] for name in measured}
        ordered = seconds["changes, MAX on intervals"] / seconds["intervals"]
        self.report.ratio("Q4: changes with MAX on intervals / intervals, seconds", ordered, "above 1", ordered > 1)
        tree = seconds["changes"] / seconds["changes, MAX on intervals"]
        self.report.ratio("Q4: changes with MAX in a tree / on intervals, seconds", tree, "above 1", tree > 1)
        merged = seconds["intervals, put together"] / seconds["intervals"]
        self.report.ratio("Q4: with / without coalescing, seconds", merged, "slightly below 1", merged < 1)
        highest = data.physical_plan(data.HIGHEST, "intervals")
        rows = [data.run(plan, self.feeds)[1] for plan in (highest, data.coalesced(highest, data.HOUR))]
        self.report.note(
            f"MAX alone gives {rows[0]:,} rows, and {rows[1]:,} if neighbours are put together: aggregates"
        )
        self.report.note("do that themselves, so that a further operator only costs. Which value is next when the")
        self.report.note("greatest goes is told by ends; on changes any row may go, so that MAX keeps a tree of all.")

    def e7_plans(self) -> None:
        self.report.title("E1 E7", "Q5, closing price: grouping below the second join, and after it")
        below = self.forms("Q5, grouped below the join", data.Q5_BELOW, "between 1 and 2", 1, 2)
        after = self.forms("Q5, grouped after the join", data.Q5, "between 1 and 2", 1, 2)
        for form in ("intervals", "changes"):
            ratio = after[form][0] / below[form][0]
            self.report.ratio(f"Q5: after / below, {form}", ratio, "clearly above 1", ratio > 1.1)
        alone = data.compare(both(data.Q5_FIRST_JOIN), self.feeds, self.rounds)
        for form in ("intervals", "changes"):
            share = alone[form][0] / below[form][0]
            self.report.note(f"{form}: {share:.0%} of the time of the better plan is spent before its second join")
        self.report.note(
            "The first join and the windows are the same in both plans, and the second join meets ten rows"
        )
        self.report.note("instead of one in a batch. On changes, MAX keeps a tree of all rows of a group (see Q4).")

    def e8_latency(self) -> None:
        self.report.title("E8", "a window of N rows, 50 rows a second: when the first result comes")
        for rows in (1, 10, 50, 100, 500):
            first = {form: kernels.first_result(rows, form) for form in ("intervals", "changes")}
            text = ", ".join(f"{form} {count / 50:.2f} s" for form, count in first.items())
            holds = first["intervals"] == rows and first["changes"] == 0
            self.report.note(
                f"N = {rows:>3}: {text:<48} thesis: {rows / 50:.2f} s, 0 s   {'as there' if holds else ''}"
            )
        self.report.note("Seconds of arrival after the row's own; no clock is read.")

    def e9_order_of_ends(self) -> None:
        self.report.title("E9", "rows by the order of their ends: in order of start (FIFO), or any")
        for what, work in (("count", kernels.count_by_ends), ("join", kernels.join_by_ends)):
            seconds = {name: work(in_order, self.rounds) for name, in_order in (("FIFO", True), ("any", False))}
            ratio = seconds["any"] / seconds["FIFO"]
            self.report.ratio(f"{what}: any order / FIFO, seconds", ratio, "above 1", ratio > 1.1)
        self.report.note(
            "One structure serves both: aggregates keep rows as runs in order of end, of which there is one"
        )
        self.report.note("if ends come in order; a join finds rows by key, and forgets those that are over in bulk.")

    def e10_queues(self) -> None:
        self.report.title("E10", "a selective and an expansive join, windows of 5 s")
        for name, values in (("selective", 1_000), ("expansive", 100)):
            found = kernels.queues(values, self.rounds)
            self.report.note(
                f"{name}: {found.results:.2f} results a row, {found.seconds * 1e9:,.0f} ns a row, "
                f"{found.waiting:.2f} rows wait at the inputs, {found.at_once:.2f} results would at the output"
            )
        self.report.note(
            "thesis: selective 0.5 at the output or 1 at the inputs, expansive 5 or 1: the better place differs."
        )
        self.report.note(
            "Here rows always wait at the inputs, in columns and not in a heap; inner joins give results in"
        )
        self.report.note("order and hold none back. There is no second place to choose, and nothing to gain by one.")


def draw(ratios: dict[str, float], out: Path) -> None:
    """The ratios as bars, if matplotlib is there."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    chosen = {name.split(":")[0]: value for name, value in ratios.items() if name.endswith("/ intervals, seconds")}
    if not chosen:
        return
    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.barh(list(chosen), list(chosen.values()))
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set(title="Time of changes, intervals being 1", xlabel="ratio")
    figure.tight_layout()
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "relations.png", dpi=120)
    print(f"\n{out / 'relations.png'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000, help="bids")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="experiments, as in E5,E8")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    arguments = parser.parse_args()
    report = Report()
    experiments = Experiments(arguments.rows, arguments.rounds, report)
    print(f"{experiments.auctions.rows:,} rows: bids, auctions opened and auctions closed")
    works: dict[str, Callable[[], None]] = {
        "E1,E2,E3": experiments.e1_stateless,
        "E4": experiments.e4_window_state,
        "E5": experiments.e5_join,
        "E6": experiments.e6_highest,
        "E7": experiments.e7_plans,
        "E8": experiments.e8_latency,
        "E9": experiments.e9_order_of_ends,
        "E10": experiments.e10_queues,
    }
    wanted = {word for word in arguments.only.upper().split(",") if word}
    for names, work in works.items():
        if not wanted or wanted & set(names.split(",")):
            work()
    draw(report.ratios, arguments.out)


if __name__ == "__main__":
    sys.exit(main())
