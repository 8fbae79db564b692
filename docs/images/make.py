"""Draws the pictures of results.md and events.md from what the engine delivers: python docs/images/make.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import millstream as ms

UNIT, ROW, LEFT, TOP, GAP = 34, 22, 190, 34, 12
INK, SOFT, LINE = "#24292f", "#8c959f", "#cf222e"
FILLS = ("#54aeff", "#f5b13d", "#7bc96f", "#c297ff")
STREAMS = """
    CREATE STREAM s (x VARCHAR, t INT) ORDER BY t;
    CREATE STREAM a (k VARCHAR, t INT) ORDER BY t;
    CREATE STREAM b (k VARCHAR, t INT) ORDER BY t
"""
ROWS = {
    "s": [("a", 1), ("b", 2), ("b", 5), ("a", 7)],
    "a": [("x", 1), ("y", 3)],
    "b": [("x", 4), ("y", 9)],
}


@dataclass
class Panel:
    """Rows of one query or stream: text, first instant, and the end (None is open)."""

    label: str
    query: str
    fill: str = FILLS[0]
    rows: list[tuple[str, int, int | None]] = field(default_factory=list)


def run(panels: list[Panel]) -> None:
    """Fill the panels with what their queries deliver."""
    with ms.connect() as db:
        db.execute(STREAMS)
        queries = [db.sql(panel.query) for panel in panels]
        for stream, rows in ROWS.items():
            db.push(stream, rows)
        db.finish()
        for panel, query in zip(panels, queries, strict=True):
            for *values, start, end in (tuple(row.values()) for row in query.fetch().to_pylist()):
                panel.rows.append((", ".join(map(str, values)), start, end))
            panel.rows.sort(key=lambda row: (row[1], row[0]))


def draw(name: str, panels: list[Panel], last: int, at: int | None = None) -> None:
    """One picture: panels below each other over a common axis, with a line through the instant `at`."""
    run(panels)
    height = TOP + sum(max(len(panel.rows), 1) * ROW + GAP for panel in panels) + 18
    width = LEFT + (last + 1) * UNIT + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for t in range(last + 1):
        x = _x(t)
        parts.append(f'<line x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{height - 18}" stroke="#eaeef2"/>')
        parts.append(f'<text x="{x}" y="{TOP - 14}" text-anchor="middle" fill="{SOFT}">{t}</text>')
    parts.append(f'<text x="{LEFT - 14}" y="{TOP - 14}" text-anchor="end" fill="{SOFT}">time</text>')
    y = TOP
    for panel in panels:
        parts.append(f'<text x="12" y="{y + 14}">{escape(panel.label)}</text>')
        for text, start, end in panel.rows:
            parts += _bar(text, start, end, y, panel.fill, last)
            y += ROW
        y += GAP + (ROW if not panel.rows else 0)
        parts.append(f'<line x1="12" y1="{y - GAP / 2}" x2="{width - 12}" y2="{y - GAP / 2}" stroke="#d0d7de"/>')
    if at is not None:
        x = _x(at)
        parts.append(
            f'<line x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{height - 18}" stroke="{LINE}" stroke-dasharray="4 3"/>'
        )
        parts.append(f'<text x="{x}" y="{height - 5}" text-anchor="middle" fill="{LINE}">snapshot at {at}</text>')
    (Path(__file__).parent / f"{name}.svg").write_text("\n".join([*parts, "</svg>"]) + "\n")


def _x(t: float) -> float:
    return LEFT + t * UNIT


def _bar(text: str, start: int, end: int | None, y: float, fill: str, last: int) -> list[str]:
    """A row's validity: from a full dot to an open one; an arrow where it has no end."""
    x1, x2, middle = _x(start), _x(last + 0.6 if end is None else end), y + 10
    shape = f'<rect x="{x1}" y="{y + 2}" width="{x2 - x1}" height="16" fill="{fill}" fill-opacity="0.45"/>'
    ends = [f'<circle cx="{x1}" cy="{middle}" r="3.5" fill="{INK}"/>']
    if end is None:
        ends.append(f'<path d="M{x2 - 7} {y + 5} L{x2} {middle} L{x2 - 7} {y + 15}" fill="none" stroke="{INK}"/>')
    else:
        ends.append(f'<circle cx="{x2}" cy="{middle}" r="3.5" fill="#ffffff" stroke="{INK}"/>')
    return [shape, *ends, f'<text x="{x1 + 9}" y="{y + 14}">{escape(text)}</text>']


AUTOMATON = """
    SELECT Name, MaxPrice, MinPrice, Price AS FinalPrice FROM FILTER{Price > 1.05 * MinPrice_1} (
        FILTER{DUR >= 10} (
            SELECT Name, Price_1 AS MaxPrice, Price AS MinPrice
            FROM FILTER{Volume > 10000}(Stock) FOLD{$2.Name = $.Name, $2.Price < $.Price, } Stock)
        NEXT{$2.Name = $1.Name} Stock)
"""


def automaton() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM Stock (Name VARCHAR, Price DOUBLE, Volume INT, t BIGINT) ORDER BY t")
        (Path(__file__).parent / "automaton.svg").write_text(db.sql(AUTOMATON).explain(format="svg"))


def main() -> None:
    automaton()
    _, amber, green, violet = FILLS
    draw(
        "snapshots",
        [
            Panel("s  (events)", "SELECT x FROM s [NOW]", amber),
            Panel("s WINDOW(RANGE 4)", "SELECT x FROM s WINDOW(RANGE 4)"),
            Panel("count(*)", "SELECT count(*) FROM s WINDOW(RANGE 4)", green),
            Panel("DISTINCT x", "SELECT DISTINCT x FROM s WINDOW(RANGE 4)", violet),
        ],
        last=12,
        at=5,
    )
    draw(
        "windows",
        [
            Panel("events", "SELECT x FROM s [NOW]", amber),
            Panel("RANGE 4", "SELECT x FROM s WINDOW(RANGE 4)"),
            Panel("RANGE 4 SLIDE 2", "SELECT x FROM s WINDOW(RANGE 4 SLIDE 2)"),
            Panel("RANGE UNBOUNDED", "SELECT x FROM s WINDOW(RANGE UNBOUNDED)"),
            Panel("ROWS 2", "SELECT x FROM s WINDOW(ROWS 2)", green),
            Panel("ROWS 2 SLIDE 2", "SELECT x FROM s WINDOW(ROWS 2 SLIDE 2)", green),
            Panel("PARTITION BY x ROWS 1", "SELECT x FROM s WINDOW(PARTITION BY x ROWS 1)", green),
            Panel("RANGE 4, GRANULARITY(3)", "SELECT x FROM s WINDOW(RANGE 4) GRANULARITY(3)", violet),
        ],
        last=12,
    )
    pair = "FROM a WINDOW(RANGE 6)", "b WINDOW(RANGE 3) ON a.k = b.k"
    draw(
        "joins",
        [
            Panel("a WINDOW(RANGE 6)", "SELECT k FROM a WINDOW(RANGE 6)"),
            Panel("b WINDOW(RANGE 3)", "SELECT k FROM b WINDOW(RANGE 3)", amber),
            Panel("a JOIN b ON a.k = b.k", f"SELECT a.k, b.k AS j {pair[0]} JOIN {pair[1]}", green),
            Panel("LEFT JOIN", f"SELECT a.k, coalesce(b.k, 'NULL') AS j {pair[0]} LEFT JOIN {pair[1]}", green),
            Panel("ANTI JOIN", f"SELECT a.k {pair[0]} ANTI JOIN {pair[1]}", violet),
        ],
        last=13,
    )


if __name__ == "__main__":
    main()
