"""Stored tables in a plan: filters and projections over one become part of how it is read."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.nodes import conjunction, substitute
from millstream.physical.nodes import StoredTable
from millstream.plan import nodes as P


def stored_table(node: P.Node) -> StoredTable:
    """The filters and projections over a stored table, folded into how it is read."""
    match node:
        case P.TableScan(table=table):
            return StoredTable(node.schema, (table,), None, P.passthrough(node.schema))
        case P.TableQuery(sql=sql, tables=tables):
            return StoredTable(node.schema, tables, None, P.passthrough(node.schema), sql)
        case P.Filter(input=below, predicate=predicate):
            inner = stored_table(below)
            own = substitute(predicate, dict(inner.columns))
            both = own if inner.predicate is None else conjunction((inner.predicate, own))
            return replace(inner, predicate=both)
        case P.Project(input=below, columns=columns):
            inner = stored_table(below)
            known = dict(inner.columns)
            return replace(
                inner,
                schema=node.schema,
                columns=tuple((name, substitute(expr, known)) for name, expr in columns),
            )
    raise NotImplementedError(f"{node.label()} on a stored table")
