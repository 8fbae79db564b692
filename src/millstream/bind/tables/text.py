"""Statements as SQL for the table store."""

from __future__ import annotations

from sqlglot import exp


def store_sql(node: exp.Expr) -> str:
    """A statement as DuckDB takes it."""
    return str(node.transform(_in_words_of_store).sql(dialect="duckdb"))


def _in_words_of_store(node: exp.Expr) -> exp.Expr:
    # `a[1]`, `m['key']` and `s['name']` have no common name there
    if isinstance(node, exp.Anonymous) and node.name.lower() == "list_extract" and len(node.expressions) == 2:
        return exp.Bracket(this=node.expressions[0], expressions=[node.expressions[1]], offset=1)
    return node
