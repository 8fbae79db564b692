"""History: KEEP of a stream, WITH HISTORY and SINCE of a query, and the statements that change what runs.

Any exp.Query may have args["history"], a WithHistory: the query also sees rows that came before it.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millstream.sql.arguments import Arg
from millstream.sql.events import EventParser
from millstream.sql.failures import quoted
from millstream.sql.relations import StreamWindow
from millstream.sql.spans import cover

BYTES = {"B": 1, "BYTES": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


class Keep(exp.Expression):
    """KEEP of a stream; `kind` is ALL, ROWS, BYTES or TIME, `size` a number or an Interval, `unit` that of bytes,
    `key` a column after BY."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "size": False, "unit": False, "key": False}

    kind = Arg[str]()

    @property
    def text(self) -> str:  # type: ignore[override]
        unit = {"ROWS": " ROWS", "BYTES": f" {self.args.get('unit')}"}.get(self.kind, "")
        amount = "ALL" if self.kind == "ALL" else f"{self.args['size'].sql(dialect='millstream')}{unit}"
        key = self.args.get("key")
        return amount if key is None else f"{amount} BY {key.sql(dialect='millstream')}"


class WithHistory(exp.Expression):
    """WITH HISTORY [SINCE …] of a query; `since` is a string or a number."""

    arg_types: ClassVar[dict[str, bool]] = {"since": False}


class StreamAlteration(exp.Expression):
    """ALTER STREAM `this` KEEP …; without `keep` NO HISTORY."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "keep": False}


class QueryAlteration(exp.Expression):
    """ALTER QUERY `this` AS `query`, or SET WINDOW [ON `item`] `window`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "query": False, "item": False, "window": False}

    window = Arg[StreamWindow | None]()


class Pause(exp.Expression):
    """PAUSE `this`, or with `resume` RESUME."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "resume": False}


class HistoryParser(EventParser):
    """WITH HISTORY and SINCE, behind an item of FROM or at the end of a query."""

    _history: WithHistory | None = None

    def begin(self, tokens: int) -> None:
        super().begin(tokens)
        self._history = None

    def _parse_table_alias(self, alias_tokens: object = None) -> exp.TableAlias | None:
        if self._at_since():
            return None
        return super()._parse_table_alias(alias_tokens)

    def _at_since(self) -> bool:
        """At `SINCE '…'`; anywhere else the word is a name."""
        return self._match_texts(("SINCE",), advance=False) and self._next.token_type in (
            TokenType.STRING,
            TokenType.NUMBER,
            TokenType.DASH,
        )

    def _parse_history(self) -> WithHistory | None:
        first = self._curr
        asked = self._match_text_seq("WITH", "HISTORY")
        since = None
        if self._at_since():
            self._advance()
            since = self._parse_since()
        if not asked and since is None:
            return None
        node = WithHistory(since=since)
        cover(node, first, self._prev)
        return node

    def _parse_since(self) -> exp.Expr:
        if self._curr.token_type is TokenType.STRING:
            return cast(exp.Expr, self._parse_primary())
        if self._match_pair(TokenType.DASH, TokenType.NUMBER, advance=False):
            return cast(exp.Expr, self._parse_unary())
        return cast(exp.Expr, self._parse_number())

    def _note_history(self) -> None:
        """WITH HISTORY behind an item of FROM is that of the query around it."""
        self._history = self._parse_history() or self._history

    def _give_history(self, query: Any) -> None:
        """A query ends here: what was noted in its FROM clause, or stands at its end, is its own."""
        self._note_history()
        if self._history is not None and isinstance(query, exp.Query):
            query.set("history", self._history)
            self._history = None

    # KEEP

    def _parse_keep(self) -> Keep:
        first = self._curr
        node = self._parse_kept()
        if self._match_text_seq("BY"):
            node.set("key", self._parse_name("the name of a column"))
        cover(node, first, self._prev)
        return node

    def _parse_kept(self) -> Keep:
        if self._match(TokenType.ALL):
            return Keep(kind="ALL")
        unit = self._next.text.upper()
        if self._curr.token_type is TokenType.NUMBER and unit in ("ROW", "ROWS"):
            size = self._parse_number()
            self._advance()
            return Keep(kind="ROWS", size=size)
        if self._curr.token_type is TokenType.NUMBER and unit in BYTES:
            size = self._parse_number()
            self._advance()
            return Keep(kind="BYTES", size=size, unit=unit)
        span = self._parse_time_span() or self._parse_number()
        if span is None:
            failure = self._failure(f"expected an amount to keep, found {quoted(self._curr)}", self._curr)
            failure.hint = "KEEP 1 DAY, KEEP 10 GB, KEEP 1000000 ROWS or KEEP ALL"
            raise failure
        return Keep(kind="TIME", size=span)
