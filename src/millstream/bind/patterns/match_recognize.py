"""MATCH_RECOGNIZE → a search, what it needs computed before, and what is made of its matches."""

from __future__ import annotations

from dataclasses import field, replace

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.patterns.conditions import condition_of
from millstream.bind.patterns.expressions import MatchExpressions
from millstream.bind.patterns.names import Variables, bind_pattern
from millstream.bind.patterns.order import arranged, require_events
from millstream.bind.patterns.queries import RowQueries
from millstream.bind.patterns.values import MatchValues
from millstream.bind.scope import Item, Scope, did_you_mean
from millstream.catalog import Clock
from millstream.expressions.nodes import Column, Expr, columns_of, substitute
from millstream.plan import nodes as P
from millstream.plan.patterns import search as M
from millstream.plan.patterns.expressions import Check, Excluded, Pattern, walk_pattern
from millstream.plan.ties import Ties
from millstream.records import dataclass
from millstream.schema import unique_names
from millstream.sql import duration_us, to_sql
from millstream.sql import patterns as S
from millstream.types import BIGINT

_LONGEST = 2**60


def bind_match_recognize(node: S.MatchRecognize, rows: P.Node, alias: str, context: Context) -> P.Node:
    """The matches of a pattern in the rows of an entry of FROM."""
    require_events(rows, "MATCH_RECOGNIZE", node.this, context)
    order = [] if node.order is None else node.order.expressions
    found = arranged(rows, node.partition, order, alias, context)
    rows, keys = found.rows, found.keys
    given = _given(node)
    search = SearchBinder(node, rows, alias, context, MatchValues.beside(rows))
    if given.unmatched and any(isinstance(part, Excluded) for part in walk_pattern(search.pattern)):
        context.fail(
            "WITH UNMATCHED ROWS and {- -} do not go together",
            node.pattern,
            detail="an excluded row is neither matched nor unmatched",
            hint="leave one of them out",
        )
    measures = search.measures()
    if given.unmatched:
        measures = [(name, search.values.of_match(expr)) for name, expr in measures]
    outputs: list[tuple[str, Expr]] = [(key, Column(rows.schema[key].type, key)) for key in keys]
    if given.rows != "one":
        outputs += [(name, Column(rows.schema[name].type, name)) for name in found.ordered if name not in keys]
        taken = {*(name for name, _ in outputs), *found.hidden}
        others = [field for field in rows.schema if field.name not in taken]
        outputs += [*measures, *((field.name, Column(field.type, field.name)) for field in others)]
    else:
        outputs += measures
    _check_names(node, outputs, measures, context)
    match = search.build(keys, given, [expr for _, expr in measures])
    if not outputs:
        context.fail("the match has no output columns", node, hint="add MEASURES … AS …, or PARTITION BY")
    names = unique_names(name for name, _ in outputs)
    return P.Project(match, tuple(zip(names, (expr for _, expr in outputs), strict=True)))


@dataclass
class SearchBinder:
    """Binds the clauses that all row patterns have in common."""

    node: S.Matching
    rows: P.Node
    alias: str
    context: Context
    values: MatchValues
    variables: Variables = field(init=False)
    pattern: Pattern = field(init=False)

    def __post_init__(self) -> None:
        self.variables = Variables(self.context)
        self.pattern = bind_pattern(self.node.pattern, self.variables)
        self.variables.add_subsets(self.node.subsets)
        self.scope = Scope(self.context, (Item(self.alias, self.rows.schema),))
        self.queries = RowQueries(self.context, self.scope, self.rows, self.variables, self.values.prefix)
        self.within = self._within()

    def expressions(self, clause: str) -> MatchExpressions:
        """What binds the expressions of MEASURES or DEFINE."""
        times = sorted(self.context.time_columns(self.rows))
        time = Column(self.rows.schema[times[0]].type, times[0]) if times else None
        timeouts = self.node.within is not None and self.node.within.timeouts
        values, queries = self.values, self.queries
        return MatchExpressions(self.context, self.scope, self.variables, values, clause, queries, time, timeouts)

    def measures(self) -> list[tuple[str, Expr]]:
        """What MEASURES asks for, by name."""
        expressions = self.expressions("MEASURES")
        return [(measure.alias, expressions.bind(measure.this)) for measure in self.node.measures]

    def build(self, keys: tuple[str, ...], given: M.Given, told: list[Expr]) -> P.Node:
        """The search over its rows, with all that `told` reads of a match."""
        conditions = self._conditions()
        search = replace(
            search_of(self.values, keys, self.pattern, conditions, given, told),
            skip=self._skip(),
            within=self.within,
            timeouts=self.node.within is not None and self.node.within.timeouts,
        )
        return finished(search, self.values, self.queries.joined(self.rows), self.context)

    def _conditions(self) -> tuple[tuple[str, Expr], ...]:
        expressions = self.expressions("DEFINE")
        found: dict[str, Expr | None] = {}
        for definition in self.node.definitions:
            name = definition.this.name.lower()
            if name not in self.variables.names:
                self.context.fail(
                    f"{definition.this.name} is not in the pattern",
                    definition.this,
                    hint="a subset is the rows of its variables: define those"
                    if name in self.variables.subsets
                    else did_you_mean(definition.this.name, list(self.variables.names.values())),
                )
            variable = self.variables.names[name]
            if variable in found:
                self.context.fail(f"{definition.this.name} is defined twice", definition.this, hint="join both by AND")
            condition = expressions.condition(definition.expression)
            found[variable] = condition_of(variable, condition, self.values)
        return tuple((variable, condition) for variable, condition in found.items() if condition is not None)

    def _skip(self) -> M.Skip:
        skip = self.node.skip
        match None if skip is None else skip.to:
            case None | "PAST LAST ROW":
                return M.Skip()
            case "NEXT ROW":
                return M.Skip("next")
        assert skip is not None
        return M.Skip("first" if skip.to == "FIRST" else "last", self.variables.find(skip.this))

    def _within(self) -> int | None:
        within = self.node.within
        return None if within is None else length_of(within.this, self.rows, self.context)


