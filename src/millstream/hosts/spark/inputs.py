"""Which kind of input a declared stream has on Spark."""

from __future__ import annotations

from millstream.catalog import StreamDef
from millstream.connectors.contract import Source
from millstream.connectors.files.source import FileSource
from millstream.connectors.generators.source import GeneratorSource
from millstream.connectors.registry import make_source
from millstream.errors import EngineError
from millstream.hosts.spark.arrive import unstamped
from millstream.hosts.spark.sources import DriverSource, Files, FollowedFiles, Generated, Input, PushedRows


def input_of(stream: StreamDef) -> Input:
    """Where the rows of a declaration come from; an error if Spark cannot read there."""
    source = None if stream.source is None else make_source(stream.source, unstamped(stream), stream.name)
    if source is None or stream.source is None:
        return PushedRows(stream)
    if isinstance(source, FileSource) and not source.bounded:
        return FollowedFiles(stream, stream.source)
    if isinstance(source, GeneratorSource):
        return Generated(stream, source, stream.source)
    if not source.bounded:
        raise EngineError(
            f"stream {stream.name}: the source {stream.source.get('connector')} does not yet run on Spark",
            detail="it has no end, and Spark has no streaming reader for it here",
            hint="run it in-process: ms.connect(), or millstream run --engine embedded",
        )
    return bounded_input(stream, source)


def bounded_input(stream: StreamDef, source: Source) -> Input:
    """A stream whose rows end by themselves."""
    return Files(stream, source) if isinstance(source, FileSource) else DriverSource(stream, source)
