"""Which kind of input a declared stream has on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from millstream.catalog import StreamDef
from millstream.connectors.contract import Divisible, RowSource
from millstream.connectors.files.source import FileSource
from millstream.connectors.registry import make_source
from millstream.hosts.spark.sources import DriverSource, Files, FollowedFiles, Input, Parts, PushedRows
from millstream.hosts.spark.spool import Spooled


def input_of(stream: StreamDef, kept: str | None) -> Input:
    """Where the rows of a declaration come from; `kept` is the directory of checkpoints, if there is one."""
    source = None if stream.source is None else make_source(stream.source, stream.given, stream.name)
    if source is None or stream.source is None:
        return PushedRows(stream)
    if isinstance(source, FileSource) and not source.bounded:
        return FollowedFiles(stream, stream.source)
    if hasattr(source, "read_part"):
        return Parts(stream, cast(Divisible, source), source.bounded)
    if not source.bounded:
        return Spooled(stream, source, None if kept is None else Path(kept) / "spool" / stream.name)
    return bounded_input(stream, source)


def bounded_input(stream: StreamDef, source: RowSource) -> Input:
    """A stream whose rows end by themselves."""
    return Files(stream, source) if isinstance(source, FileSource) else DriverSource(stream, source)