def search_of(
    values: MatchValues, keys: tuple[str, ...], pattern: Pattern, conditions: tuple[tuple[str, Expr], ...],
    given: M.Given, told: list[Expr],
) -> M.Search:  # fmt: skip
    """The search that tells all that `told` reads of a match."""
    asked = dict.fromkeys(name for expr in told for name in sorted(columns_of(expr)))
    columns = tuple(name for name in asked if values.is_of_match(name))
    if given.rows == "one" and not keys and not columns:
        # a row has at least one column
        columns = (M.TIMED_OUT,)
    checks = [part.condition for part in walk_pattern(pattern) if isinstance(part, Check)]
    used = {*columns, *(name for expr in (*(c for _, c in conditions), *checks) for name in columns_of(expr))}
    reaches, summaries = values.asked(used)
    return M.Search(keys, pattern, conditions, reaches, summaries, columns, given)


def finished(search: M.Search, values: MatchValues, rows: P.Node, context: Context) -> P.Node:
    """The search over rows that have the columns it reads."""
    made = tuple((name, expr) for expr, name in values.added.items() if name in search.read)
    search = replace(search, time=context.time_type(rows), made=made, holds=_holds(rows))
    return M.Match(values.prepared(rows, search.read), search)


def _holds(rows: P.Node) -> Expr | None:
    """What a filter has made true of all rows."""
    match rows:
        case P.Filter(predicate=predicate):
            return predicate
        case Ties(input=below) | P.JoinTable(input=below):
            return _holds(below)
        case P.Project(input=below, columns=columns):
            known = _holds(below)
            names = {expr.name: Column(expr.type, name) for name, expr in columns if isinstance(expr, Column)}
            return substitute(known, dict(names)) if known is not None and columns_of(known) <= names.keys() else None
    return None


def length_of(node: exp.Expr, rows: P.Node, context: Context) -> int:
    """How long WITHIN is."""
    if Clock.LATENT in context.clocks_of(rows):
        context.refuse(
            "WITHIN needs a stream with times",
            node,
            detail="this stream was declared without ORDER BY, so its rows have an order but no time",
            hint="declare it with ORDER BY column or ORDER BY current_time, or count rows in a condition",
        )
    by_number = context.time_type(rows) == BIGINT
    length = duration_us(node)
    number = int(node.name) if isinstance(node, exp.Literal) and node.name.isdigit() else None
    if by_number and number is None:
        context.fail("the stream is ordered by a number, so WITHIN takes a number", node, hint="leave the unit out")
    if not by_number and number is not None:
        context.fail("WITHIN needs a unit of time", node, hint=f"WITHIN INTERVAL '{number}' SECOND")
    if not by_number and length is None:
        context.fail(f"{to_sql(node)} has no fixed length", node, hint="use weeks, days or smaller units")
    span = number if by_number else length
    assert span is not None
    if not 0 < span < _LONGEST:
        context.fail("WITHIN takes a positive duration" if span <= 0 else "the duration of WITHIN is too long", node)
    return span


def _given(node: S.MatchRecognize) -> M.Given:
    rows = node.rows
    if rows is None or not rows.all:
        return M.Given("one")
    return M.Given("all", empty=not rows.omit, unmatched=rows.unmatched)


def _check_names(
    node: S.MatchRecognize, outputs: list[tuple[str, Expr]], measures: list[tuple[str, Expr]], context: Context
) -> None:
    """Refuse measures that are called as other columns of the result."""
    names = [name.lower() for name, _ in outputs]
    for measure, (name, _) in reversed(list(zip(node.measures, measures, strict=True))):
        if names.count(name.lower()) > 1:
            context.fail(f"two columns are named {name}", measure, hint="rename the measure with AS")
