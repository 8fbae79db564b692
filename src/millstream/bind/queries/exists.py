"""[NOT] EXISTS and IN between streams that have no windows in FROM: they become semi and anti joins.

Rows of window tables meet within the same window, others when their times are near each other; joins know both.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.queries.from_clause import bind_entry
from millstream.bind.reads import conjuncts_of, reads_only
from millstream.plan import nodes as P
from millstream.schema import Schema

_MORE = ("joins", "group", "having", "distinct", "limit", "offset", "qualify", "with_", "windows", "stream_of")
_ALIAS = "$exists"


def with_semi_joins(select: exp.Select, context: Context) -> exp.Select:
    """The SELECT over events with joins in place of those conditions that ask other events; as it is if some query in
    it is of another kind."""
    where = select.args.get("where")
    if where is None or any(not reads_only(query, context) for query in _queries(*select.expressions)):
        return select
    kept: list[exp.Expr] = []
    joins: list[exp.Join] = []
    for part in conjuncts_of(where.this):
        if all(reads_only(query, context) for query in _queries(part)):
            kept.append(part)
            continue
        join = _join(part, f"{_ALIAS}{len(joins) + 1}", context)
        if join is None:
            return select
        joins.append(join)
    if not joins:
        return select
    whole = select.copy()
    whole.set("where", exp.Where(this=exp.and_(*kept)) if kept else None)
    whole.set("joins", [*(whole.args.get("joins") or []), *joins])
    return whole


def _join(condition: exp.Expr, alias: str, context: Context) -> exp.Join | None:
    """The join that a condition means; None if it asks something else than events of one entry of FROM."""
    negated, inside = False, condition
    while isinstance(inside, exp.Not | exp.Paren):
        negated ^= isinstance(inside, exp.Not)
        inside = inside.this
    value: exp.Expr | None = None
    if isinstance(inside, exp.Exists):
        query = inside.this
    elif isinstance(inside, exp.In) and inside.args.get("query") is not None and not negated:
        query, value = inside.args["query"], inside.this
    else:
        return None
    while isinstance(query, exp.Subquery) and not query.args.get("with_"):
        query = query.this
    if not isinstance(query, exp.Select) or any(query.args.get(key) for key in _MORE) or query.find(exp.AggFunc):
        return None
    from_ = query.args.get("from_")
    if from_ is None or (value is not None and (len(query.expressions) != 1 or isinstance(value, exp.Tuple))):
        return None
    entry = bind_entry(from_.this, context)
    if entry.plan.kind is not P.Kind.EVENTS:
        return None
    of_entry = _Renaming(entry.alias, entry.plan.schema, alias)
    where = query.args.get("where")
    parts = [] if where is None else [of_entry.renamed(where.this)]
    if value is not None:
        listed = query.expressions[0]
        parts.append(exp.EQ(this=value.copy(), expression=of_entry.renamed(listed.unalias())))
    rows = exp.Select(expressions=[exp.Star()], from_=from_.copy())
    item = exp.Subquery(this=rows, alias=of_entry.alias_node())
    item.meta.update(query.meta)
    on = exp.and_(*parts) if parts else exp.true()
    join = exp.Join(this=item, kind="ANTI" if negated else "SEMI", on=on)
    join.meta.update(condition.meta)
    return join


class _Renaming:
    """Gives the columns of an inner query names that no others have; inner names hide outer ones."""

    def __init__(self, own: str, schema: Schema, alias: str) -> None:
        self._own = own.lower()
        self._schema = schema
        self._alias = alias

    def alias_node(self) -> exp.TableAlias:
        names = [exp.to_identifier(f"{self._alias} {field.name}", quoted=True) for field in self._schema]
        return exp.TableAlias(this=exp.to_identifier(self._alias, quoted=True), columns=names)

    def renamed(self, node: exp.Expr) -> exp.Expr:
        node = node.copy()
        for column in list(node.find_all(exp.Column)):
            if column.table.lower() == self._own or (not column.table and column.name in self._schema):
                if column.name in self._schema:
                    name = f"{self._alias} {self._schema[column.name].name}"
                    column.set("this", exp.to_identifier(name, quoted=True))
                column.set("table", exp.to_identifier(self._alias, quoted=True))
        return node


def _queries(*nodes: exp.Expr) -> Iterator[exp.Expr]:
    """The queries in expressions, without those inside of them."""
    for node in nodes:
        for part in node.walk(prune=lambda each: isinstance(each, exp.Query)):
            if isinstance(part, exp.Query):
                yield part
