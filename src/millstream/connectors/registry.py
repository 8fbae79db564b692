"""From the options of a declaration to the source or sink they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.catalog import StreamDef
from millstream.connectors.contract import RowSource, Sink
from millstream.connectors.options import Options, OptionValue, closest, upsert_keys
from millstream.connectors.past import with_past, without_past
from millstream.errors import ConnectorError
from millstream.schema import Schema

SOURCES = ("file", "port", "generator", "nexmark", "quotes", "clicks", "kafka", "postgres", "memory")
SINKS = ("file", "kafka", "postgres", "webhook", "terminal", "memory", "blackhole", "table")
_ALIASES = {
    "files": "file", "filesystem": "file", "socket": "port", "tcp": "port", "quote": "quotes", "stocks": "quotes",
    "stock": "quotes", "click": "clicks", "sessions": "clicks", "auctions": "nexmark", "auction": "nexmark",
    "datagen": "generator", "print": "terminal", "console": "terminal", "stdout": "terminal", "null": "blackhole",
    "push": "memory", "pushed": "memory", "http": "webhook", "https": "webhook",
    "postgresql": "postgres",
}  # fmt: skip
_PORT = re.compile(r"\s*port\s*[:=]?\s*(\d{1,5})\s*", re.IGNORECASE)
_WITH_HINT = "use WITH (connector = '...'), with a connector of {}"


def source_of(stream: StreamDef) -> RowSource | None:
    """The source that a stream is declared with; None if its rows are pushed."""
    if stream.source is None:
        return None
    live = make_source(without_past(stream.source), stream.given, stream.name)
    return with_past(live, stream.source, stream.given, stream.name, stream.time_column)


def make_source(options: Mapping[str, OptionValue], schema: Schema, stream: str) -> RowSource | None:
    """The source that options mean, without what came before it; None if rows are pushed."""
    connector = _connector(options, SOURCES, f"stream {stream}")
    reader = Options(f"connector {connector}", options)
    if connector == "memory":
        reader.finish()
        return None
    if connector == "file":
        from millstream.connectors.files.source import FileSource

        return FileSource.from_options(reader, schema)
    if connector == "port":
        from millstream.connectors.ports.source import PortSource

        return PortSource.from_options(reader, schema)
    if connector == "kafka":
        from millstream.connectors.kafka.source import KafkaSource

        return KafkaSource.from_options(options, schema)
    if connector == "postgres":
        from millstream.connectors.postgres.source import PostgresSource

        return PostgresSource.from_options(reader, schema)
    from millstream.connectors.generators.source import GeneratorSource

    return GeneratorSource.from_options(reader, None if connector == "generator" else connector, schema, stream)


def make_sink(options: Mapping[str, OptionValue], name: str) -> Sink:
    """The sink of that name."""
    connector = _connector(options, SINKS, f"sink {name}")
    if connector == "table":
        from millstream.connectors.sinks.tables import TableSink

        if "$store" not in options:
            raise ConnectorError("a stored table needs no sink", hint="INSERT INTO table SELECT … FROM stream")
        return TableSink(name, str(options["$store"]), upsert_keys(options))
    if upsert_keys(options) is not None and connector not in ("kafka", "postgres"):
        # their rows are changes, which the sink writes as they are
        options = {name: value for name, value in options.items() if name.lower() not in ("mode", "key")}
    reader = Options(f"connector {connector}", options)
    if connector == "file":
        from millstream.connectors.sinks.files import file_sink

        return file_sink(reader)
    if connector == "terminal":
        from millstream.connectors.sinks.terminal import TerminalSink

        return TerminalSink.from_options(reader, name)
    if connector == "kafka":
        from millstream.connectors.kafka.sink import KafkaSink

        return KafkaSink.from_options(options)
    if connector == "postgres":
        from millstream.connectors.sinks.postgres import PostgresSink

        return PostgresSink.from_options(options)
    if connector == "webhook":
        from millstream.connectors.sinks.webhook import WebhookSink

        return WebhookSink.from_options(options)
    from millstream.connectors.sinks.memory import BlackholeSink, MemorySink

    reader.finish()
    return MemorySink() if connector == "memory" else BlackholeSink()


def parse_source_clause(source: str | tuple[str, Sequence[Any]]) -> dict[str, OptionValue]:
    """The options that a SOURCE clause means.

    >>> parse_source_clause("port4445")
    {'connector': 'port', 'port': 4445}
    >>> parse_source_clause(("establishConnection", ["port34100", "csv"]))
    {'connector': 'port', 'port': 34100, 'format': 'csv'}
    """
    if isinstance(source, str):
        if match := _PORT.fullmatch(source):
            return {"connector": "port", "port": int(match[1])}
        if re.search(r"[./\\*]", source):
            return {"connector": "file", "path": source}
        raise ConnectorError(f"SOURCE '{source}' is neither a port nor a path", hint=_hint())
    function, arguments = source
    match = _PORT.fullmatch(str(arguments[0])) if arguments else None
    if match is None or len(arguments) > 2:
        raise ConnectorError(f"SOURCE {function}(...) is not supported", hint=_hint())
    converter = str(arguments[1]).strip().lower() if len(arguments) == 2 else "json"
    form = next((form for form in ("csv", "json") if form in converter), "json")
    return {"connector": "port", "port": int(match[1]), "format": form}


def connector_of(options: Mapping[str, OptionValue], *, is_sink: bool) -> str:
    """The connector that options name; pushed rows, if they name none."""
    if "connector" not in options and not is_sink:
        return "memory"
    return _connector(options, SINKS if is_sink else SOURCES, "it")


def _hint() -> str:
    return f"write SOURCE 'port4445', SOURCE 'path/to/file.csv', or {_WITH_HINT.format(', '.join(SOURCES))}"


def _connector(options: Mapping[str, OptionValue], known: tuple[str, ...], owner: str) -> str:
    given = next((str(value) for name, value in options.items() if name.lower() == "connector"), None)
    if given is None:
        raise ConnectorError(f"{owner} has no connector", hint=_WITH_HINT.format(", ".join(known)))
    name = given.strip().lower()
    name = _ALIASES.get(name, name)
    if name not in known:
        near = closest(name, [*known, *_ALIASES])
        raise ConnectorError(f"unknown connector {given}", hint=f"known ones are {', '.join(known)}{near}")
    return name
