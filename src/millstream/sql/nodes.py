"""AST nodes of our own: the statements and clauses that sqlglot has no node for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, cast

from sqlglot import exp

from millstream.sql.arguments import Arg, Args, Flag, takes

STATES = ("INITIALIZE", "ITERATE", "EXPIRE", "TERMINATE")
"""of an aggregate, in the order they run"""


class Option(exp.Expression):
    """One `key = literal` of a WITH list; `this` is the key, an Identifier whose name may hold dots."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}

    @property
    def value(self) -> str | int | float | bool | None:
        """The literal as a Python value; an INTERVAL as its SQL text."""
        return literal_value(self.args["expression"])


class CreateStream(exp.Expression):
    """CREATE STREAM.

    this: the name, an Identifier
    columns: ColumnDefs, whose `kind` may be absent; empty for CREATE STREAM … AS
    order_by: the Identifier after ORDER BY or ORDERED BY (`current_time`: stamped at arrival); None: latent timestamps
    since: the Identifier after SINCE: when events start
    valid: the two Identifiers after VALID FROM and TO: the bounds of rows that bring their own validity
    primary_key: the PRIMARY KEY among the columns
    slack: Interval, or a number
    keep: the Keep after KEEP
    source: string Literal (`SOURCE 'port4445'`) or function call (`SOURCE f('a', 'b')`)
    options: Options of WITH (…)
    query: the query after AS
    if_not_exists, or_replace: bool
    """

    arg_types: ClassVar[dict[str, bool]] = takes(
        "this columns? order_by? since? valid? primary_key? slack? keep? source? options? query? "
        "if_not_exists? or_replace?"
    )

    columns = Args[exp.ColumnDef]()
    order_by = Arg[exp.Identifier | None]()
    since = Arg[exp.Identifier | None]()

    @property
    def valid(self) -> tuple[exp.Identifier, exp.Identifier] | None:
        bounds = self.args.get("valid")
        return None if bounds is None else tuple(bounds.expressions)

    primary_key = Arg[exp.PrimaryKey | None]()
    slack = Arg[exp.Expr | None]()
    keep = Arg[exp.Expr | None]()
    source = Arg[exp.Expression | None]()
    query = Arg[exp.Expression | None]()


class CreateSink(exp.Expression):
    """CREATE SINK; `this` is the name, `options` come from WITH (…), `query` (may be absent) from AS."""

    arg_types: ClassVar[dict[str, bool]] = takes("this options? query? if_not_exists? or_replace?")

    query = Arg[exp.Expression | None]()


class CreateQueries(exp.Expression):
    """CREATE QUERIES: `this` is the name, `query` reads streams and the stored table that has a row for each query;
    `sink` is where rows go, if INTO says so."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "query": True, "sink": False}


class SideStream(exp.Expression):
    """LATE(s), ERRORS(s) or HISTORY(s) in FROM, held by an exp.Table; `this` is the Identifier of s, `kind` the
    word."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}

    kind = Arg[str]()


class JsonTable(exp.Expression):
    """JSON_TABLE(document, path COLUMNS (…)) in FROM, held by an exp.Table; `columns` are JsonColumns."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "path": True, "columns": True}


class JsonColumn(exp.Expression):
    """`name type [PATH path]` of JSON_TABLE."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "path": False}


class WindowTable(exp.Expression):
    """TUMBLE(…), HOP(…), CUMULATE(…), SESSION(…) or GAP_FILL(…) in FROM, held by an exp.Table.

    this: the rows: exp.Table or exp.Subquery
    kind: its name
    time: the Column of the time
    size, slide (of CUMULATE: the step), gap, offset, step, longest, lateness: Intervals, absent where the kind has none
    partition: Columns
    fills: GapColumns of GAP_FILL
    """

    arg_types: ClassVar[dict[str, bool]] = takes(
        "this kind time size? slide? gap? offset? step? longest? lateness? partition? fills?"
    )

    kind = Arg[str]()
    time = Arg[exp.Column]()
    partition = Args[exp.Expr]()


