"""An aggregate's definition, for arguments of certain types → a program."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.programs.body import BodyBinding, Columns, Conflict
from millstream.bind.programs.definition import RETURN, declared, definition_of, statements_of
from millstream.bind.programs.python import python_program
from millstream.bind.programs.statements import bind_statement
from millstream.catalog import AggregateDef, aggregate_use
from millstream.errors import BindError
from millstream.plan.programs.nodes import WINDOW, LocalTable, Program, Statement
from millstream.schema import Field, Schema
from millstream.sql.nodes import CreateAggregate
from millstream.types import NULL, SqlType

MAX_PASSES = 60
"""How often types may widen: some more than a DECIMAL can gain digits."""


def define_aggregate(node: CreateAggregate, context: Context) -> AggregateDef:
    """The definition that a statement makes, found to be in order as far as the types are known."""
    definition = definition_of(node, context)
    types = tuple(type_ for _, type_ in definition.parameters if type_ is not None)
    if len(types) == len(definition.parameters):
        bind_program(definition, types, context)
    return definition


def bind_program(definition: AggregateDef, argument_types: tuple[SqlType, ...], context: Context) -> Program:
    """The program of an aggregate for a call with arguments of these types.

    The caller casts the arguments to the types of `parameters`. Errors in the definition underline its own text; an
    error in the call has no place yet. The context notes what was used.
    """
    return _bind(definition, argument_types, context, ())


def describe_blocking(program: Program) -> str:
    """Why a program without a window cannot run on a stream, if it is blocking."""
    return f"TERMINATE of {program.name} runs after the last row, and a stream has no last row"


class _Binding:
    """One binding of a definition; `chain` are the definitions whose bodies lead to this one."""

    def __init__(
        self, definition: AggregateDef, types: tuple[SqlType, ...], caller: Context, chain: tuple[AggregateDef, ...]
    ) -> None:
        assert isinstance(definition.body, CreateAggregate)
        self.definition = definition
        self.body: CreateAggregate = definition.body
        self.caller = caller
        self.context = Context(caller.catalog, definition.sql, uses=caller.uses)
        self.chain = (*chain, definition)
        self.parameters = _parameters(definition, types, caller)
        self.window = self._window()
        self.tables = dict(self._columns())

    def program(self) -> Program:
        self.caller.uses.add(aggregate_use(self.definition.name))
        self._infer()
        body = self._new_body(inferring=False)
        states: dict[str, tuple[Statement, ...]] = {}
        for body.state in ("initialize", "iterate", "expire", "terminate"):
            states[body.state] = tuple(bind_statement(each, body) for each in self.body.state(body.state) or [])
        self._check_typed()
        return Program(
            name=self.definition.name,
            parameters=self.parameters,
            result=self.tables[RETURN].schema,
            tables=tuple(
                LocalTable(table.name, self.tables[table.name.lower()].schema)
                for table in self.body.tables
                if table.name.lower() != WINDOW
            ),
            window=self.window,
            initialize=states["initialize"],
            iterate=states["iterate"],
            expire=states["expire"],
            terminate=states["terminate"],
            algebraic=self.definition.algebraic,
        )

    def _window(self) -> LocalTable | None:
        table = next((table for table in self.body.tables if table.name.lower() == WINDOW), None)
        if table is None:
            return None
        fields: list[Field] = []
        columns = declared(table.columns, self.context)
        for (name, type_), parameter, node in zip(columns, self.parameters, table.columns, strict=True):
            if type_ is not None and _kind(type_) != _kind(parameter.type):
                self.context.fail(
                    f"inwindow holds the arguments, and {parameter.name} is {parameter.type}",
                    node,
                    hint="leave the type out, or declare the same",
                )
            fields.append(Field(name, parameter.type))
        return LocalTable(WINDOW, Schema(tuple(fields)))

    def _columns(self) -> Iterator[tuple[str, Columns]]:
        groups = [(RETURN, self.body.returns)]
        groups += [(table.name, table.columns) for table in self.body.tables if table.name.lower() != WINDOW]
        for table, nodes in groups:
            columns = declared(nodes, self.context)
            names = tuple(name for name, _ in columns)
            types = [type_ or NULL for _, type_ in columns]
            yield table.lower(), Columns(table, names, types, tuple(type_ is not None for _, type_ in columns), nodes)

    def _infer(self) -> None:
        """Give the columns without a declared type the common type of the values they are given."""
        if all(all(columns.fixed) for columns in self.tables.values()):
            return
        for _ in range(MAX_PASSES):
            body = self._new_body(inferring=True)
            for statement in statements_of(self.body):
                try:
                    bind_statement(statement, body)
                except Conflict:
                    raise
                except BindError:
                    # it may lack a type that a later statement gives; if not, binding it in earnest tells what is wrong
                    continue
            if not body.changed:
                return
        self.context.fail(
            f"the column types of {self.definition.name}'s tables cannot be inferred",
            self.body.this,
            hint="declare them",
        )

    def _check_typed(self) -> None:
        for columns in self.tables.values():
            for name, type_, node in zip(columns.names, columns.types, columns.nodes, strict=True):
                if type_ == NULL:
                    self.context.fail(
                        f"column {name} of {columns.title} has no type",
                        node,
                        detail="no type is declared, and no value is ever assigned to it",
                        hint=f"declare it: {name} INTEGER",
                    )

    def _new_body(self, inferring: bool) -> BodyBinding:
        return BodyBinding(
            self.context, self.definition, self.parameters, self.tables, self.window, self._nested, inferring
        )

    def _nested(self, definition: AggregateDef, types: tuple[SqlType, ...], node: exp.Expr) -> Program:
        names = [_title(other).lower() for other in (*self.chain, definition)]
        again = names[:-1].count(names[-1])
        if again and names[-2] != names[-1]:
            path = " → ".join(_title(other) for other in (*self.chain, definition))
            self.context.refuse(
                f"{definition.name} calls itself: {path}",
                node,
                hint="an aggregate may call itself, but not through another one",
            )
        if again > 1:
            # the program around it, from here on
            return self._itself(node)
        with self.context.blaming(node):
            return _bind(definition, types, self.context, self.chain)

    def _itself(self, node: exp.Expr) -> Program:
        """What a call of the aggregate by itself stands for: nothing but what it takes and returns."""
        if any(type_ is None for _, type_ in self.definition.returns):
            self.context.fail(
                f"{self.definition.name} calls itself, so its result needs types",
                node,
                hint="declare them: … : (a INT, b DOUBLE)",
            )
        result = Schema(tuple(Field(name, type_) for name, type_ in self.definition.returns if type_ is not None))
        return Program(self.definition.name, self.parameters, result, (), None, (), ())


def _bind(
    definition: AggregateDef, types: tuple[SqlType, ...], caller: Context, chain: tuple[AggregateDef, ...]
) -> Program:
    if definition.python is None:
        return _Binding(definition, types, caller, chain).program()
    caller.uses.add(aggregate_use(definition.name))
    return python_program(definition, _parameters(definition, types, caller))


def _parameters(definition: AggregateDef, types: tuple[SqlType, ...], caller: Context) -> Schema:
    if len(types) != len(definition.parameters):
        count = len(definition.parameters)
        caller.fail(
            f"{definition.name} takes {count} argument{'s' * (count != 1)}, got {len(types)}",
            hint=f"it is {definition.signature}",
        )
    fields: list[Field] = []
    for (name, type_), given in zip(definition.parameters, types, strict=True):
        if type_ is None and given == NULL:
            caller.fail(f"argument {name} of {definition.name} has no type", hint="CAST it")
        fields.append(Field(name, given if type_ is None else type_))
    return Schema(tuple(fields))


def _title(definition: AggregateDef) -> str:
    return f"WINDOW {definition.name}" if definition.window else definition.name


def _kind(type_: SqlType) -> str:
    """Types of one kind convert into each other without anybody's asking."""
    if type_.is_numeric:
        return "number"
    return "instant" if type_.name in ("TIMESTAMP", "TIMESTAMPTZ", "DATE") else type_.name
