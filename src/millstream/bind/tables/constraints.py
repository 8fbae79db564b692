"""Constraints of declared columns: stored tables keep them, streams have none."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.reads import require_known
from millstream.bind.scope import did_you_mean
from millstream.schema import Schema
from millstream.sql import to_sql

_KEPT = (
    exp.NotNullColumnConstraint, exp.DefaultColumnConstraint, exp.CheckColumnConstraint, exp.PrimaryKeyColumnConstraint,
    exp.UniqueColumnConstraint, exp.PrimaryKey,
)  # fmt: skip
Clauses = tuple[tuple[str, str], ...]
"""pairs of a column, or "" for the whole table, and a clause in the table store's SQL"""


_NO_KEY = "if you know that no two rows have the same key, write after the columns: PRIMARY KEY (column) NOT ENFORCED"


def refuse_constraints(columns: list[exp.ColumnDef], context: Context) -> None:
    """Rows of a stream are not checked, so a declaration that asks for it is an error."""
    for column in columns:
        for constraint in column.args.get("constraints") or []:
            context.refuse(
                f"{_word(constraint)} is not supported on a stream",
                column,
                detail="rows of a stream are not checked against constraints",
                hint=_NO_KEY
                if _word(constraint) == "PRIMARY KEY"
                else "filter or fill the rows in a query: WHERE column IS NOT NULL, coalesce(column, value)",
            )


def key_of(node: exp.PrimaryKey, schema: Schema, context: Context) -> tuple[str, ...]:
    """The columns of a stream's PRIMARY KEY … NOT ENFORCED, in which its rows differ."""
    if "NOT ENFORCED" not in [str(option).upper() for option in node.args.get("options") or []]:
        context.refuse(
            "PRIMARY KEY is not supported on a stream",
            node,
            detail="rows of a stream are not checked against constraints",
            hint=_NO_KEY,
        )
    for column in node.expressions:
        if column.name not in schema:
            context.fail(f"no column {column.name}", column, hint=did_you_mean(column.name, list(schema.names)))
    return tuple(schema[column.name].name for column in node.expressions)


def constraints_of(elements: list[exp.Expr], schema: Schema, context: Context) -> Clauses:
    """What a table's declaration says of its rows, beyond names and types."""
    clauses: list[tuple[str, str]] = []
    for element in elements:
        if isinstance(element, exp.ColumnDef):
            for constraint in element.args.get("constraints") or []:
                clauses.append((schema[element.name].name, _clause(constraint, context)))
            continue
        named = isinstance(element, exp.Constraint)
        for part in element.expressions if named else [element]:
            clauses.append(("", _clause(part, context)))
    return tuple(clauses)


def _clause(node: exp.Expr, context: Context) -> str:
    kind = node.args.get("kind") if isinstance(node, exp.ColumnConstraint) else node
    if not isinstance(kind, _KEPT):
        context.refuse(
            f"{_word(node)} is not supported",
            node,
            hint="tables support PRIMARY KEY, UNIQUE, NOT NULL, DEFAULT and CHECK",
        )
    query = node.find(exp.Query)
    if query is not None:
        context.refuse("a query is not allowed in a constraint", query)
    require_known(node, context)
    return kind.sql(dialect="duckdb")


def _word(node: exp.Expr) -> str:
    """The words of SQL that a constraint begins with."""
    kind = node.args.get("kind") if isinstance(node, exp.ColumnConstraint) else node
    words: dict[type, str] = {
        exp.Reference: "REFERENCES", exp.ForeignKey: "FOREIGN KEY", exp.NotNullColumnConstraint: "NOT NULL",
        exp.PrimaryKeyColumnConstraint: "PRIMARY KEY",
    }  # fmt: skip
    return words.get(type(kind)) or to_sql(kind or node).split("(")[0].split(" ")[0].upper()
