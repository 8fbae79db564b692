"""INSERT, UPDATE and DELETE inside an aggregate's body."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millstream.bind.programs.body import BodyBinding
from millstream.bind.programs.definition import RETURN, target_of
from millstream.bind.programs.expressions import BodyExpressions
from millstream.bind.programs.queries import Selected, bind_rows
from millstream.bind.scope import Scope, did_you_mean
from millstream.expressions import functions
from millstream.expressions.nodes import Call, Expr, Literal, columns_of, walk
from millstream.plan.programs.nodes import WINDOW, Delete, Insert, Rows, Statement, Update
from millstream.schema import Schema
from millstream.types import SqlType


def bind_statement(node: exp.Expr, body: BodyBinding) -> Statement:
    """A statement whose values have the types of the columns they are assigned to."""
    match node:
        case exp.Insert():
            return _insert(node, body)
        case exp.Update():
            return _update(node, body)
        case exp.Delete():
            return _delete(node, body)
    return body.context.fail(f"{node.key.upper()} is not allowed inside an aggregate", node)


def _insert(node: exp.Insert, body: BodyBinding) -> Insert:
    _refuse_clauses(node, body, {"this", "expression", "where"})
    table = target_of(node).name
    columns = _target_columns(node, body)
    values = node.expression
    if isinstance(values, exp.Values):
        where = _condition(node, BodyExpressions(body, (), "in VALUES"))
        selected = [_row(row, where, body) for row in values.expressions]
    else:
        selected = [bind_rows(branch, body) for branch in _branches(values, body)]
    sources = tuple(_fit(one, table, columns, body) for one in selected)
    return Insert(None if table.lower() == RETURN else body.name_of(table), sources)


def _target_columns(node: exp.Insert, body: BodyBinding) -> list[int]:
    """Which columns of the table the values are for, in their order."""
    schema = body.schema_of(target_of(node).name)
    if not isinstance(node.this, exp.Schema):
        return list(range(len(schema)))
    columns: list[int] = []
    for name in node.this.expressions:
        columns.append(_index(schema, name, target_of(node).name, body))
        if columns.count(columns[-1]) > 1:
            body.context.fail(f"column {name.name} is given twice", name)
    return columns


def _index(schema: Schema, node: exp.Expr, table: str, body: BodyBinding) -> int:
    if node.name not in schema:
        hint = did_you_mean(node.name, list(schema.names))
        body.context.fail(f"{table} has no column {node.name}", node, hint=hint)
    return schema.index(node.name)


def _row(node: exp.Expr, where: Expr | None, body: BodyBinding) -> Selected:
    parts = node.expressions if isinstance(node, exp.Tuple) else [node]
    expressions = BodyExpressions(body, (), "in VALUES")
    return Selected(Rows(tuple(expressions.bind(part) for part in parts), where=where), tuple(parts))


def _branches(node: exp.Expr, body: BodyBinding) -> list[exp.Expr]:
    """The queries of a UNION ALL."""
    while isinstance(node, exp.Subquery):
        node = node.this
    if isinstance(node, exp.Union) and not node.args.get("distinct"):
        _refuse_clauses(node, body, {"this", "expression", "distinct"})
        return [*_branches(node.this, body), *_branches(node.expression, body)]
    return [node]


def _fit(selected: Selected, table: str, columns: list[int], body: BodyBinding) -> Rows:
    """The rows with one value of the right type for every column of a table; those not named are NULL."""
    context, rows, types = body.context, selected.rows, selected.types
    schema = body.schema_of(table)
    if len(types) != len(columns):
        what = "the aggregate returns" if table.lower() == RETURN else f"{table} has"
        what = f"{what} {len(schema)} columns" if len(columns) == len(schema) else f"{len(columns)} columns are named"
        context.fail(f"{what}, got {len(types)} values", selected.nodes[-1])
    nodes = selected.nodes if selected.program is None else selected.nodes * len(types)
    if body.inferring:
        for i, type_, node in zip(columns, types, nodes, strict=True):
            body.observe(table, i, type_, node)
        return rows
    wanted = tuple(schema.fields[i].type for i in columns)
    for type_, target, node in zip(types, wanted, nodes, strict=True):
        if rows.distinct and type_ != target and not functions.widens(type_, target):
            context.fail(f"DISTINCT values of {type_} may be the same as {target}", node, hint=f"CAST to {target} here")
    if selected.program is not None:
        if columns != list(range(len(schema))):
            context.refuse(
                "INSERT inside an aggregate sets every column", nodes[0], hint="leave out the list of columns"
            )
        with context.blaming(nodes[0]):
            return selected.converted(wanted)
    cast = (_assigned(*each, body) for each in zip(rows.columns, wanted, nodes, strict=True))
    values = dict(zip(columns, cast, strict=True))
    return replace(rows, columns=tuple(values.get(i, Literal(field.type, None)) for i, field in enumerate(schema)))


def _assigned(expr: Expr, type_: SqlType, node: exp.Expr, body: BodyBinding) -> Expr:
    with body.context.blaming(node):
        return functions.cast(expr, type_)


def _update(node: exp.Update, body: BodyBinding) -> Update:
    _refuse_clauses(node, body, {"this", "expressions", "where"})
    range_, item = body.range_over(node.this)
    expressions = BodyExpressions(body, (Scope(body.context, (item,)),), "in SET")
    assignments: dict[str, Expr] = {}
    for assignment in node.expressions:
        if not isinstance(assignment, exp.EQ) or not isinstance(assignment.this, exp.Column):
            body.context.fail("SET takes column = value", assignment)
        i = _index(item.schema, assignment.this, range_.table, body)
        field = item.schema.fields[i]
        if field.name in assignments:
            body.context.fail(f"column {field.name} is given twice", assignment)
        value = expressions.bind(assignment.expression)
        if body.inferring:
            body.observe(range_.table, i, value.type, assignment)
        else:
            value = _assigned(value, field.type, assignment, body)
        assignments[field.name] = value
    return Update(range_, tuple(assignments.items()), _condition(node, expressions))


def _delete(node: exp.Delete, body: BodyBinding) -> Delete:
    _refuse_clauses(node, body, {"this", "where"})
    range_, item = body.range_over(node.this)
    expressions = BodyExpressions(body, (Scope(body.context, (item,)),), "in WHERE")
    where = _condition(node, expressions)
    return Delete(range_, where, range_.table == WINDOW and where is not None and _compares(where, range_.alias))


def _compares(where: Expr, alias: str) -> bool:
    """Whether a condition compares tuples of the window with the one that is worked on, which then is not meant: the
    papers' max deletes those that are less or equal."""
    for part in walk(where):
        if isinstance(part, Call) and part.fn in ("=", "<>", "<", "<=", ">", ">="):
            sides = [{name.partition(".")[0] for name in columns_of(side)} for side in part.args]
            for mine, other in (sides, sides[::-1]):
                if alias in mine and any(name.startswith(":") for name in other):
                    return True
    return False


def _condition(node: exp.Expr, expressions: BodyExpressions) -> Expr | None:
    where = node.args.get("where")
    return None if where is None else expressions.elsewhere("in WHERE").condition(where.this)


def _refuse_clauses(node: exp.Expr, body: BodyBinding, known: set[str]) -> None:
    for key, clause in node.args.items():
        if key not in known and clause:
            word = key.strip("_").upper()
            at = clause if isinstance(clause, exp.Expr) else node
            body.context.refuse(f"{word} is not allowed inside an aggregate", at)
