"""AST → text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from sqlglot import exp
from sqlglot.generator import Generator

from millstream.sql import history, nodes, relations
from millstream.sql.event_text import EVENT_PRINTERS
from millstream.sql.functions import PLAIN_CALLS
from millstream.sql.pattern_text import PATTERN_PRINTERS, print_window_match

_TRIMS = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}


def _plain_call(name: str, keys: tuple[str, ...]) -> Callable[[Generator, exp.Expr], str]:
    def print_call(self: Generator, node: exp.Expr) -> str:
        values = (node.args.get(key) for key in keys)
        return self.func(name, *(part for value in values for part in (value if isinstance(value, list) else [value])))

    return print_call


def _unit(node: exp.Expr) -> exp.Literal:
    return exp.Literal.string(node.text("unit"))


def _set_location(self: Generator, node: exp.Expr) -> str:
    name, directory = self.sql(node, "this"), self.sql(node, "expression")
    if not directory:
        return f"RESET LOCATION {name}"
    return f"SET LOCATION {name} = {directory}{' READ ONLY' if node.args.get('read_only') else ''}"


class MillstreamGenerator(Generator):
    """Prints every node the parser makes in a form that the parser reads back to the same node."""

    TYPE_MAPPING: ClassVar = {
        **Generator.TYPE_MAPPING,
        exp.DType.FLOAT: "REAL",
        exp.DType.TIMESTAMPNTZ: "TIMESTAMP",
        exp.DType.VARBINARY: "BLOB",
    }
    TRANSFORMS: ClassVar = {
        **Generator.TRANSFORMS,
        **{node: _plain_call(name, keys) for node, (name, keys) in PLAIN_CALLS.items()},
        exp.BitwiseAnd: lambda self, node: self.binary(node, "&"),
        exp.BitwiseLeftShift: lambda self, node: self.binary(node, "<<"),
        exp.BitwiseOr: lambda self, node: self.binary(node, "|"),
        exp.BitwiseRightShift: lambda self, node: self.binary(node, ">>"),
        exp.CurrentDate: lambda self, node: "CURRENT_DATE",
        exp.CurrentTimestamp: lambda self, node: "CURRENT_TIMESTAMP",
        exp.DateDiff: lambda self, node: self.func("DATE_DIFF", _unit(node), node.expression, node.this),
        exp.DateTrunc: lambda self, node: self.func("DATE_TRUNC", _unit(node), node.this),
        exp.IgnoreNulls: lambda self, node: f"{self.sql(node, 'this')} IGNORE NULLS",
        exp.IntDiv: lambda self, node: self.binary(node, "//"),
        exp.Pad: lambda self, node: self.func(
            "LPAD" if node.args.get("is_left") else "RPAD", node.this, node.expression, node.args.get("fill_pattern")
        ),
        exp.RespectNulls: lambda self, node: f"{self.sql(node, 'this')} RESPECT NULLS",
        exp.TimestampTrunc: lambda self, node: self.func("DATE_TRUNC", _unit(node), node.this),
        exp.Trim: lambda self, node: self.func(_TRIMS.get(node.text("position"), "TRIM"), node.this, node.expression),
        **EVENT_PRINTERS,
        **PATTERN_PRINTERS,
        history.QueryAlteration: lambda self, node: self.alter_query(node),
        history.StreamAlteration: lambda self, node: (
            f"ALTER STREAM {self.sql(node, 'this')} {self._clause('KEEP', node.args.get('keep')) or 'NO HISTORY'}"
        ),
        history.Keep: lambda self, node: node.text,
        history.Pause: lambda self, node: (
            f"{'RESUME' if node.args.get('resume') else 'PAUSE'} {self.sql(node, 'this')}"
        ),
        history.WithHistory: lambda self, node: " ".join(
            filter(None, ("WITH HISTORY", self._clause("SINCE", node.args.get("since"))))
        ),
        nodes.Backup: lambda self, node: f"BACKUP TO {self.sql(node, 'this')}",
        nodes.CreateAggregate: lambda self, node: self.create_aggregate(node),
        nodes.CreateSink: lambda self, node: self.create_sink(node),
        nodes.CreateQueries: lambda self, node: self.create_queries(node),
        nodes.CreateStream: lambda self, node: self.create_stream(node),
        nodes.Explain: lambda self, node: self.explain(node),
        nodes.LocalTableClause: lambda self, node: f"TABLE {self.sql(node, 'this')}{self._columns(node.columns)};",
        nodes.Oldest: lambda self, node: f"oldest(){'.' if node.this else ''}{self.sql(node, 'this')}",
        nodes.Option: lambda self, node: f"{self.sql(node, 'this')} = {self.sql(node, 'expression')}",
        nodes.ResetOption: lambda self, node: f"RESET {self.sql(node, 'this')}",
        nodes.SetLocation: lambda self, node: _set_location(self, node),
        nodes.SetOption: lambda self, node: f"SET {self.sql(node, 'this')} = {self.sql(node, 'expression')}",
        nodes.Show: lambda self, node: f"SHOW {node.kind}",
        nodes.JsonTable: lambda self, node: (
            f"JSON_TABLE({self.sql(node, 'this')}, {self.sql(node, 'path')} "
            f"COLUMNS ({self.expressions(node, key='columns', flat=True)}))"
        ),
        nodes.JsonColumn: lambda self, node: " ".join(
            filter(None, (self.sql(node, "this"), self.sql(node, "kind"), self._clause("PATH", node.args.get("path"))))
        ),
        nodes.SideStream: lambda self, node: f"{node.kind}({self.sql(node, 'this')})",
        nodes.Slide: lambda self, node: f"SLIDE {self.sql(node, 'this')}",
        nodes.Stop: lambda self, node: f"STOP {self.sql(node, 'this')}",
        nodes.WindowTable: lambda self, node: self.window_table(node),
        relations.CreateView: lambda self, node: self.create_view(node),
        relations.Granularity: lambda self, node: f"GRANULARITY({self._bounds(node, 'coarsest', 'finest')})",
        relations.StreamItems: lambda self, node: f"{node.this}({self.expressions(node, flat=True)})",
        relations.StreamQuery: lambda self, node: f"{node.this}({self.sql(node, 'expression')})",
        relations.StreamWindow: lambda self, node: self.stream_window(node),
        relations.Windowed: lambda self, node: self.windowed(node),
    }

    def preprocess(self, expression: exp.Expr) -> exp.Expr:
        """Puts stream operators where they print: around SELECT lists, and around queries that have none."""
        for node in [part for part in expression.walk() if part.args.get("stream_of")]:
            kind = node.args["stream_of"]
            node.set("stream_of", None)
            if isinstance(node, exp.Select):
                node.set("expressions", [relations.StreamItems(this=kind, expressions=node.expressions)])
            elif node is expression:
                expression = relations.StreamQuery(this=kind, expression=node)
            else:
                node.replace(wrapped := relations.StreamQuery(this=kind))
                wrapped.set("expression", node)
        return super().preprocess(expression)

    def query_modifiers(self, expression: exp.Expr, *sqls: str) -> str:
        publish = self._clause(" PUBLISH", expression.args.get("publish"))
        asked = self._clause("", expression.args.get("history"))
        return super().query_modifiers(expression, *sqls) + publish + asked

    def datatype_sql(self, expression: exp.DataType) -> str:
        if expression.this is exp.DType.ARRAY and expression.expressions:
            return f"{self.sql(expression.expressions[0])}[{self.expressions(expression, key='values', flat=True)}]"
        if expression.this in (exp.DType.STRUCT, exp.DType.MAP) and expression.expressions:
            return f"{expression.this.value}({self.expressions(expression, flat=True)})"
        return super().datatype_sql(expression)

    def create_stream(self, node: nodes.CreateStream) -> str:
        clauses = [
            self._created("STREAM", node)
            + (self._columns([*node.columns, *filter(None, (node.primary_key,))]) if node.columns else ""),
            self._clause("ORDER BY", node.order_by),
            self._clause("SINCE", node.since),
            "" if node.valid is None else f"VALID FROM {self.sql(node.valid[0])} TO {self.sql(node.valid[1])}",
            self._clause("SLACK", node.slack),
            self._clause("KEEP", node.keep),
            self._clause("SOURCE", node.source),
            self._options(node.args.get("options")),
            self._clause("AS", node.query),
        ]
        return " ".join(filter(None, clauses))

    def create_sink(self, node: nodes.CreateSink) -> str:
        clauses = [self._created("SINK", node), self._options(node.args.get("options")), self._clause("AS", node.query)]
        return " ".join(filter(None, clauses))

    def create_queries(self, node: nodes.CreateQueries) -> str:
        into = self._clause("INTO", node.args.get("sink"))
        return " ".join(
            filter(None, [f"CREATE QUERIES {self.sql(node, 'this')}", into, f"AS {self.sql(node, 'query')}"])
        )

    def create_view(self, node: relations.CreateView) -> str:
        columns = f" ({', '.join(map(self.sql, node.columns))})" if node.columns else ""
        return f"{self._created('VIEW', node)}{columns} AS {self.sql(node, 'query')}"

    def windowed(self, node: relations.Windowed) -> str:
        parts = [self.sql(node, key) for key in ("this", "window", "granularity")]
        parts.append(self._clause("AS", node.args.get("alias")))
        return " ".join(filter(None, parts)) + self.expressions(node, key="joins", sep="", flat=True)

    def stream_window(self, node: relations.StreamWindow) -> str:
        if node.now:
            return "WINDOW(NOW)"
        keys = ", ".join(map(self.sql, node.partition))
        size = self._bounds(node, "least", "most") or "UNBOUNDED"
        late = self._clause("LATENESS", node.args.get("lateness"))
        framed = "PRECEDING" if node.preceding else ""
        clauses = (framed, self._clause("SLIDE", node.slide), late, self._clause("DELETE WHEN", node.delete))
        parts = [f"PARTITION BY {keys}" if keys else "", node.kind, size, *clauses]
        return f"WINDOW({' '.join(filter(None, parts))})"

    def _bounds(self, node: exp.Expr, first: str, second: str) -> str:
        """A size, or a pair of bounds in words."""
        if not node.args.get(first):
            return self.sql(node, "size")
        names = {"least": "MIN", "most": "MAX", "coarsest": "COARSEST", "finest": "FINEST"}
        return ", ".join(f"{names[key]} {self.sql(node, key)}" for key in (first, second))

    def create_aggregate(self, node: nodes.CreateAggregate) -> str:
        kind = f"{'ALGEBRAIC ' if node.algebraic else ''}{'WINDOW ' if node.window else ''}AGGREGATE"
        body = [*map(self.sql, node.tables), *self._states(node)]
        signature = self._created(kind, node) + self._columns(node.parameters)
        return f"{signature} : {self._returned(node)} {{ {' '.join(body)} }}"

    def _returned(self, node: nodes.CreateAggregate) -> str:
        column = node.returns[0]
        unnamed = len(node.returns) == 1 and column.this == node.this and column.kind is not None
        return self.sql(column, "kind") if unnamed else self._columns(node.returns).strip()

    def _states(self, node: nodes.CreateAggregate) -> Iterator[str]:
        for name in nodes.STATES:
            statements = node.state(name.lower())
            if statements is not None:
                body = "".join(f"{self.sql(statement)}; " for statement in statements)
                yield f"{name}: {{ {body}}}"

    def insert_sql(self, expression: exp.Insert) -> str:
        parts = (self.sql(expression, key) for key in ("this", "expression"))
        how = "INSERT OR REPLACE" if expression.args.get("alternative") else "INSERT"
        return f"{how} INTO {' '.join(parts)}{self.sql(expression, 'where')}"

    def window_sql(self, expression: exp.Window) -> str:
        match = expression.args.get("match")
        return super().window_sql(expression) if match is None else print_window_match(self, expression, match)

    def windowspec_sql(self, expression: exp.WindowSpec) -> str:
        active = "ACTIVE EXPIRATION" if expression.args.get("active") else ""
        return " ".join(filter(None, (super().windowspec_sql(expression), self.sql(expression, "slide"), active)))

    def window_table(self, node: nodes.WindowTable) -> str:
        keys = ", ".join(map(self.sql, node.partition))
        rows = self.sql(node, "this") + (f" PARTITION BY ({keys})" if keys else "")
        spans = [self.sql(node, key) for key in ("slide", "size", "gap", "offset", "step", "longest")]
        spans += [f"{fill.args['how']}({self.sql(fill, 'this')})" for fill in node.args.get("fills") or ()]
        late = f" LATENESS {self.sql(node, 'lateness')}" if node.args.get("lateness") else ""
        return f"{node.kind}({', '.join(filter(None, (rows, self.sql(node, 'time'), *spans)))}{late})"

    def create_sql(self, expression: exp.Create) -> str:
        kind = expression.args["kind"]
        properties = expression.args.get("properties")
        parts = ["CREATE", "OR REPLACE" if expression.args.get("replace") else "", kind]
        parts.append("IF NOT EXISTS" if expression.args.get("exists") else "")
        parts.append(self.sql(expression, "this"))
        for item in properties.expressions if properties else ():
            if isinstance(item, exp.ReturnsProperty):
                parts.append(f"RETURNS {self.sql(item, 'this')}")
        parts.append(
            self._options([p for p in properties.expressions if isinstance(p, nodes.Option)] if properties else [])
        )
        parts.append(self._clause("AS", expression.args.get("expression")))
        return " ".join(filter(None, parts))

    def not_sql(self, expression: exp.Not) -> str:
        """NOT inside the predicate where it has a place there: it binds as tightly as it was read."""
        inner = expression.this
        if not isinstance(inner, exp.In | exp.Between | exp.Is):
            return super().not_sql(expression)
        left, whole = self.sql(inner, "this"), self.sql(inner)
        if isinstance(inner, exp.Is):
            return f"{left} IS NOT {self.sql(inner, 'expression')}"
        return f"{left} NOT{whole[len(left) :]}"

    def _created(self, kind: str, node: exp.Expr) -> str:
        replace = "OR REPLACE " if node.args.get("or_replace") else ""
        exists = "IF NOT EXISTS " if node.args.get("if_not_exists") else ""
        return f"CREATE {replace}{kind} {exists}{self.sql(node, 'this')}"

    def _columns(self, columns: Sequence[exp.Expr]) -> str:
        return f" ({', '.join(self.sql(column) for column in columns)})"

    def _clause(self, word: str, node: exp.Expr | None) -> str:
        return f"{word} {self.sql(node)}" if node is not None else ""

    def _options(self, options: list[nodes.Option] | None) -> str:
        return f"WITH ({', '.join(self.sql(option) for option in options)})" if options else ""

    def alter_query(self, node: history.QueryAlteration) -> str:
        if node.window is None:
            return f"ALTER QUERY {self.sql(node, 'this')} AS {self.sql(node, 'query')}"
        window = self.stream_window(node.window).removeprefix("WINDOW(").removesuffix(")")
        on = self._clause("ON", node.args.get("item"))
        return " ".join(filter(None, (f"ALTER QUERY {self.sql(node, 'this')} SET WINDOW", on, window)))

    def explain(self, node: nodes.Explain) -> str:
        return " ".join(filter(None, ("EXPLAIN", node.mode, self.sql(node, "this"))))
