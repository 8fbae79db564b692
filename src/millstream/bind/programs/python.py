"""An aggregate written in Python → a program whose statements call it."""

from __future__ import annotations

from collections.abc import Callable

from millstream.catalog import AggregateDef
from millstream.expressions.nodes import Column, Literal
from millstream.expressions.python_calls import PythonCode
from millstream.plan.programs.nodes import (
    WINDOW,
    Insert,
    LocalTable,
    Program,
    Range,
    Rows,
    Statement,
    Update,
    parameter,
)
from millstream.plan.programs.python import OBJECT, Instance, Method, Vectorised
from millstream.schema import Field, Schema
from millstream.types import BLOB, BOOLEAN

_TUPLES = "$tuples"
_STATE = "object"


def python_program(definition: AggregateDef, parameters: Schema) -> Program:
    """The program of a definition for arguments of these types."""
    code = definition.python
    assert code is not None
    result = Schema(tuple(Field(name, type_) for name, type_ in definition.returns if type_ is not None))
    make = _of_class if isinstance(code.made, type) else _of_function
    return make(definition, code, parameters, result)


def _of_class(definition: AggregateDef, code: PythonCode, parameters: Schema, result: Schema) -> Program:
    values = tuple(parameter(field.type, field.name) for field in parameters)
    aliases: list[str] = []

    def call(state: str, *, returns: bool, given: bool = True) -> Statement:
        aliases.append(OBJECT if not aliases else f"{OBJECT}#{len(aliases) + 1}")
        range_ = Range(aliases[-1], OBJECT)
        target, args = Column(BLOB, f"{range_.alias}.{_STATE}"), values if given else ()
        if not returns:
            return Update(range_, ((_STATE, Method(BLOB, code, state, target, args)),))
        columns = tuple(
            Method(field.type, code, state, target, args, result, i, definition.one_row)
            for i, field in enumerate(result)
        )
        # WHERE TRUE: how many rows there are cannot be told from the statement
        where = None if definition.one_row else Literal(BOOLEAN, True)
        return Insert(None, (Rows(columns, (range_,), where),))

    ends = has_state(code, "terminate")
    early = not (definition.one_row and ends)
    begin = Insert(OBJECT, (Rows((Instance(BLOB, code),)),))
    return Program(
        name=definition.name,
        parameters=parameters,
        result=result,
        tables=(LocalTable(OBJECT, Schema((Field(_STATE, BLOB),))),),
        window=_window(parameters) if definition.window else None,
        initialize=(begin, call("initialize", returns=early)),
        iterate=(call("iterate", returns=early),),
        expire=(call("expire", returns=not definition.one_row),) if has_state(code, "expire") else (),
        terminate=(call("terminate", returns=True, given=False),) if ends else (),
    )


def _of_function(definition: AggregateDef, code: PythonCode, parameters: Schema, result: Schema) -> Program:
    table = _window(parameters) if definition.window else LocalTable(_TUPLES, _window(parameters).schema)
    columns = tuple(Column(field.type, f"{table.name}.{field.name}") for field in table.schema)
    whole = Vectorised(result.fields[0].type, f"{code}", columns, code=code)
    answer = Insert(None, (Rows((whole,), (Range(table.name, table.name),)),))
    keep = Insert(_TUPLES, (Rows(tuple(parameter(field.type, field.name) for field in parameters)),))
    make: Callable[..., Program] = Program
    if definition.window:
        return make(definition.name, parameters, result, (), table, (answer,), (answer,))
    return make(definition.name, parameters, result, (table,), None, (keep,), (keep,), terminate=(answer,))


def has_state(code: PythonCode, state: str) -> bool:
    return callable(getattr(code.made, state, None))


def _window(parameters: Schema) -> LocalTable:
    return LocalTable(WINDOW, Schema(tuple(Field(field.name, field.type) for field in parameters)))
