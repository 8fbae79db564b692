"""CSV files in directories whose names give some of their columns."""

from __future__ import annotations

from dataclasses import replace

from millstream.connectors.text.csv_format import CsvDecoder, CsvFormat
from millstream.connectors.text.csv_records import Malformed, read_record
from millstream.connectors.text.decoder import BOM, MAX_ROW_BYTES, RowDecoder
from millstream.records import dataclass
from millstream.schema import Schema


@dataclass(frozen=True)
class PathCsv:
    """CSV that need not have the columns `given` by its path: a file without a header has all columns or the others."""

    form: CsvFormat
    given: frozenset[str]

    def begin(self, head: bytes, final: bool) -> tuple[RowDecoder, int] | None:
        own = tuple(field for field in self.form.schema if field.name.lower() not in self.given)
        begun = self.form.begin(head, final)
        start = len(BOM) if head.startswith(BOM) else 0
        if begun is None or begun[1] > start or self.form.header is True or not own:
            return begun
        partly = replace(self.form, schema=Schema(own)).begin(head, final)
        if partly is None:
            return None
        if partly[1] > start:
            return replace(self.form, header=True).begin(head, final)
        try:
            first = read_record(head, start, final, self.form.dialect)
        except Malformed:
            return begun
        if first is None and not final and len(head) <= MAX_ROW_BYTES:
            return None
        if first is None or len(first.fields) == len(self.form.schema):
            return begun
        places: list[int | None] = []
        for field in self.form.schema:
            places.append(None if field.name.lower() in self.given else sum(place is not None for place in places))
        return CsvDecoder(self.form, len(own), places), start
