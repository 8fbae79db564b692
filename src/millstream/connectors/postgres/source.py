"""The PostgreSQL source: the rows of a table and all changes of it, from a replication slot.

The slot is polled by SQL, which needs no replication protocol. It is looked at, not consumed: it moves on when the host
says that rows are safe (`kept`). Until then PostgreSQL keeps the changes, and a reading passes over those before its
offset.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from millstream.connectors.addresses import Url
from millstream.connectors.contract import Chunk, Offset
from millstream.connectors.options import Options
from millstream.connectors.postgres.changes import (
    ChangeDecoder,
    ChangedRows,
    check_columns,
    lsn_number,
    lsn_text,
)
from millstream.connectors.postgres.client import connected, is_transient, library, place_from, quoted, told
from millstream.errors import ConnectorError
from millstream.records import dataclass
from millstream.schema import Schema

_MESSAGES = 32_768
"""that are decoded at once; an update may be two rows"""
_MORE = 200_000
"""so many new messages are asked for; a transaction comes whole"""
_IDLE_SECONDS = 0.1
_MOVE_SECONDS = 1.0
"""how often an offset moves on while the table does not change"""
_LONGEST_WAIT = 10.0
_SETTINGS = {
    "statement_timeout": "0", "timezone": "UTC", "datestyle": "ISO", "intervalstyle": "postgres",
    "bytea_output": "hex", "extra_float_digits": "1", "client_encoding": "UTF8",
}  # fmt: skip
_PEEK = """
WITH found AS MATERIALIZED (
    SELECT row_number() OVER () AS n, lsn, data FROM pg_logical_slot_peek_binary_changes(
        %s, NULL, %s, 'proto_version', '1', 'publication_names', %s)),
passed AS (SELECT coalesce(max(n), 0) AS n FROM found WHERE get_byte(data, 0) = 67 AND lsn <= %s::pg_lsn)
SELECT -count(*) AS n, NULL::bytea AS data FROM found
UNION ALL SELECT n, data FROM found WHERE n > (SELECT n FROM passed) OR get_byte(data, 0) = 82 ORDER BY n
"""
"""Messages after a position, and before them how many there are in all. 67 is a COMMIT, whose lsn is where it ends; 82
describes a table, before its first change."""


@dataclass(frozen=True, slots=True)
class SlotOptions:
    """Where a table's changes come from, and how they are asked for."""

    address: Url
    table: tuple[str, ...]
    slot: str
    publication: str
    snapshot: bool
    poll_seconds: float
    timeout: float
    retries: int


class PostgresSource:
    """Offsets are `{lsn, row, time}`: up to where transactions have been read, how many changes of the next one have,
    and the time of the last. `seen` and `until` say which transactions the table had when it was read itself."""

    bounded = False
    replayable = False

    def __init__(self, schema: Schema, reading: SlotOptions) -> None:
        self._schema = schema
        self._reading = reading
        self._kept = 0

    @staticmethod
    def from_options(options: Options, schema: Schema) -> PostgresSource:
        address, table = place_from(options, "public.items")
        slot = options.required("slot", f"'millstream_{table[-1].lower()}'")
        publication = options.text("publication") or slot
        snapshot = options.flag("snapshot", True)
        poll = options.integer("poll_ms", 100, low=1, high=600_000)
        timeout = options.integer("timeout_ms", 10_000, low=1, high=600_000)
        retries = options.integer("retries", 7, low=0, high=1000)
        options.finish()
        for name, types in (("op", ("VARCHAR",)), ("ts_ms", ("BIGINT", "TIMESTAMP", "TIMESTAMPTZ"))):
            if name in schema and schema[name].type.name not in types:
                raise ConnectorError(f"{options.owner}: the column {name} is {' or '.join(types)}")
        assert poll and timeout and retries is not None
        library()
        return PostgresSource(
            schema,
            SlotOptions(address, table, slot, publication, bool(snapshot), poll / 1000, timeout / 1000, retries),
        )

    def size(self) -> int | None:
        return None

    def kept(self, offset: Offset) -> None:
        """The thread that reads lets the slot move on, soon."""
        if "lsn" in offset:
            self._kept = max(self._kept, lsn_number(offset["lsn"]))

    def read(self, offset: Offset, stop: Callable[[], bool], limit: int | None = None) -> Iterator[Chunk]:
        """From an offset on, over lost connections."""
        tries, wait = 0, 0.2
        while not stop():
            slot = _Slot(self._schema, self._reading, lambda: self._kept)
            try:
                for chunk in slot.read(offset, stop, limit or _MESSAGES):
                    offset, tries, wait = chunk.offset, 0, 0.2
                    yield chunk
            except (library().Error, _BusyError) as error:
                tries += 1
                if tries > self._reading.retries or not (isinstance(error, _BusyError) or is_transient(error)):
                    raise self._cannot(error) from error
                yield from _idle(self._schema, offset, wait, stop)
                wait = min(2 * wait, _LONGEST_WAIT)
            finally:
                slot.close()

    def _cannot(self, error: Exception) -> ConnectorError:
        place = f"the changes of {'.'.join(self._reading.table)} at {self._reading.address}"
        return ConnectorError(f"cannot read {place}: {told(error)}")


