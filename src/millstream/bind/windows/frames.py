"""The frame of an OVER clause: which rows of its partition a row's window holds."""

from __future__ import annotations

from typing import Literal, NoReturn, cast

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.lengths import own_length
from millstream.catalog import Clock
from millstream.plan import nodes as P
from millstream.plan.windows import Between, Frame, Unit
from millstream.records import dataclass
from millstream.sql import duration_us
from millstream.types import BIGINT

_UNBOUNDED = 2**62
MOST_AHEAD = 100_000
"""rows after the current one that a window may reach"""


Beside = Literal["row", "peers before", "peers after"]
"""the row itself, or the rows of its time that came before or after it"""


@dataclass(frozen=True)
class Parted:
    """A frame in which EXCLUDE leaves a gap: its parts, one after the other."""

    parts: tuple[Frame | Beside, ...]


@dataclass(frozen=True)
class FrameBinder:
    """Reads the frames of windows over the rows of a plan."""

    context: Context
    plan: P.Node

    def frame(self, window: exp.Window, node: exp.Window, is_backward: bool = False) -> Frame | Parted | None:
        """The rows that a call sees; None if there never are any. If its order is backward in time, what follows
        comes before."""
        spec = window.args.get("spec")
        if spec is None:
            if is_backward:
                self.refuse_endless(node)
            if window.args.get("order") is not None:
                return Frame("range", None)
            self.context.refuse(
                "this window has no end",
                node,
                detail="without a frame, OVER means the whole partition, and a stream's partition is never complete",
                hint="add ROWS UNBOUNDED PRECEDING, ROWS n PRECEDING or RANGE n SECONDS PRECEDING",
            )
        unit = str(spec.args.get("kind") or "ROWS").lower()
        if not is_backward and (own := self._own(unit, spec)) is not None:
            return own
        start, end = (self._bound(unit, spec, side, node) for side in ("start", "end"))
        if end == _UNBOUNDED:
            self.context.fail("a frame cannot end at UNBOUNDED PRECEDING", node, hint="… AND CURRENT ROW")
        if start == -_UNBOUNDED:
            self.context.fail("a frame cannot begin at UNBOUNDED FOLLOWING", node, hint="BETWEEN CURRENT ROW AND …")
        if is_backward:
            start, end = -end, -start
        if end == -_UNBOUNDED:
            self.refuse_endless(node)
        if unit == "rows":
            self.check_ahead(-end, node)
        if unit == "groups" and end < 0:
            self.refuse_unended("GROUPS frames that reach beyond the current row need", node)
        if (excluded := _excluded(spec)) == "NO OTHERS":
            return _bounded(unit, start, end)
        return self._with_gap(excluded, unit, start, end, node)

    def _own(self, unit: str, spec: exp.Expr) -> Frame | None:
        """A frame up to the current row whose length is a parameter."""
        up_to_row = spec.args.get("end") in (None, "CURRENT ROW") and spec.args.get("start_side") == "PRECEDING"
        if not up_to_row or unit == "groups" or _excluded(spec) != "NO OTHERS" or spec.args.get("slide") is not None:
            return None
        counted = unit == "rows" or self.context.time_type(self.plan) == BIGINT
        own = own_length(spec.args.get("start"), self.context, counted=counted)
        return None if own is None else Frame(cast(Unit, unit), own)

    def _with_gap(self, excluded: str, unit: str, start: int, end: int, node: exp.Window) -> Frame | Parted | None:
        """A frame without what EXCLUDE leaves out, which may divide it."""
        has_own = start >= 0 >= end
        if excluded == "CURRENT ROW" and not has_own:
            return _bounded(unit, start, end)
        before, after = unit, unit
        beside: tuple[Beside, ...] = ()
        if excluded == "CURRENT ROW":
            beside = () if unit == "rows" else ("peers before", "peers after")
        elif unit == "rows":
            before, after = "earlier", "later"
            if start < -1:
                self.context.refuse(
                    f"EXCLUDE {excluded} with ROWS that begin after the next row is not supported",
                    node,
                    hint="ROWS BETWEEN 1 FOLLOWING AND …, or RANGE",
                )
        if has_own and excluded == "TIES":
            beside = ("row",)
        sides = _bounded(before, start, max(end, 1)), _bounded(after, min(start, -1), end)
        if beside or None not in sides:
            return Parted(tuple(part for part in (sides[0], *beside, sides[1]) if part is not None))
        return sides[0] or sides[1]

    def following(self, spec: exp.Expr, node: exp.Window) -> tuple[int, int | None] | None:
        """How many rows before the current one a frame of rows begins, and how many after it it ends (None: with the
        partition); None if it is not of rows, or ends before."""
        if str(spec.args.get("kind") or "ROWS").upper() != "ROWS":
            return None
        start, end = (self._bound("rows", spec, side, node) for side in ("start", "end"))
        return None if end > 0 else (start, None if end == -_UNBOUNDED else -end)

    def check_ahead(self, rows: int, node: exp.Expr) -> None:
        """Every row waits for so many later ones."""
        if rows > MOST_AHEAD:
            self.context.refuse(
                f"this reaches {rows:,} rows ahead, and at most {MOST_AHEAD:,} are supported",
                node,
                detail="every row would wait for so many later ones",
            )

    def refuse_unended(self, what: str, node: exp.Expr) -> NoReturn:
        """What looks at whole partitions works where they end."""
        self.context.refuse(
            f"{what} a partition that ends",
            node,
            detail="a partition of a stream is never complete",
            hint="OVER (PARTITION BY window_end …) in FROM TUMBLE(…), or a window in FROM: s [RANGE 1 HOUR]",
        )

    def refuse_endless(self, node: exp.Expr) -> NoReturn:
        self.context.refuse(
            "this window has no end",
            node,
            detail="it reaches to the last row of its partition, and a stream has no last row",
            hint="end it after a number of rows or a duration: … AND n FOLLOWING, … AND CURRENT ROW",
        )

    def count(self, start: exp.Expr, node: exp.Expr, unit: str = "rows") -> int:
        """A number of rows, or of times."""
        if isinstance(start, exp.Literal) and not start.is_string and str(start.this).isdigit():
            return self._checked(int(start.this), node)
        if start.find(exp.Column) is not None:
            self.context.fail(
                f"{unit.upper()} takes a constant number of {'rows' if unit == 'rows' else 'times'}, not a column",
                node,
                hint=f"{unit.upper()} 10 PRECEDING",
            )
        return self.context.fail(
            f"{unit.upper()} takes a whole number", node, hint="for time write RANGE 10 SECONDS PRECEDING"
        )

    def span(self, start: exp.Expr, node: exp.Expr) -> int:
        """A length of time."""
        length = duration_us(start)
        if Clock.LATENT in self.context.clocks_of(self.plan):
            # latent times are the numbers of arrivals
            if length is None and isinstance(start, exp.Literal) and str(start.this).isdigit():
                return self._checked(int(start.this), node)
            self.context.refuse(
                "this stream has no times to measure",
                node,
                detail="it was declared without ORDER BY, so RANGE counts its rows as they arrived",
                hint="RANGE 10 PRECEDING, or declare the stream with ORDER BY column or ORDER BY current_time",
            )
        if length is not None:
            return self._checked(length, node)
        if isinstance(start, exp.Literal) and str(start.this).isdigit():
            if self.context.time_type(self.plan) == BIGINT:
                return self._checked(int(start.this), node)
            self.context.fail("RANGE needs a unit of time", node, hint=f"RANGE {start.this} SECONDS PRECEDING")
        if isinstance(start, exp.Interval):
            self.context.fail(f"{start.sql()} has no fixed length", node, hint="use weeks, days or smaller units")
        return self.context.fail("RANGE takes a constant duration", node, hint="RANGE 10 SECONDS PRECEDING")

    def _checked(self, length: int, node: exp.Expr) -> int:
        if abs(length) >= _UNBOUNDED:
            self.context.fail("this window is too long", node, hint="write UNBOUNDED PRECEDING for no limit")
        return length

    def _bound(self, unit: str, spec: exp.Expr, side: str, node: exp.Window) -> int:
        """How far before the current row a frame begins or ends; what is negative comes after it."""
        bound = spec.args.get(side)
        if bound is None or bound == "CURRENT ROW":
            return 0
        distance = _UNBOUNDED
        if not isinstance(bound, str):
            distance = self.span(bound, node) if unit == "range" else self.count(bound, node, unit)
        return -distance if spec.args.get(f"{side}_side") == "FOLLOWING" else distance


def _bounded(unit: str, start: int, end: int) -> Frame | None:
    """The frame from `start` to `end`; None if it is empty."""
    if start < end:
        return None
    first = None if start == _UNBOUNDED else start
    if unit == "groups" and first is None and not end:
        unit = "range"
    return Frame(cast(Unit, unit), Between(first, end) if end else first)


def _excluded(spec: exp.Expr) -> str:
    return spec.args["exclude"].name if spec.args.get("exclude") is not None else "NO OTHERS"
