"""Joins of streams without windows in FROM: rows that are near each other in time, or of the same window.

Rows wait for their partners as a relation's rows, just as long as a partner may come: then the ordinary join of
relations pairs them, and each pair is an event at the later of its two times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.queries.joins import FromEntry, Joining, refuse_two_streams
from millstream.bind.relations.windows import FOR_EVER, as_relation, check_clocks
from millstream.bind.scope import Scope
from millstream.errors import MillstreamError
from millstream.expressions import functions
from millstream.expressions.nodes import Call, Column, Expr, Literal, conjuncts
from millstream.plan import event_joins as E
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.proofs.time_bounds import closest, linear, time_bounds
from millstream.plan.window_columns import WindowColumns, window_columns
from millstream.plan.window_tables import Hopping
from millstream.records import dataclass
from millstream.types import BIGINT, BOOLEAN, INTERVAL

_LONGEST = 2**60
_END = "$window end"


def is_event_join(sources: list[FromEntry]) -> bool:
    """Whether several streams meet, none of which is a relation."""
    kinds = [source.plan.kind for source in sources]
    return P.Kind.RELATION not in kinds and kinds.count(P.Kind.EVENTS) > 1


def join_events(sources: list[FromEntry], select: exp.Select, context: Context) -> tuple[P.Node, Scope]:
    """The plan of all entries of FROM together, and the names they bring into scope."""
    streams = {place: source for place, source in enumerate(sources) if source.plan.kind is P.Kind.EVENTS}
    held = {place: R.Window(source.plan, FOR_EVER) for place, source in streams.items()}
    check_clocks(held.values(), "a join", list(streams.values())[-1].node, context)
    plan, scope = _joined(sources, held, context)
    near = _Near(sources, plan, _where(select, scope, context), context)
    return near.by_windows() or near.by_times()


def _joined(sources: list[FromEntry], held: Mapping[int, P.Node], context: Context) -> tuple[P.Node, Scope]:
    """All entries together, some of them as these relations."""
    changed = [replace(source, plan=held.get(place, source.plan)) for place, source in enumerate(sources)]
    return Joining(changed, context).build()


def _where(select: exp.Select, scope: Scope, context: Context) -> tuple[Expr, ...]:
    """The conditions of WHERE that can be told already."""
    where = select.args.get("where")
    if where is None:
        return ()
    found: list[Expr] = []
    for part in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
        # What is wrong with one is said where all of them are bound.
        try:
            found += conjuncts(ExpressionBinder(context, scope).condition(part))
        except MillstreamError:
            continue
    return tuple(found)


@dataclass
class _Near:
    """Looks at the joins as they would be if rows waited for ever, for what says how long they have to."""

    sources: list[FromEntry]
    trial: P.Node
    where: tuple[Expr, ...]
    context: Context

    @cached_property
    def streams(self) -> list[int]:
        return [place for place, source in enumerate(self.sources) if source.plan.kind is P.Kind.EVENTS]

    @cached_property
    def prefixes(self) -> list[str]:
        return [source.prefix(place) for place, source in enumerate(self.sources)]

    @cached_property
    def times(self) -> dict[str, int]:
        """The time columns of all streams, with the place of each stream."""
        return {
            self.prefixes[place] + name: place
            for place in self.streams
            for name in sorted(self.context.time_columns(self.sources[place].plan))
        }

    @cached_property
    def joins(self) -> list[tuple[R.How, tuple[Expr, ...]]]:
        """How each stream but the first is joined, and on what; an inner join also on what filters say of its rows."""
        return list(self._joins(self.trial, self.where))[::-1]

    def _joins(self, plan: P.Node, above: tuple[Expr, ...]) -> Iterator[tuple[R.How, tuple[Expr, ...]]]:
        match plan:
            case P.Filter(input=below, predicate=predicate):
                yield from self._joins(below, (*above, *conjuncts(predicate)))
            case R.Join(left=left, how=how):
                pairs = tuple(Call(BOOLEAN, "=", pair) for pair in plan.pairs)
                own = pairs + (() if plan.residual is None else conjuncts(plan.residual))
                yield how, (*own, *above) if how == "inner" else own
                # a filter above speaks of the rows of the left side, unless they may be NULL
                kept = how in ("inner", "left", "semi", "anti")
                yield from self._joins(left, (*above, *(own if how in ("inner", "semi") else ())) if kept else ())
            case P.Project(input=below) | P.JoinTable(input=below):
                yield from self._joins(below, above)

    # -- windows -------------------------------------------------------------------------------------------------------

    def by_windows(self) -> tuple[P.Node, Scope] | None:
        """Rows of the same window, if some have windows and the conditions say so."""
        windows = {place: found for place in self.streams if (found := window_columns(self.sources[place].plan))}
        after = len(windows) < len(self.streams)
        if not windows or any(found.end is None and (after or not _has_end(found)) for found in windows.values()):
            return None
        known = [self.streams[0]]
        for place, (_, conditions) in zip(self.streams[1:], self.joins, strict=True):
            if not any(self._same_window(other, place, windows, conditions) for other in known):
                return None
            known.append(place)
        held = {place: as_relation(self.sources[place].plan) for place in self.streams}
        for place, found in windows.items():
            held[place] = _until_end(self.sources[place].plan, found, after)
        plan, scope = _joined(self.sources, held, self.context)
        times = {name for place in self._told() if after for name in self._ends(place, windows)}
        return E.Starts(plan, tuple(sorted(times & set(plan.schema.names)))), scope

    def _same_window(self, one: int, two: int, windows: dict[int, WindowColumns], conditions: tuple[Expr, ...]) -> bool:
        """Whether conditions say that rows of two streams are of windows with the same end."""
        first, second = windows.get(one), windows.get(two)
        if not any(found is not None and found.end is None for found in (first, second)) and self._are_equal(
            self._ends(one, windows), self._ends(two, windows), conditions
        ):
            return True
        if first is None or second is None or first.start is None or second.start is None:
            return False
        of_one, of_two = (getattr(found.table, "windows", None) for found in (first, second))
        if not (isinstance(of_one, Hopping) and isinstance(of_two, Hopping) and of_one.size == of_two.size):
            return False
        starts = {self.prefixes[one] + first.start}, {self.prefixes[two] + second.start}
        return self._are_equal(*starts, conditions)

    def _ends(self, place: int, windows: dict[int, WindowColumns]) -> set[str]:
        """Columns that hold the end of a row's window, or the row's own time if it has none."""
        if place in windows:
            return {self.prefixes[place] + (windows[place].end or "")}
        return {name for name, own in self.times.items() if own == place}

    def _are_equal(self, ones: set[str], twos: set[str], conditions: tuple[Expr, ...]) -> bool:
        for part in conditions:
            if isinstance(part, Call) and part.fn == "=":
                names = [_column(arg) for arg in part.args]
                if (names[0] in ones and names[1] in twos) or (names[0] in twos and names[1] in ones):
                    return True
        return False

    def _told(self) -> set[int]:
        """The streams whose columns are never NULL in the result."""
        told = {self.streams[0]}
        for place, (how, _) in zip(self.streams[1:], self.joins, strict=True):
            match how:
                case "inner":
                    told.add(place)
                case "right":
                    told = {place}
                case "full":
                    told = set()
        return told

    # -- times ---------------------------------------------------------------------------------------------------------

    def by_times(self) -> tuple[P.Node, Scope]:
        """Rows whose times are near each other, as the conditions say."""
        bounds = [
            bound for _, conditions in self.joins for part in conditions for bound in time_bounds(part, self.times)
        ]
        least = closest(bounds, len(self.sources))
        if not bounds:
            met = self.sources[self.streams[1]]
            where = "one query" if met.alias.startswith("$") else "FROM"
            refuse_two_streams(f"two streams in {where} without windows", met.node, self.context)
        reach = {place: self._reach(place, least) for place in self.streams}
        hows = [how for how, _ in self.joins]
        lasting = self._lasting(hows, reach)
        held = {place: R.Window(self.sources[place].plan, R.RangeWindow(wait + 1)) for place, wait in reach.items()}
        plan, scope = _joined(self.sources, held, self.context)
        last = {place for place in self._told() if all(least.get((other, place), 1) <= 0 for other in self.streams)}
        times = tuple(name for name, place in self.times.items() if place in last and name in plan.schema)
        return E.Starts(plan, times, lasting), scope

    def _reach(self, place: int, least: dict[tuple[int, int], int]) -> int:
        """How long rows of a stream have to wait for those of the others."""
        others = [other for other in self.streams if other != place]
        open_ = next((other for other in others if (other, place) not in least), None)
        if open_ is not None:
            own, theirs = self._alias(place), self._alias(open_)
            self.context.refuse(
                f"no condition limits how long rows of {own} wait for rows of {theirs}",
                self.sources[place].node,
                detail=f"matching rows of {theirs} may arrive any time later",
                hint=f"limit in both directions how far apart their times are: "
                f"{self._time(open_)} BETWEEN {self._time(place)} AND {self._time(place)} + {self._span}",
            )
        reach = max(0, *(least[other, place] for other in others))
        if reach >= _LONGEST:
            self.context.fail("rows would have to wait too long", self.sources[place].node)
        return reach

    def _lasting(self, hows: list[R.How], reach: dict[int, int]) -> tuple[E.Lasting, ...]:
        """Which rows without a match are results: those that had none as long as they waited."""
        if all(how == "inner" for how in hows) or not any(reach.values()):
            return ()
        join = self.sources[self.streams[-1]].join
        if len(self.streams) > 2:
            self.context.refuse(
                "an outer join of more than two streams with a time bound",
                join,
                hint="join two of them in a subquery",
            )
        (left, right), how = self.streams, hows[0]
        if how == "semi" and reach[left]:
            self.context.refuse(
                f"SEMI JOIN with rows of {self._alias(right)} that are later",
                join,
                detail="a row would be emitted again for every match",
                hint=f"add a bound: rows of {self._alias(right)} must not be later than those of {self._alias(left)}",
            )
        found: list[E.Lasting] = []
        if how in ("left", "full") and reach[left]:
            found.append(E.Lasting(self._time_name(right), reach[left] + 1))
        if how in ("right", "full") and reach[right]:
            found.append(E.Lasting(self._time_name(left), reach[right] + 1))
        if how == "anti" and reach[left]:
            found.append(E.Lasting(None, reach[left] + 1))
        return tuple(found)

    def _alias(self, place: int) -> str:
        return self.sources[place].alias or "the subquery"

    @property
    def _span(self) -> str:
        is_number = self.context.time_type(self.sources[self.streams[0]].plan) == BIGINT
        return "10" if is_number else "INTERVAL '10' MINUTE"

    def _time_name(self, place: int) -> str:
        return next(name for name, own in self.times.items() if own == place)

    def _time(self, place: int) -> str:
        return next((name for name, own in self.times.items() if own == place), f"{self._alias(place)}.time")


def _has_end(found: WindowColumns) -> bool:
    """Whether the ends of windows are known from where they begin, since all have the same length."""
    return found.start is not None and isinstance(getattr(found.table, "windows", None), Hopping)


def _until_end(plan: P.Node, found: WindowColumns, after: bool) -> P.Node:
    """Rows as a relation at the ends of their windows, also where a plan has kept only the beginnings."""
    if found.end is not None:
        return E.AtWindowEnd(plan, found.end, after)
    assert found.start is not None and isinstance(found.table, P.AssignWindows)
    start = Column(plan.schema[found.start].type, found.start)
    size = Literal(BIGINT if start.type.is_integer else INTERVAL, found.table.windows.size)
    end = functions.resolve("+", (start, size))
    ended = P.Project(plan, (*P.passthrough(plan.schema), (_END, end)))
    return P.Project(E.AtWindowEnd(ended, _END), P.passthrough(plan.schema))


def _column(expr: Expr) -> str | None:
    """The column that an expression is, converted at most."""
    found = linear(expr)
    if isinstance(expr, Call) or found is None or found[1] or len(found[0]) != 1:
        return expr.name if isinstance(expr, Column) else None
    return next(iter(found[0]))