def _idle(schema: Schema, offset: Offset, seconds: float, stop: Callable[[], bool]) -> Iterator[Chunk]:
    """Nothing, for so long; the reader can look at the clock."""
    until = time.monotonic() + seconds
    none = pa.RecordBatch.from_arrays([pa.nulls(0, field.type.arrow) for field in schema], schema=schema.arrow)
    while not stop():
        yield Chunk(none, offset)
        if (left := until - time.monotonic()) <= 0:
            return
        time.sleep(min(left, _IDLE_SECONDS))


class _BusyError(Exception):
    """Somebody reads the slot, perhaps a session that died and whose connection did not end yet."""


class _Slot:
    """One connection, which nobody else reads the same slot on."""

    def __init__(self, schema: Schema, reading: SlotOptions, kept: Callable[[], int]) -> None:
        self._schema, self._reading, self._kept = schema, reading, kept
        self._connection: Any = None
        self._advanced = 0
        """where the slot is"""
        self._held = 0
        """messages that the slot had at the last look"""
        self._was_all = False
        """whether these were all there were"""
        self._table = ("", "")
        self._keys: list[str] = []
        self._rows = ChangedRows(schema, reading.table)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def read(self, offset: Offset, stop: Callable[[], bool], limit: int) -> Iterator[Chunk]:
        self._open(bool(offset))
        if not offset:
            offset = {"lsn": lsn_text(self._advanced), "row": 0, "time": 0}
            if self._reading.snapshot:
                chunk = self._whole(offset)
                offset = chunk.offset
                yield chunk
        if lsn_number(offset["lsn"]) < self._advanced:
            raise ConnectorError(
                f"the slot {self._reading.slot} no longer has the changes from {offset['lsn']} on",
                detail="it was moved on by somebody else, or created again",
                hint="drop the stream and declare it again, to begin with the rows that the table has now",
            )
        mark = looked = 0
        moved = time.monotonic()
        while not stop():
            self._move_on()
            inserted, flushed = map(
                lsn_number, self._ask("SELECT pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn()")
            )
            began = time.monotonic()
            if flushed > looked:
                looked = flushed
                for chunk in self._look(offset, stop, min(limit, _MESSAGES)):
                    offset = chunk.offset
                    yield chunk
                if stop():
                    return
                if not self._was_all:
                    looked = 0
                elif flushed >= mark > lsn_number(offset["lsn"]) and began - moved >= _MOVE_SECONDS:
                    # nothing that matters was committed up to a place where a record ended
                    offset, moved = self._at(offset, mark), began
            mark = inserted
            # looking costs the server the more the longer nothing was kept: it gets as much time for others
            spent = time.monotonic() - began
            yield from _idle(self._schema, offset, max(self._reading.poll_seconds, spent) if looked else 0, stop)

    def _look(self, offset: Offset, stop: Callable[[], bool], limit: int) -> Iterator[Chunk]:
        """Changes after an offset."""
        slot, publication = self._reading.slot, quoted(self._reading.publication)
        asked = self._held + _MORE
        decoder = self._decoder(offset)
        with self._connection.transaction(), self._connection.cursor("millstream") as cursor:
            cursor.execute(_PEEK, (slot, asked, publication, offset["lsn"]), binary=True)
            self._held = -int(cursor.fetchone()[0])
            self._was_all = self._held < asked
            while not stop() and (messages := [bytes(data) for _, data in cursor.fetchmany(limit)]):
                piece = decoder.decode(messages)
                if piece.end is not None:
                    offset = self._at(offset, piece.end)
                offset = {**offset, "row": piece.within, "time": decoder.time}
                if piece.rows.num_rows or piece.rejected:
                    yield Chunk(piece.rows, offset, piece.rejected)

    def _decoder(self, offset: Offset) -> ChangeDecoder:
        seen, until = _Snapshot.read(offset.get("seen")), lsn_number(offset.get("until", "0/0"))

        def is_known(xid: int, lsn: int) -> bool:
            return lsn < until and seen.has(xid)

        return ChangeDecoder(self._rows, self._table, self._keys, is_known, int(offset["time"]), int(offset["row"]))

    def _at(self, offset: Offset, lsn: int) -> Offset:
        """Transactions have been read up to there."""
        rest = {name: value for name, value in offset.items() if lsn < lsn_number(offset.get("until", "0/0"))}
        return {**rest, "lsn": lsn_text(lsn), "row": 0, "time": offset["time"]}

    def _whole(self, offset: Offset) -> Chunk:
        """All rows that the table has now, in one piece: they are taken together or not at all."""
        names = self._rows.columns
        text = io.BytesIO()
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            seen, until, now = self._ask(
                "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, "
                "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
            )
            listed = ", ".join(map(self._named, names)) or "1"
            query = f"COPY (SELECT {listed} FROM {quoted(*self._table)}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
            with self._connection.cursor() as cursor, cursor.copy(query) as copying:
                for block in copying:
                    text.write(block)
        offset = {**offset, "time": int(now), "seen": seen, "until": until}
        if not text.tell():
            return Chunk(self._rows.none, offset)
        columns = [name.lower() for name in names] or ["1"]
        text.seek(0)
        table = csv.read_csv(
            text,
            csv.ReadOptions(column_names=columns, block_size=1 << 24),
            csv.ParseOptions(newlines_in_values=True),
            csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()), null_values=[""], strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ).combine_chunks()  # fmt: skip
        texts = {name: table.column(name).chunk(0) for name in columns}
        ops = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int8), ["r"]).cast(pa.string())
        at = lsn_number(until)
        rows, rejected = self._rows.fitted(texts, ops, np.full(len(table), int(now)), {}, lambda _: at)
        return Chunk(rows, offset, rejected)

    # -- the server ----------------------------------------------------------------------------------------------------

    def _open(self, is_begun: bool) -> None:
        reading = self._reading
        self._connection = connected(reading.address, reading.timeout, **_SETTINGS)
        self._check_server()
        if not self._ask("SELECT pg_try_advisory_lock(hashtextextended('millstream slot ' || %s, 0))", reading.slot)[0]:
            raise _BusyError(f"the slot {reading.slot} is being read by another session")
        self._find_table()
        # first the publication: changes from before it cannot be decoded with it
        if self._ask("SELECT 1 FROM pg_publication WHERE pubname = %s", reading.publication) is None:
            self._connection.execute(
                f"CREATE PUBLICATION {quoted(reading.publication)} FOR TABLE {quoted(*self._table)} "
                "WITH (publish_via_partition_root = true)"
            )
        elif not self._ask(
            "SELECT 1 FROM pg_publication_tables WHERE (pubname, schemaname, tablename) = (%s, %s, %s)",
            reading.publication, *self._table,
        ):  # fmt: skip
            raise ConnectorError(
                f"the publication {reading.publication} has not the table {'.'.join(self._table)}",
                hint=f"ALTER PUBLICATION {quoted(reading.publication)} ADD TABLE {quoted(*self._table)}",
            )
        self._advanced = self._slot_at(is_begun)

    def _slot_at(self, is_begun: bool) -> int:
        """Where the slot is, which is created if nothing was read from it yet."""
        slot = self._reading.slot
        where = "FROM pg_replication_slots WHERE slot_name = %s"
        found = self._ask(f"SELECT confirmed_flush_lsn::text, plugin, database = current_database() {where}", slot)
        if found is None and is_begun:
            raise ConnectorError(
                f"PostgreSQL has no replication slot {slot} any more",
                detail="without it, changes since the last reading are lost",
                hint="drop the stream and declare it again, to begin with the rows that the table has now",
            )
        if found is None:
            return lsn_number(
                self._ask("SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", slot)[0]
            )
        if found[1] != "pgoutput" or not found[2]:
            raise ConnectorError(
                f"{slot} is not a slot of this database with the plugin pgoutput", hint="choose another slot"
            )
        return lsn_number(found[0])

    def _check_server(self) -> None:
        level, encoding = self._ask("SELECT current_setting('wal_level'), current_setting('server_encoding')")
        if level != "logical":
            raise ConnectorError(
                f"PostgreSQL at {self._reading.address} has wal_level = {level}",
                hint="set wal_level = logical in postgresql.conf, and restart PostgreSQL",
            )
        if encoding == "SQL_ASCII":
            raise ConnectorError("the encoding of this database is SQL_ASCII", hint="its text has no known encoding")

    def _find_table(self) -> None:
        """The schema and the name of the table, its columns and its primary key."""
        name = quoted(*self._reading.table)
        found = self._ask(
            "SELECT nspname, relname, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE c.oid = to_regclass(%s) AND relkind IN ('r', 'p')", name,
        )  # fmt: skip
        if found is None:
            raise ConnectorError(
                f"there is no table {'.'.join(self._reading.table)} at {self._reading.address}",
                hint="table = 'name' or 'schema.name', with the case it has in PostgreSQL",
            )
        self._table = found[0], found[1]
        names = (
            "SELECT coalesce(array_agg(attname::text ORDER BY attnum), '{}') FROM pg_attribute "
            "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND "
        )
        self._columns = self._ask(names + "attgenerated = ''", found[2])[0]
        key = "attnum = ANY ((SELECT indkey FROM pg_index WHERE indrelid = attrelid AND indisprimary)::int2[])"
        self._keys = self._ask(names + key, found[2])[0]
        check_columns(self._rows.columns, self._columns, self._table)

    def _named(self, column: str) -> str:
        return quoted(next(name for name in self._columns if name.lower() == column.lower()))

    def _move_on(self) -> None:
        """Let the slot forget what is kept."""
        if (kept := self._kept()) > self._advanced:
            self._ask("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", self._reading.slot, lsn_text(kept))
            self._advanced = kept

    def _ask(self, text: str, *values: Any) -> Any:
        return self._connection.execute(text, values).fetchone()


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Which transactions a reader of the table could see, as `pg_current_snapshot` writes it."""

    high: int = 0
    running: frozenset[int] = frozenset()

    @staticmethod
    def read(text: str | None) -> _Snapshot:
        if text is None:
            return _Snapshot()
        _, high, running = text.split(":")
        return _Snapshot(int(high), frozenset(int(each) & 0xFFFFFFFF for each in running.split(",") if each))

    def has(self, xid: int) -> bool:
        """Numbers of transactions come round after 4 billion; the nearest to the snapshot is meant."""
        after = ((xid - self.high) & 0xFFFFFFFF) < 0x80000000
        return not after and xid not in self.running
