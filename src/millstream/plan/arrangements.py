"""The rows of a partition in an order, with what SQL's window functions say of each: for rows that are all there."""

from __future__ import annotations

import re

from millstream.plan.node import listed
from millstream.plan.ties import SortKey
from millstream.records import dataclass
from millstream.schema import Field
from millstream.types import SqlType

_BOUND = r"(UNBOUNDED PRECEDING|UNBOUNDED FOLLOWING|CURRENT ROW|[\d.]+ PRECEDING|[\d.]+ FOLLOWING)"
_FRAME = re.compile(rf"(ROWS|RANGE|GROUPS) BETWEEN {_BOUND} AND {_BOUND}( EXCLUDE (CURRENT ROW|GROUP|TIES))?")

OF_PLACE = frozenset(("row_number", "ntile", "lag", "lead"))
"""functions that tell each row from all others, those of equal order included"""

OF_PEERS = frozenset(("rank", "dense_rank", "percent_rank", "cume_dist"))
"""functions that say the same of all rows of equal order"""

OF_EDGES = frozenset(("first_value", "last_value", "nth_value"))


@dataclass(frozen=True)
class ArrangedCall:
    """`name` := fn(args) over the frame of each row; `number` is the constant that comes behind the first argument.

    Bounds of a RANGE over times are in µs. `arrived` numbers rows as they came.
    """

    name: str
    fn: str
    args: tuple[str, ...]
    type: SqlType
    frame: str | None = None
    number: int | None = None
    distinct: bool = False
    ignores_nulls: bool = False

    def __post_init__(self) -> None:
        if self.frame is not None and not _FRAME.fullmatch(self.frame):
            raise ValueError(f"no frame: {self.frame}")

    @property
    def told(self) -> str:
        """The call alone."""
        numbers = () if self.number is None else (str(self.number),)
        given = listed((*self.args[:1], *numbers, *self.args[1:]))
        return (
            f"{self.fn}({'DISTINCT ' if self.distinct else ''}{given}){'' if self.frame is None else f' {self.frame}'}"
        )

    def __str__(self) -> str:
        return f"{self.name} := {self.told}"


@dataclass(frozen=True)
class Arrangement:
    """The rows of a partition by `order`, then by `ties`, then as they came; with calls, and only `count` of them
    behind the first `skip`, if it says so."""

    order: tuple[SortKey, ...]
    calls: tuple[ArrangedCall, ...] = ()
    ties: tuple[str, ...] = ()
    skip: int = 0
    count: int | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that it adds."""
        return tuple(Field(call.name, call.type) for call in self.calls)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        return (*(key.column for key in self.order), *(arg for call in self.calls for arg in call.args), *self.ties)

    def __str__(self) -> str:
        said = [f"in order of {', '.join(map(str, self.order))}"] if self.order else []
        if self.count is not None:
            said.append(f"rows {self.skip + 1} to {self.skip + self.count}")
        elif self.skip:
            said.append(f"rows from {self.skip + 1}")
        return "; ".join([*said, *map(str, self.calls)])
