"""Many queries as one: the plan of a template over a stream joined with a table of its constants.

K queries that differ only in constants are one query over the stream joined with K rows, and the query's number is one
more key of every operator above that join. The join stands as high as the constants allow: what no constant decides is
computed once for all queries. Where it meets a condition, the condition finds the queries that want a row, through the
index of the join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from millstream.expressions.nodes import (
    Call,
    Column,
    Expr,
    Parameter,
    columns_of,
    conjunction,
    conjuncts,
    substitute,
    transform,
)
from millstream.expressions.nodes import (
    walk as parts_of,
)
from millstream.expressions.sql.text import quote_duckdb
from millstream.plan.channels import DURATION, NEWEST, channel_of, keeps_nothing, widest_duration
from millstream.plan.event_joins import AsofJoin
from millstream.plan.events.algebra import Fold, Next, Times
from millstream.plan.lengths import RowLength
from millstream.plan.node import Kind, Node, Pairs
from millstream.plan.nodes import Filter, JoinTable, Project, TableHow, TableQuery, TableScan, passthrough
from millstream.plan.patterns.search import Match, Reach, Search
from millstream.plan.relations import Join, Validity
from millstream.plan.window_tables import OwnWindows
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BOOLEAN

QUERY = "$query"
"""the column that tells the rows of different queries apart"""

_OTHER_QUERY = f"{QUERY}2"


class CannotShare(Exception):
    """No one plan serves all queries of a template; says why."""


@dataclass(frozen=True)
class ConstantsTable:
    """The stored table that has a row for each query: its number, its key, and parameters by their names."""

    table: str
    key: str | None
    """None if the number is all that tells queries apart"""
    columns: Schema
    number: str
    longest: tuple[tuple[str, int], ...] = ()
    """of parameters that are whole numbers, the greatest value of queries that start together"""

    def rows(self, wanted: frozenset[str]) -> Node:
        """The table as plans read it: the number as `QUERY`, and the parameters that are wanted."""
        kept = tuple(field for field in self.columns if field.name == self.number or field.name in wanted)
        named = ((parameter_column(field.name), field) for field in kept if field.name in wanted)
        columns = ((QUERY, self.columns[self.number]), *named)
        scan = TableScan(self.table, Schema(kept))
        return Project(scan, tuple((name, Column(field.type, field.name)) for name, field in columns))

    def newest(self) -> Node:
        """The number of the newest query as `NEWEST`; no row if there is no query."""
        name, table = quote_duckdb(self.number), quote_duckdb(self.table)
        sql = f"SELECT max({name}) AS {quote_duckdb(NEWEST)} FROM {table} HAVING count(*) > 0"
        return TableQuery(sql, (self.table,), Schema((Field(NEWEST, self.columns[self.number].type),)))


def parameter_column(name: str) -> str:
    """The column that has the value of a parameter."""
    return f"${name}"


def parameters_of(plan: Node) -> frozenset[str]:
    """The parameters that a plan has anywhere."""
    return _own_parameters(plan).union(*map(parameters_of, plan.inputs))


def lengths_of(plan: Node) -> frozenset[str]:
    """The parameters that a plan has as lengths of windows."""
    return _lengths_of(plan).union(*map(lengths_of, plan.inputs))


def own_windows(plan: Node) -> Iterator[OwnWindows]:
    """The window tables of a plan whose lengths are parameters."""
    for field in fields(plan):
        yield from () if _has_nodes(value := getattr(plan, field.name)) else values_in(value, OwnWindows)
    for child in plan.inputs:
        yield from own_windows(child)


INDEX, LIFT, CHANNELS = "index_constants", "lift_constants", "channel_events"
SHARE, GROUP, TEMPLATES = "share_operators", "group_filters", "share_templates"
SHARING = {
    INDEX: "an index over the constants finds the queries that match a row",
    LIFT: "work that does not depend on constants is done once for all queries, below the join with their constants",
    CHANNELS: "NEXT and FOLD keep one instance for all queries that match it; queries are looked up when it is found",
    SHARE: "queries with the same operator over the same input run it once",
    GROUP: "filters of separate queries that differ only in constants become one lookup",
    TEMPLATES: "separate queries with state that differ only in constants run as one over a table of their constants",
}
"""rules over several queries, each of which may be left out: the results are the same, and cost more; the last three
are those of the in-process host, as it adds a query to those that run"""


def for_all(plan: Node, constants: ConstantsTable, without: frozenset[str] = frozenset(), merged: bool = False) -> Node:
    """The plan that runs a template for every row of its constants, some rules of sharing left out; before its own
    columns it has the number of the query and its key, if it has one. If `merged`, a row is there once for several
    queries where they are looked up last, with their numbers and keys as arrays."""
    validity = plan if isinstance(plan, Validity) else None
    body = plan if validity is None else validity.input
    key = frozenset() if constants.key is None else frozenset([constants.key])
    shared = _Sharing(constants, frozenset(SHARING) - without).lift(body, key)
    made = shared.plan if shared.is_apart else _paired(body, constants, (), key)
    if merged and validity is None:
        made = _gathered(made, constants.table) or made
    names = (QUERY, *map(parameter_column, key), *body.schema.names)
    made = Project(made, tuple((name, Column(made.schema[name].type, name)) for name in names))
    return made if validity is None else replace(validity, input=made)


def for_sink(plan: Node, constants: ConstantsTable) -> Node:
    """What `for_all` made, as a sink takes it: the key as column `query`, and no rows of queries that are gone, whose
    windows go on for a while without them."""
    validity = plan if isinstance(plan, Validity) else None
    top = plan if validity is None else validity.input
    assert isinstance(top, Project)
    below: Node = top
    if validity is None:
        number = Project(constants.rows(frozenset()), ((_OTHER_QUERY, Column(top.schema[QUERY].type, QUERY)),))
        below = JoinTable(top, number, (_same_query(top),), how="semi")
    names = [(name if place else "query", name) for place, name in enumerate(top.schema.names[1:])]
    made = Project(below, tuple((new, Column(top.schema[old].type, old)) for new, old in names))
    return made if validity is None else replace(validity, input=made)


@dataclass(frozen=True)
class _Lifted:
    plan: Node
    is_apart: bool
    """whether its rows are of one query each, which the column `QUERY` says"""


class _Sharing:
    def __init__(self, constants: ConstantsTable, rules: frozenset[str]) -> None:
        self._constants = constants
        self._rules = rules

    def lift(self, node: Node, above: frozenset[str]) -> _Lifted:
        """The plan of a subplan for all queries, with the parameters that operators above it ask for."""
        if isinstance(node, JoinTable):
            node = _without_asked_table(node)
        own = _own_parameters(node)
        if isinstance(node, Next | Fold) and (lifted := self._channel(node, own, above)) is not None:
            return lifted
        if isinstance(node, Join) and node.how == "inner" and own:
            node, condition = _without_parameters(node)
            return self.lift(Filter(node, condition), above)
        below = [self.lift(child, above | own) for child in node.inputs]
        if not own and not any(child.is_apart for child in below):
            if LIFT not in self._rules and not node.inputs and node.kind is Kind.EVENTS:
                return self._apart(_Lifted(node, False), above)
            return _Lifted(node, False)
        if _lengths_of(node) and not below[0].is_apart:
            raise CannotShare(f"{node.label()} over rows that no constant chooses: each length has its own")
        by = (QUERY, *map(parameter_column, sorted(above)))
        match node:
            case Filter(predicate=predicate) if not below[0].is_apart:
                return _Lifted(self._chosen(below[0].plan, predicate, above), True)
            case Join() | AsofJoin():
                return _Lifted(self._joined(node, below, own, above), True)
            case Next() | Fold():
                return _Lifted(self._following(node, below, own | above), True)
            case JoinTable():
                below[0] = self._apart(below[0], own | above)
                return _Lifted(_settled(node.with_inputs((below[0].plan, node.table))), True)
        over = [self._apart(child, own | above).plan for child in below]
        if isinstance(node, Match):
            node = replace(node, input=over[0], search=_with_reaches(node, own))
        if len(over) > 1:
            over = [_in_order(plan, by) for plan in over]
        made = _settled(node.with_inputs(tuple(over))).apart(by)
        if made is None:
            raise CannotShare(f"{node.label()} does not tell queries apart")
        return _Lifted(made, True)

    def _apart(self, lifted: _Lifted, wanted: frozenset[str]) -> _Lifted:
        """A subplan whose rows are of one query each; if none of its conditions says of which, of each."""
        return lifted if lifted.is_apart else _Lifted(_paired(lifted.plan, self._constants, (), wanted), True)

    def _chosen(self, plan: Node, predicate: Expr, above: frozenset[str]) -> Node:
        """The rows of a shared subplan with the queries whose condition holds."""
        parts = conjuncts(predicate)
        if INDEX not in self._rules:
            wanted = above.union(*map(_parameters_in, parts))
            paired = Filter(_paired(plan, self._constants, (), wanted), conjunction(tuple(map(_settled_expr, parts))))
            kept = {*plan.schema.names, QUERY, *map(parameter_column, above)}
            return Project(paired, tuple(column for column in passthrough(paired.schema) if column[0] in kept))
        same = [part for part in parts if not _parameters_in(part)]
        asked = tuple(part for part in parts if _parameters_in(part))
        below = Filter(plan, conjunction(tuple(same))) if same else plan
        return _paired(below, self._constants, asked, above)

    def _joined(self, node: Join | AsofJoin, below: list[_Lifted], own: frozenset[str], above: frozenset[str]) -> Node:
        """A join of which at least one side has rows of one query each; sides that both have meet by query."""
        left, right = below
        outer = node.how if isinstance(node, Join) else "left"
        if own or (right.is_apart and not left.is_apart and outer not in ("inner", "right")):
            left = self._apart(left, own | above)
        if left.is_apart and not right.is_apart and outer in ("right", "full"):
            right = self._apart(right, own | above)
        pairs, other = node.pairs, right.plan
        if left.is_apart and right.is_apart:
            other = _with_other_query(right.plan, own | above)
            pairs = (_same_query(left.plan), *pairs)
        settled = _settled(replace(node, left=left.plan, right=other, pairs=pairs))
        if outer not in ("right", "full") or not (left.is_apart and right.is_apart):
            return settled
        raise CannotShare(f"a {outer.upper()} JOIN of two sides that both depend on constants")

    def _channel(self, node: Next | Fold, own: frozenset[str], above: frozenset[str]) -> _Lifted | None:
        """One operator for all queries, which choose among what it found; None if they differ in more than in what they
        choose of the first stream."""
        if not {CHANNELS, LIFT, INDEX} <= self._rules or parameters_of(node.right):
            return None
        channel = channel_of(node.left, lambda expr: bool(_parameters_in(expr)))
        if channel is None or parameters_of(channel.plan):
            return None
        found: Node = node
        lengths: tuple[Expr, ...] = ()
        if own:
            widest = widest_duration(node, dict(self._constants.longest))
            if widest is None or _own_parameters(widest.node):
                return None
            found, lengths = widest.node, widest.asked
        if not (channel.asked or lengths):
            return None
        left: Node = channel.plan
        came: tuple[Expr, ...] = ()
        if keeps_nothing(left) and keeps_nothing(node.right):
            left, came = self._with_newest(left)
        if channel.asked:
            left = _paired(left, self._constants, (*channel.asked, *came), frozenset(), "semi")
        found = found.with_inputs((left, node.right))
        if lengths:
            found = Times(found, ((DURATION, "duration"),), lengths[0].children()[0].type)
        made = _paired(found, self._constants, (*channel.asked, *lengths, *came), above)
        kept = (*node.schema.names, QUERY, *map(parameter_column, sorted(above)))
        return _Lifted(Project(made, tuple((name, Column(made.schema[name].type, name)) for name in kept)), True)

    def _with_newest(self, plan: Node) -> tuple[Node, tuple[Expr, ...]]:
        """First events with the number of the newest query, and the condition that a query was there when they came."""
        newest = self._constants.newest()
        type_ = newest.schema[NEWEST].type
        came = Call(BOOLEAN, "<=", (Column(type_, QUERY), Column(type_, NEWEST)))
        return JoinTable(plan, newest, ()), (came,)

    def _following(self, node: Next | Fold, below: list[_Lifted], wanted: frozenset[str]) -> Node:
        """What follows what: instances are of one query each. Events of the second stream are for all queries, unless
        constants choose among them."""
        left, right = self._apart(below[0], wanted).plan, below[1]
        if not right.is_apart:
            return _settled(node.with_inputs((left, right.plan)))
        made = _settled(replace(node, left=left, right=_with_other_query(right.plan, wanted)))
        assert isinstance(made, Next | Fold)
        same = Call(BOOLEAN, "=", _same_query(left))
        made = replace(made, condition=same if made.condition is None else conjunction((same, made.condition)))
        return Project(made, tuple(column for column in passthrough(made.schema) if column[0] != _OTHER_QUERY))


def _with_other_query(plan: Node, known: frozenset[str]) -> Node:
    """The second of two inputs that both are of one query each: the first one has its constants."""
    kept = (QUERY, *map(parameter_column, known))
    names = [name for name in plan.schema.names if not name.startswith("$") or name not in kept]
    key = (_OTHER_QUERY, Column(plan.schema[QUERY].type, QUERY))
    return Project(plan, (key, *((name, Column(plan.schema[name].type, name)) for name in names)))


def _same_query(left: Node) -> tuple[Expr, Expr]:
    """What is equal for rows of two inputs that are of one query."""
    type_ = left.schema[QUERY].type
    return Column(type_, QUERY), Column(type_, _OTHER_QUERY)


def _paired(
    plan: Node, constants: ConstantsTable, asked: tuple[Expr, ...], above: frozenset[str], how: TableHow = "inner"
) -> Node:
    """Rows with the queries for which all of `asked` hold; as `semi` only the rows for which there are some."""
    wanted = above.union(*map(_parameters_in, asked))
    table = constants.rows(wanted)
    pairs: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    for part in asked:
        pair = _equality(part)
        if pair is None:
            rest.append(_settled_expr(part))
        else:
            pairs.append((pair[0], _settled_expr(pair[1])))
    joined = JoinTable(plan, table, tuple(pairs), conjunction(tuple(rest)) if rest else None, how)
    if how == "semi":
        return joined
    kept = {*plan.schema.names, QUERY, *map(parameter_column, above)}
    return Project(joined, tuple(column for column in passthrough(joined.schema) if column[0] in kept))


def _gathered(node: Node, table: str) -> Node | None:
    """The same rows, once each for all queries that they are for; None if something is done to them for each query."""
    match node:
        case JoinTable(table=Project(input=TableScan(table=name)), how="inner") if name == table:
            return replace(node, how="gather")
        case Times(input=below):
            made = _gathered(below, table)
            return made if made is None else node.with_inputs((made,))
        case Project(input=below, columns=columns):
            made = _gathered(below, table)
            if made is None:
                return None
            nested = {field.name: field.type for field in made.schema if field.type != below.schema[field.name].type}
            if any(columns_of(expr) & nested.keys() and not isinstance(expr, Column) for _, expr in columns):
                return None
            kept = (
                (name, replace(expr, type=nested.get(expr.name, expr.type)) if isinstance(expr, Column) else expr)
                for name, expr in columns
            )
            return Project(made, tuple(kept))
    return None


def _equality(part: Expr) -> tuple[Expr, Expr] | None:
    """What equals a constant, and that constant, if a condition says no more than this."""
    if not (isinstance(part, Call) and part.fn == "=" and part.args[0].type == part.args[1].type):
        return None
    for mine, theirs in (part.args, part.args[::-1]):
        if columns_of(mine) and not _parameters_in(mine) and _parameters_in(theirs) and not columns_of(theirs):
            return mine, theirs
    return None


def _without_parameters(node: Join) -> tuple[Join, Expr]:
    """An inner join without what depends on constants, and that as a condition on its rows."""
    equal: list[Expr] = []
    pairs: list[tuple[Expr, Expr]] = []
    for mine, theirs in node.pairs:
        if _parameters_in(mine) or _parameters_in(theirs):
            equal.append(Call(BOOLEAN, "=", (mine, theirs)))
        else:
            pairs.append((mine, theirs))
    parts = () if node.residual is None else conjuncts(node.residual)
    asked = (*equal, *(part for part in parts if _parameters_in(part)))
    rest = tuple(part for part in parts if not _parameters_in(part))
    kept: Pairs = tuple(pairs)
    return replace(node, pairs=kept, residual=conjunction(rest) if rest else None), conjunction(asked)


def _without_asked_table(node: JoinTable) -> JoinTable:
    """A join with a stored table that is the same for all queries: conditions on its rows that depend on constants are
    conditions on pairs."""
    moved: list[Expr] = [Call(BOOLEAN, "=", pair) for pair in node.pairs if _parameters_in(pair[1])]
    pairs = tuple(pair for pair in node.pairs if not _parameters_in(pair[1]))
    table = node.table
    if parameters_of(table):
        over = table if isinstance(table, Project) else None
        below = table if over is None else over.input
        columns = passthrough(table.schema) if over is None else over.columns
        named: dict[str, Expr] = {
            expr.name: Column(expr.type, name) for name, expr in columns if isinstance(expr, Column)
        }
        if not isinstance(below, Filter) or _own_parameters(table) - _own_parameters(below):
            raise CannotShare(f"{table.label()} depends on constants")
        parts = conjuncts(below.predicate)
        asked = [part for part in parts if _parameters_in(part)]
        rest = tuple(part for part in parts if not _parameters_in(part))
        if parameters_of(below.input) or not all(columns_of(part) <= named.keys() for part in asked):
            raise CannotShare(f"{below.label()} depends on constants")
        moved += [substitute(part, named) for part in asked]
        kept = Filter(below.input, conjunction(rest)) if rest else below.input
        table = kept if over is None else over.with_inputs((kept,))
    if not moved:
        return node
    known = () if node.residual is None else conjuncts(node.residual)
    return replace(node, table=table, pairs=pairs, residual=conjunction((*known, *moved)))


def _with_reaches(node: Match, own: frozenset[str]) -> Search:
    """The search in which constants are values of the row at hand, as its columns are."""
    types = {part.name: part.type for part in expressions_in(node) if isinstance(part, Parameter)}
    reaches = tuple(Reach(parameter_column(name), parameter_column(name), types[name]) for name in sorted(own))
    parts = {part.name: _replaced(getattr(node.search, part.name), _settled_expr) for part in fields(node.search)}
    return replace(node.search, **{**parts, "reaches": (*parts["reaches"], *reaches)})


def _in_order(plan: Node, by: tuple[str, ...]) -> Node:
    """The columns that tell queries apart first: inputs of a union must agree."""
    rest = [name for name in plan.schema.names if name not in by and not name.startswith("$")]
    return Project(plan, tuple((name, Column(plan.schema[name].type, name)) for name in (*by, *rest)))


# -- expressions in nodes ----------------------------------------------------------------------------------------------


def _settled_expr(expr: Expr) -> Expr:
    return transform(
        expr, lambda part: Column(part.type, parameter_column(part.name)) if isinstance(part, Parameter) else part
    )


def _settled(node: Node) -> Node:
    """The operator with constants as columns of its input."""
    changed = {
        field.name: _replaced(value, _settled_expr)
        for field in fields(node)
        if not _has_nodes(value := getattr(node, field.name))
    }
    return replace(node, **{name: value for name, value in changed.items() if value is not getattr(node, name)})


def _replaced(value: Any, change: Callable[[Expr], Expr]) -> Any:
    """A value of plans with all its expressions changed; what has none stays as it is."""
    if isinstance(value, Expr):
        made: Any = change(value)
        return value if made == value else made
    if isinstance(value, tuple):
        made = tuple(_replaced(each, change) for each in value)
        return value if all(new is old for new, old in zip(made, value, strict=True)) else made
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        changed = {name: _replaced(part, change) for name, part in parts.items()}
        changed = {name: part for name, part in changed.items() if part is not parts[name]}
        return replace(value, **changed) if changed else value
    return value


def _has_nodes(value: Any) -> bool:
    return isinstance(value, Node) or (isinstance(value, tuple) and any(isinstance(each, Node) for each in value))


def _own_parameters(node: Node) -> frozenset[str]:
    return frozenset(part.name for part in expressions_in(node) if isinstance(part, Parameter))


def _lengths_of(node: Node) -> frozenset[str]:
    values = (getattr(node, field.name) for field in fields(node))
    own = (length for value in values if not _has_nodes(value) for length in values_in(value, RowLength))
    return frozenset().union(*(_parameters_in(length.of) for length in own))


def _parameters_in(expr: Expr) -> frozenset[str]:
    return frozenset(part.name for part in parts_of(expr) if isinstance(part, Parameter))


def expressions_in(node: Node) -> Iterator[Expr]:
    """All parts of all expressions of an operator, those of its inputs left out."""
    for field in fields(node):
        value = getattr(node, field.name)
        if not _has_nodes(value):
            for expr in values_in(value, Expr):
                yield from parts_of(expr)


_Found = TypeVar("_Found")


def values_in(value: Any, kind: type[_Found]) -> Iterator[_Found]:
    """The values of a kind that a value of plans is, or has in its parts."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from values_in(each, kind)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from values_in(getattr(value, field.name), kind)
