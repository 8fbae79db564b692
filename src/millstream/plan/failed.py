"""The error side of a query: ERRORS(q)."""

from __future__ import annotations

from typing import Any

from millstream.plan.node import Kind, Node
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.types import VARCHAR

FAILED_SCHEMA = Schema.of(error=VARCHAR, row=VARCHAR)
"""what of a row could not be computed, and the values that it reads, as JSON"""


@dataclass(frozen=True)
class FailedRows(Node):
    """The rows that a running query leaves out because a value of theirs cannot be computed (`on_error = 'row'`).

    Which rows fail is known of the operators that run, so `operators` is a physical plan.
    """

    schema = FAILED_SCHEMA
    kind = Kind.EVENTS

    query: str
    streams: tuple[str, ...]
    operators: Any

    def label(self) -> str:
        return f"Errors of {self.query}"
