"""`FROM s AS (X, *Y)`: a search whose conditions are the parts of WHERE, each tested as early as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.patterns.conditions import condition_of, divided
from millstream.bind.patterns.match_recognize import finished, search_of
from millstream.bind.patterns.names import Variables
from millstream.bind.patterns.order import arranged, require_events
from millstream.bind.patterns.outside import entries_of
from millstream.bind.patterns.sequence_expressions import SequenceExpressions
from millstream.bind.patterns.values import MatchValues
from millstream.bind.queries.joins import FromEntry, prefixed
from millstream.bind.queries.outputs import Bound, deliver, outputs_of
from millstream.bind.queries.stars import star_of
from millstream.bind.scope import Item, Scope
from millstream.expressions.nodes import Expr, conjunction
from millstream.plan import nodes as P
from millstream.plan.patterns import search as M
from millstream.plan.patterns.expressions import Check, Pattern, Repeat, Sequence, Variable
from millstream.records import dataclass
from millstream.sql.patterns import SequenceMatch

Bind = Callable[[exp.Expr], FromEntry]

_AROUND = "FROM (SELECT … FROM s AS (X, *Y) WHERE …)"
_REFUSED = {
    "group": ("GROUP BY", f"group the matches in a window: SELECT … {_AROUND} WINDOW(RANGE …) GROUP BY …"),
    "having": ("HAVING", "write conditions on a match in WHERE, such as count(*Y) > 3"),
    "distinct": ("DISTINCT", f"use a window over the matches: SELECT DISTINCT … {_AROUND} WINDOW(RANGE …)"),
    "windows": ("WINDOW", f"use it outside the sequence: SELECT … OVER w {_AROUND} WINDOW w AS (…)"),
    "qualify": ("QUALIFY", "write conditions on a match in WHERE"),
    "limit": ("LIMIT", "a continuous query has no last match: stop the query when you have enough"),
    "offset": ("OFFSET", "a continuous query has no last match: leave it out"),
}
"""clauses that say nothing of a match, and what to write instead"""


@dataclass
class SequenceBinder:
    """Binds a SELECT over a sequence; `source` binds an entry of FROM."""

    select: exp.Select
    node: SequenceMatch
    context: Context
    source: Bind
    values: MatchValues = field(init=False)

    def build(self) -> Bound:
        """The plan of the whole SELECT."""
        self._refuse_clauses()
        rows = self.source(self.node.this)
        require_events(rows.plan, "a sequence", self.node.this, self.context)
        clauses = self.node.partition, self.node.sequence
        found = arranged(rows.plan, *clauses, rows.alias, self.context, "SEQUENCE BY")
        plan, keys = found.rows, found.keys
        self.values = MatchValues.beside(plan)
        tables = self._tables()
        variables = Variables(self.context)
        stars = {variables.add(node.this): node.star for node in self.node.variables}
        self._check_names(variables, tables)
        items = tuple(source.item(source.prefix(place)) for place, source in enumerate(tables))
        expressions = SequenceExpressions(self.context, rows.alias, found, items, variables, self.values, stars)
        above, conditions, checks = self._distributed(expressions)
        expressions.is_above = True
        outputs = [output for part in self.select.expressions for output in self._outputs(part, expressions, items)]
        pattern = _pattern(stars, checks)
        told = [*(expr for _, expr in outputs), *above]
        search = search_of(self.values, keys, pattern, tuple(conditions.items()), M.Given("one"), told)
        search = replace(search, whole_runs=next(iter(stars.values())))
        match: P.Node = finished(search, self.values, expressions.queries.joined(plan), self.context)
        for source, item in zip(tables, items, strict=True):
            match = P.JoinTable(match, prefixed(source, item), ())
        return deliver(P.Filter(match, conjunction(tuple(above))) if above else match, outputs)

    # -- FROM and SELECT -------------------------------------------------------------------------------------------

    def _tables(self) -> list[FromEntry]:
        found: list[FromEntry] = []
        for node, join in entries_of(self.select):
            if node is self.node:
                continue
            source = replace(self.source(node), join=join)
            if source.plan.kind is not P.Kind.TABLE:
                self.context.refuse(
                    "only stored tables may be joined with a sequence in FROM",
                    node,
                    hint="name the sequence with CREATE STREAM … AS SELECT …, and join that stream",
                )
            if join is not None and (join.args.get("side") or join.args.get("method") or join.args.get("using")):
                self.context.refuse("this join with a sequence is not supported", join, hint="use JOIN … ON")
            found.append(source)
        return found

    def _check_names(self, variables: Variables, tables: list[FromEntry]) -> None:
        if len(variables.names) < len(self.node.variables):
            names = [node.this.name.lower() for node in self.node.variables]
            twice = next(node for node, name in zip(self.node.variables, names, strict=True) if names.count(name) > 1)
            self.context.fail(f"{twice.this.name} appears twice in the sequence", twice)
        for source in tables:
            if variables.knows(source.alias):
                self.context.fail(
                    f"{source.alias} is a variable of the sequence", source.node, hint="use another alias"
                )

    def _refuse_clauses(self) -> None:
        for key, (word, hint) in _REFUSED.items():
            if clause := self.select.args.get(key):
                place = self.select if key == "distinct" else clause[0] if isinstance(clause, list) else clause
                self.context.refuse(f"{word} is not allowed together with a sequence", place, hint=hint)
        if (order := self.select.args.get("order")) is not None:
            self.context.refuse("matches are emitted in time order", order, hint="leave ORDER BY out")

    def _outputs(
        self, node: exp.Expr, expressions: SequenceExpressions, items: tuple[Item, ...]
    ) -> list[tuple[str, Expr]]:
        table = node.table if isinstance(node, exp.Column) else ""
        if star_of(node) is not None and not any(item.alias.lower() == table.lower() for item in items):
            self.context.refuse(
                "* of a sequence is not supported", node, hint="name the columns: X.price, LAST(Y).price, …"
            )
        return outputs_of(node, Scope(self.context, items), expressions)

    # -- WHERE -----------------------------------------------------------------------------------------------------

    def _distributed(self, expressions: SequenceExpressions) -> tuple[list[Expr], dict[str, Expr], dict[str, Expr]]:
        """The parts of WHERE: what is asked of whole matches, of rows by variable, and of complete stars."""
        above: list[Expr] = []
        rows: dict[str, list[Expr]] = {}
        checks: dict[str, list[Expr]] = {}
        wanted = [join.args.get("on") for _, join in entries_of(self.select) if join is not None]
        where = self.select.args.get("where")
        for node in [*(on for on in wanted if on is not None), *([] if where is None else [where.this])]:
            for part in _conjuncts(node):
                condition = expressions.part(part)
                latest = expressions.latest
                if latest is None or expressions.reads_tables:
                    above.append(expressions.part(part, is_above=True))
                elif latest in expressions.complete:
                    checks.setdefault(latest, []).append(condition)
                else:
                    rows.setdefault(latest, []).append(condition)
        tested = {name: condition_of(name, conjunction(tuple(parts)), self.values) for name, parts in rows.items()}
        asked = {name: divided(conjunction(tuple(parts)), self.values) for name, parts in checks.items()}
        return above, _known(tested), _known(asked)


def _pattern(stars: dict[str, bool], checks: dict[str, Expr]) -> Pattern:
    items: list[Pattern] = []
    for name, star in stars.items():
        variable = Variable(name)
        items.append(Repeat(variable, 1, None, "possessive") if star else variable)
        if name in checks:
            items.append(Check(checks[name]))
    return items[0] if len(items) == 1 else Sequence(tuple(items))


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Paren):
        yield from _conjuncts(node.this)
    elif isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    else:
        yield node


def _known(conditions: dict[str, Expr | None]) -> dict[str, Expr]:
    return {name: condition for name, condition in conditions.items() if condition is not None}
