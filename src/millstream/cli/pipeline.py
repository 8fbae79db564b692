"""A pipeline: the text of a file with its variables filled in, and its statements run one after the other."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from millstream.errors import BindError, MillstreamError, Span
from millstream.records import dataclass

if TYPE_CHECKING:
    from millstream.session.database import Database
    from millstream.session.query import Query, Result
    from millstream.sql import Statement

_VARIABLE = re.compile(r"\$\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?::-([^}]*))?\}")


def read_text(source: str) -> str:
    """The text of a file, or of standard input if `source` is `-`."""
    if source == "-":
        return sys.stdin.read()
    try:
        return Path(source).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"cannot read {source}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{source} is not a text file in UTF-8") from None


def fill_in(text: str, variables: Mapping[str, str]) -> str:
    """The text with ${name} and ${name:-default} replaced.

    >>> fill_in("SELECT ${a}, ${b:-2}", {"a": "1"})
    'SELECT 1, 2'
    """

    def value(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name in variables:
            return variables[name]
        if default is not None:
            return default
        raise BindError(
            f"no value for the variable {name}",
            hint=f"give one: --var {name}=…, or write a default: ${{{name}:-…}}",
            span=Span(match.start(), match.end()),
            sql=text,
        )

    return _VARIABLE.sub(value, text)


def each_statement(text: str, act: Callable[[Statement], None]) -> None:
    """Hand every statement of a text to `act`; an error it raises is underlined in the whole text."""
    from millstream import sql

    for statement in sql.parse(text):
        try:
            act(statement)
        except MillstreamError as error:
            _place_in(error, statement, text)
            raise


def _place_in(error: MillstreamError, statement: Statement, text: str) -> None:
    if error.sql == statement.text and error.span is not None:
        error.span = Span(error.span.start + statement.offset, error.span.end + statement.offset)
    elif error.span is None:
        # what the statement as a whole did wrong is shown at its first word
        first = len(statement.text.split(maxsplit=1)[0])
        error.span = Span(statement.offset, statement.offset + first)
    else:
        return
    error.sql = text


@dataclass(frozen=True)
class ShownQuery:
    """A running query as the display shows it: `sink` and `place` say where its rows go, None that they are shown."""

    query: Query
    sink: str | None = None
    place: str | None = None

    @property
    def label(self) -> str:
        return f"{self.query.name} → {self.sink}" if self.sink else self.query.name


def start(database: Database, text: str, show: Callable[[Result], None]) -> None:
    """Run all statements of a pipeline; results that are there at once are given to `show`."""
    from millstream.session.query import Result

    def act(statement: Statement) -> None:
        result = database.execute(statement.text)
        if isinstance(result, Result):
            show(result)

    each_statement(text, act)


def outlets(database: Database) -> list[ShownQuery]:
    """Where the rows of each running query go."""
    return [_outlet(database, query) for query in database.queries()]


def _outlet(database: Database, query: Query) -> ShownQuery:
    from sqlglot import exp

    from millstream import sql
    from millstream.catalog import SinkDef
    from millstream.sql.nodes import CreateSink

    node = sql.parse(query.sql)[0].ast
    if isinstance(node, CreateSink):
        return ShownQuery(query, node.name, _place(sql.options_of(node)))
    if isinstance(node, exp.Insert):
        target = node.this.this if isinstance(node.this, exp.Schema) else node.this
        sink = database.catalog.get(target.name, SinkDef)
        return ShownQuery(query, sink.name, _place(sink.options))
    return ShownQuery(query)


def _place(options: Mapping[str, object]) -> str:
    return str(options.get("path") or options.get("connector") or "")
