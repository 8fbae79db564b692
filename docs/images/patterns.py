"""Draws the pictures of patterns.md from what the engine delivers: python docs/images/patterns.py."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

import millstream as ms

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 250, 48, 120, 18, 34
INK, SOFT, GRID = "#24292f", "#8c959f", "#eaeef2"
BANDS = ("#54aeff", "#f5b13d", "#7bc96f", "#c297ff")
DOTS = ("#24292f", "#cf222e", "#1a7f37", "#bc4c00", "#0969da")
PRICES = (50, 47, 44, 48, 53, 55, 52, 49, 46, 51, 54, 54, 50, 45, 47, 52)
ROWS = """SELECT t, price, nr, label FROM quotes MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY t
    MEASURES MATCH_NUMBER() AS nr, CLASSIFIER() AS label
    ALL ROWS PER MATCH WITH UNMATCHED ROWS
    PATTERN ({pattern}) DEFINE {define})"""


@dataclass(frozen=True)
class Row:
    """A row of the series, with its match and its variable if it has one."""

    t: int
    price: float
    nr: int | None
    label: str | None


def found(pattern: str, define: str) -> list[Row]:
    """The series, with what the pattern finds in it."""
    with ms.connect() as db:
        db.execute("CREATE STREAM quotes (symbol VARCHAR, price INT, t INT) ORDER BY t")
        query = db.sql(ROWS.format(pattern=pattern, define=define))
        db.push("quotes", [("ACME", price, t) for t, price in enumerate(PRICES, 1)])
        db.finish()
        return sorted((Row(**row) for row in query.fetch().to_pylist()), key=lambda row: row.t)


def draw(name: str, pattern: str, define: str) -> None:
    """One picture: the series as a line, a band behind each match, each row of it as a dot in its variable's colour."""
    rows = found(pattern, define)
    low, high = min(row.price for row in rows) - 1, max(row.price for row in rows) + 1

    def x(t: float) -> float:
        return round(LEFT + (t - rows[0].t) / (rows[-1].t - rows[0].t) * (WIDTH - LEFT - RIGHT), 1)

    def y(price: float) -> float:
        return round(TOP + (high - price) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for price in range(int(low) + 1, int(high) + 1, 4):
        parts.append(f'<line x1="{LEFT}" y1="{y(price)}" x2="{WIDTH - RIGHT}" y2="{y(price)}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 14}" y="{y(price) + 4}" text-anchor="end" fill="{SOFT}">{price}</text>')
    for row in rows:
        parts.append(f'<text x="{x(row.t)}" y="{HEIGHT - 10}" text-anchor="middle" fill="{SOFT}">{row.t}</text>')
    for nr in sorted({row.nr for row in rows if row.nr is not None}):
        times = [row.t for row in rows if row.nr == nr]
        left, right, tall = x(times[0]) - 8, x(times[-1]) + 8, HEIGHT - TOP - BOTTOM + 14
        parts.append(
            f'<rect x="{left}" y="{TOP - 8}" width="{round(right - left, 1)}" height="{tall}" rx="6" '
            f'fill="{BANDS[(nr - 1) % len(BANDS)]}" fill-opacity="0.22"/>'
        )
        parts.append(f'<text x="{left + 6}" y="{HEIGHT - BOTTOM + 2}" fill="{SOFT}">match {nr}</text>')
    line = " ".join(f"{x(row.t)},{y(row.price)}" for row in rows)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{SOFT}" stroke-width="1.5"/>')
    labels = list(dict.fromkeys(row.label for row in rows if row.label is not None))
    colors = dict(zip(labels, DOTS, strict=False))
    for row in rows:
        fill = f'fill="{colors[row.label]}"' if row.label is not None else f'fill="#ffffff" stroke="{SOFT}"'
        parts.append(f'<circle cx="{x(row.t)}" cy="{y(row.price)}" r="4.5" {fill}/>')
    for number, label in enumerate(labels):
        at = TOP + 8 + 20 * number
        parts.append(f'<circle cx="{WIDTH - RIGHT + 34}" cy="{at}" r="4.5" fill="{colors[label]}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 46}" y="{at + 4}">{escape(label)}</text>')
    (Path(__file__).parent / f"{name}.svg").write_text("\n".join([*parts, "</svg>"]) + "\n")


def main() -> None:
    draw("v_shape", "A DOWN+ UP+", "DOWN AS price < PREV(price), UP AS price > PREV(price)")
    draw(
        "w_shape",
        "A FALL+ RISE+ AGAIN+ OUT+",
        "FALL AS price < PREV(price), RISE AS price > PREV(price), AGAIN AS price < PREV(price), "
        "OUT AS price > PREV(price) AND abs(LAST(AGAIN.price) - LAST(FALL.price)) <= 3",
    )


if __name__ == "__main__":
    main()
