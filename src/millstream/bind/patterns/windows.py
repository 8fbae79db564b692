"""Patterns in windows: `measure OVER w` and aggregates over the rows of the match that begins at a row."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.bind.aggregates.calls import aggregate_call
from millstream.bind.aggregates.groups import is_aggregate
from millstream.bind.context import Context
from millstream.bind.scope import Item, did_you_mean
from millstream.bind.windows.frames import FrameBinder
from millstream.expressions.functions import resolve
from millstream.expressions.nodes import Expr, Literal
from millstream.plan import nodes as P
from millstream.plan.patterns import search as M
from millstream.records import dataclass
from millstream.types import BIGINT

if TYPE_CHECKING:
    from millstream.bind.patterns.match_recognize import SearchBinder


@dataclass
class WindowSearch:
    """The search of one window, and what is asked of its matches."""

    binder: SearchBinder
    keys: tuple[str, ...]
    given: M.Given
    told: list[Expr] = field(default_factory=list)


@dataclass
class PatternWindows:
    """Collects the windows with patterns of one SELECT."""

    context: Context
    plan: P.Node
    frames: FrameBinder
    searches: dict[int, WindowSearch] = field(default_factory=dict)

    def is_measured(self, node: exp.Window, window: exp.Window) -> bool:
        """Whether a call depends on the match, and not on the partition alone, as lag or row_number."""
        if window.args.get("match") is None:
            return False
        return not isinstance(node.this, exp.Func) or is_aggregate(node.this, self.context)

    def bind(self, node: exp.Window, window: exp.Window, keys: tuple[str, ...], items: tuple[Item, ...]) -> Expr:
        """What a measure or an aggregate over a window with a pattern is at each row."""
        match = window.args["match"]
        search = self.searches.get(id(match))
        if search is None:
            search = self.searches[id(match)] = self._search(node, window, keys, items)
        value = self._value(node, search)
        search.told.append(value)
        return value

    def build(self, plan: P.Node) -> P.Node:
        """The rows with what was asked of the matches that begin at them."""
        for search in self.searches.values():
            search.binder.rows = plan
            plan = search.binder.build(search.keys, search.given, search.told)
        return plan

    def _search(
        self, node: exp.Window, window: exp.Window, keys: tuple[str, ...], items: tuple[Item, ...]
    ) -> WindowSearch:
        if len(items) != 1 or items[0].prefix:
            self.context.refuse(
                "a pattern in a window over several entries of FROM", node, hint="join them in a subquery"
            )
        match = window.args["match"]
        spec = window.args.get("spec")
        if spec is not None and str(spec.args.get("kind") or "ROWS").upper() != "ROWS":
            self.context.refuse(
                "a pattern in a window needs a frame of ROWS",
                spec,
                hint="ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING, and PATTERN (…) WITHIN … for a duration",
            )
        frame = None if spec is None else self.frames.following(spec, node)
        if frame is None or frame[0] != 0:
            self.context.fail(
                "a pattern needs a frame that begins at the current row",
                spec or node,
                hint="ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            )
        from millstream.bind.patterns.match_recognize import SearchBinder
        from millstream.bind.patterns.values import MatchValues

        values = MatchValues.beside(self.plan, f"$w{len(self.searches) + 1}")
        binder = SearchBinder(match, self.plan, items[0].alias, self.context, values)
        return WindowSearch(binder, keys, M.Given("each", most=frame[1], seek=match.seek))

    def _value(self, node: exp.Window, search: WindowSearch) -> Expr:
        expressions = search.binder.expressions("MEASURES")
        call = aggregate_call(node.this, self.context)
        if call is None and not isinstance(node.this, exp.Func):
            return search.binder.values.of_match(expressions.bind(self._measure(node, search).this))
        value = expressions.bind(node.this)
        # without a match there are no rows to count
        is_count = call is not None and call.fn == "count"
        return resolve("coalesce", (value, Literal(BIGINT, 0))) if is_count else value

    def _measure(self, node: exp.Window, search: WindowSearch) -> exp.Alias:
        if not isinstance(node.this, exp.Column):
            self.context.refuse("a measure or an aggregate is expected before OVER here", node)
        name = node.this.name
        measures = search.binder.node.measures
        found = [measure for measure in measures if measure.alias.lower() == name.lower()]
        if len(found) != 1:
            known = [measure.alias for measure in measures]
            self.context.fail(f"no measure {name} in this window", node, hint=did_you_mean(name, known))
        return found[0]
