"""The bytes that clients send, put together to complete lines and decoded in common blocks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import field

from millstream.connectors.contract import Chunk, Rejected
from millstream.connectors.text.csv_format import CsvFormat
from millstream.connectors.text.decoder import MAX_ROW_BYTES, RowDecoder, TextFormat, overlong, show
from millstream.connectors.text.json_format import JsonFormat
from millstream.connectors.textoptions import TextOptions
from millstream.records import dataclass
from millstream.schema import Schema

CUT_OFF = "connection closed inside a row"


@dataclass(eq=False)
class Client:
    """One connection: what it has sent of a row so far, and how its rows are decoded."""

    connection: socket.socket
    name: str
    rest: bytearray = field(default_factory=bytearray)
    lines: int = 0
    decoder: RowDecoder | None = None
    start_of_overlong: bytes = b""

    @property
    def place(self) -> str:
        return f"{self.name}:{self.lines + 1}"


@dataclass(slots=True)
class Block:
    """Complete lines of clients that share a decoder, and which lines are whose."""

    decoder: RowDecoder
    data: bytearray = field(default_factory=bytearray)
    lines: int = 0
    parts: list[tuple[int, Client, int]] = field(default_factory=list)

    def add(self, client: Client, data: bytes) -> None:
        self.parts.append((self.lines, client, client.lines))
        self.data += data
        count = data.count(b"\n")
        self.lines += count
        client.lines += count

    def origin(self, line: int) -> str:
        start, client, before = next(part for part in reversed(self.parts) if part[0] <= line)
        return f"{client.name}:{before + line - start + 1}"

    def decode(self, limit: int, count: int) -> Iterator[Chunk]:
        """Chunks of at most `limit` rows; `count` rows came before them."""
        data = bytes(self.data)
        position = line = 0
        window = max(1 << 16, limit << 10)
        reach = window
        while position < len(data):
            decoded = self.decoder.decode(data[position : position + reach], False, limit)
            if decoded.consumed == 0:
                reach *= 2
                continue
            rejected = tuple(Rejected(bad.error, bad.text, self.origin(line + bad.line)) for bad in decoded.bad)
            position, line, reach = position + decoded.consumed, line + decoded.lines, window
            count += decoded.rows.num_rows + len(rejected)
            if decoded.rows.num_rows or rejected:
                yield Chunk(decoded.rows, {"rows": count}, rejected)


class LineCollector:
    """Turns what clients send into blocks of complete lines; what is no line goes to `rejected`."""

    def __init__(self, schema: Schema, form: str, text: TextOptions) -> None:
        self._form = form
        self._json: TextFormat = JsonFormat(schema, text.rules)
        self._csv: TextFormat = CsvFormat(
            schema, text.rules, text.delimiter or ",", text.header, text.null_value, multiline=False
        )
        self._decoders: dict[bytes, RowDecoder] = {}
        self._blocks: dict[int, Block] = {}
        self._rejected: list[Rejected] = []

    def blocks(self) -> list[Block]:
        """The lines collected since the last call."""
        blocks, self._blocks = list(self._blocks.values()), {}
        return blocks

    def rejected(self) -> tuple[Rejected, ...]:
        """What was rejected without being decoded since the last call."""
        rejected, self._rejected = tuple(self._rejected), []
        return rejected

    def take(self, client: Client, data: bytes) -> None:
        """Add a client's complete lines to the block of its decoder and keep the rest."""
        end = data.rfind(b"\n") + 1
        if end == 0:
            client.rest += data
            if len(client.rest) > MAX_ROW_BYTES:
                client.start_of_overlong = client.start_of_overlong or bytes(client.rest[:200])
                client.rest.clear()
            return
        complete = bytes(client.rest) + data[:end]
        client.rest = bytearray(data[end:])
        if client.start_of_overlong:
            self._reject_overlong(client)
            complete = complete[complete.find(b"\n") + 1 :]
        if client.decoder is None and complete:
            client.decoder, header = self._begin(complete)
            client.lines += complete.count(b"\n", 0, header)
            complete = complete[header:]
        if complete:
            assert client.decoder is not None
            self._blocks.setdefault(id(client.decoder), Block(client.decoder)).add(client, complete)

    def leave(self, client: Client) -> None:
        """What a client leaves behind when it goes: a complete JSON text is a row, anything else was cut off."""
        rest = bytes(client.rest)
        if client.start_of_overlong:
            self._reject_overlong(client)
        elif rest.strip():
            decoder = client.decoder or self._begin(rest + b"\n")[0]
            if decoder is self._decoders.get(b"json") and not decoder.decode(rest, True, 1).bad:
                self._blocks.setdefault(id(decoder), Block(decoder)).add(client, rest + b"\n")
            else:
                self._rejected.append(Rejected(CUT_OFF, show(rest), client.place))

    def _reject_overlong(self, client: Client) -> None:
        bad = overlong(client.start_of_overlong)
        self._rejected.append(Rejected(bad.error, bad.text, client.place))
        client.start_of_overlong = b""
        client.lines += 1

    def _begin(self, head: bytes) -> tuple[RowDecoder, int]:
        """The decoder for a client by its first line; clients with the same columns share one."""
        first = head[: head.find(b"\n") + 1]
        is_json = self._form == "json" or (self._form == "auto" and first.lstrip()[:1] in (b"{", b"["))
        begun = (self._json if is_json else self._csv).begin(head, True)
        assert begun is not None
        decoder, length = begun
        key = b"json" if is_json else b"csv" + (first if length >= len(first) else b"")
        return self._decoders.setdefault(key, decoder), length
