"""Which generators there are, and the table that a declaration means."""

from __future__ import annotations

from millstream.connectors.generators.clicks import Clicks
from millstream.connectors.generators.nexmark import Auctions, Bids, Persons
from millstream.connectors.generators.nexmark_closed import ClosedAuctions
from millstream.connectors.generators.quotes import Quotes
from millstream.connectors.generators.table import GeneratedRows
from millstream.connectors.options import closest
from millstream.errors import ConnectorError

KINDS = ("nexmark", "quotes", "clicks")
TABLES: dict[str, dict[str, type[GeneratedRows]]] = {
    "nexmark": {"person": Persons, "auction": Auctions, "bid": Bids, "closed": ClosedAuctions},
    "quotes": {"quotes": Quotes},
    "clicks": {"clicks": Clicks},
}
_NAMES = {
    "persons": "person", "people": "person", "auctions": "auction", "openauction": "auction", "open": "auction",
    "openauctions": "auction", "bids": "bid", "closedauction": "closed", "closedauctions": "closed",
}  # fmt: skip


def choose_table(kind: str, table: str | None, stream: str) -> type[GeneratedRows]:
    """The table by its name, or by the stream's name where that tells."""
    tables = TABLES[kind]
    if table is None:
        if len(tables) == 1:
            return next(iter(tables.values()))
        name = stream.lower().replace("_", "")
        told = next((key for key in ("closed", "person", "people", "bid", "auction") if key in name), None)
        if told is None:
            raise ConnectorError(
                f"connector {kind} needs the option table", hint=f"table is one of {', '.join(tables)}"
            )
        return tables[_NAMES.get(told, told)]
    name = table.lower().replace("_", "")
    name = _NAMES.get(name, name)
    if name not in tables:
        raise ConnectorError(
            f"connector {kind} has no table {table}", hint=f"table is one of {', '.join(tables)}{closest(name, tables)}"
        )
    return tables[name]
