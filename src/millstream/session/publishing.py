"""PUBLISH: queries inside of a statement become streams, all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.bind import actions as act
from millstream.catalog import DerivedDef
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from millstream.session.database import Database
    from millstream.session.query import Query, Result


def publish(db: Database, action: act.Publish, text: str, name: str | None) -> Query | Result | None:
    """Make the streams, and start the query around them unless it is one of them."""
    made: list[act.Define] = []
    try:
        for stream in action.streams:
            db.perform(stream)
            made.append(stream)
        return None if action.is_stream else db.perform(action.query, text, name)
    except MillstreamError:
        for stream in reversed(made):
            db.perform(act.Remove(stream.entry.name, (DerivedDef,)))
        raise