class GapColumn(exp.Expression):
    """LOCF(…) or INTERPOLATE(…) in GAP_FILL: `this` is a Column, `how` the word."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "how": True}


class Slide(exp.Expression):
    """SLIDE of a frame, in args["slide"] of its WindowSpec; `this` is a number or an Interval.

    ACTIVE EXPIRATION stands in args["active"] of the WindowSpec.
    """

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class LocalTableClause(exp.Expression):
    """TABLE of an aggregate's body; `this` is the name, `columns` are ColumnDefs, whose `kind` may be absent."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "columns": True}

    columns = Arg[list[exp.ColumnDef]]()


class Oldest(exp.Expression):
    """`oldest()` inside an aggregate's body; `this` is the Identifier of a column of it, or absent."""

    arg_types: ClassVar[dict[str, bool]] = {"this": False}


class CreateAggregate(exp.Expression):
    """[CREATE] AGGREGATE.

    this: the name, an Identifier
    parameters: ColumnDefs, whose `kind` may be absent
    returns: ColumnDefs; for `: type` a single one with the aggregate's name
    tables: LocalTables
    initialize, iterate, expire, terminate: the statements of a state; None if it is not given, [] if it is empty
    window, algebraic, or_replace, if_not_exists: bool
    """

    arg_types: ClassVar[dict[str, bool]] = takes(
        "this parameters? returns tables? initialize? iterate? expire? terminate? window? algebraic? "
        "or_replace? if_not_exists?"
    )

    parameters = Args[exp.ColumnDef]()
    returns = Arg[list[exp.ColumnDef]]()
    tables = Args[LocalTableClause]()

    def state(self, name: str) -> list[exp.Expr] | None:
        """The statements of `initialize`, `iterate`, `expire` or `terminate`; None if the state is not given."""
        return self.args.get(name)

    window = Flag()
    algebraic = Flag()


class Explain(exp.Expression):
    """EXPLAIN of the statement `this`; `mode` is VERBOSE, RULES, COST or absent."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "mode": False}

    mode = Arg[str | None]()


class Show(exp.Expression):
    """SHOW; `kind` is STREAMS, TABLES, VIEWS, QUERIES, SINKS, FUNCTIONS, AGGREGATES or SHARING."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True}

    kind = Arg[str]()


class Stop(exp.Expression):
    """STOP; `this` is the Identifier of a running query."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class SetOption(exp.Expression):
    """SET `this` = `expression`: the Identifier of a setting (may hold dots) and a literal, or a Var for a word."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}

    @property
    def value(self) -> str | int | float | bool | None:
        return literal_value(self.args["expression"])


class SetLocation(exp.Expression):
    """SET LOCATION `this` = `expression` [READ ONLY]; without `expression` RESET LOCATION."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": False, "read_only": False}


class Backup(exp.Expression):
    """BACKUP TO `this`: a text, where a copy of the session goes."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class ResetOption(exp.Expression):
    """RESET `this`: back to the default of a session setting."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


def options_of(node: exp.Expr) -> dict[str, str | int | float | bool | None]:
    """The WITH (…) options of a CREATE statement as Python values, in the order written."""
    options = node.args.get("options")
    if options is None and isinstance(node, exp.Create):
        properties = node.args.get("properties")
        options = [p for p in properties.expressions if isinstance(p, Option)] if properties else []
    return {option.name: option.value for option in cast(Iterable[Option], options or ())}


def literal_value(node: exp.Expr) -> str | int | float | bool | None:
    """The Python value of a literal, possibly signed; other nodes give their SQL text."""
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Neg):
        value = literal_value(node.this)
        return -value if isinstance(value, int | float) else f"-{value}"
    if isinstance(node, exp.Literal):
        if node.is_string:
            return node.name
        return int(node.name) if node.name.isdigit() else float(node.name)
    if isinstance(node, exp.Var):
        return node.name
    return node.sql(dialect="millstream")
