"""Files that are divided by a column: all rows of a value lie in the directories `column=value`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.files.path_values import NO_VALUE, directories
from millstream.connectors.files.pieces import Piece
from millstream.errors import ConnectorError, DataError
from millstream.schema import Field


def partition_of(root: str, file: Path, column: str) -> str:
    """The value that the directories of a file say of a column."""
    found = None
    for part in directories(root, file):
        name, equals, raw = part.partition("=")
        if equals and name.lower() == column.lower():
            found = unquote(raw)
    if found is None:
        raise ConnectorError(
            f"{file} is in no directory {column}=value, though the stream is partitioned by {column}",
            hint=f"put it into a directory such as {column}=a, or leave partitioned_by out",
        )
    return found


def checked(piece: Piece, file: Path, column: Field, text: str) -> Piece:
    """The piece, whose rows must have the value that their directory says: a key in two directories is an error."""
    values = piece.rows.column(piece.rows.schema.get_field_index(column.name))
    told = values if column.type.name == "VARCHAR" else values.cast(pa.string())
    same = pc.is_null(told) if text == NO_VALUE else pc.fill_null(pc.equal(told, text), False)
    if not pc.all(same, min_count=0).as_py():
        value = values.filter(pc.invert(same))[0].as_py()
        raise DataError(
            f"a row with {column.name} {value!r} is in the directory {column.name}={text}, "
            f"though the stream is partitioned by {column.name}",
            detail=str(file),
            hint=f"write rows into the directory of their {column.name}, or leave partitioned_by out",
        )
    return piece
