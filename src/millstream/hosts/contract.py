"""What a session asks of a host: run physical plans over pushed rows and declared sources."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Any, Protocol

import pyarrow as pa

from millstream.catalog import FromHistory, SinkDef, StreamDef
from millstream.connectors.contract import Rejected, RowSource
from millstream.errors import CatalogError, MillstreamError
from millstream.expressions.nodes import Literal
from millstream.hosts.results import Admit, ResultLog
from millstream.physical.nodes import Physical
from millstream.plan.costs.statistics import Statistics
from millstream.plan.nodes import Node
from millstream.plan.shapes import name_of
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT

MEMBER = "$number"
"""the column of a table of constants that tells queries apart"""


@dataclass(frozen=True)
class Member:
    """One of several queries that run as one: its row of the table of constants that their plans are joined with.
    The host keeps such tables; a query takes its row with it when it comes and when it goes."""

    table: str
    number: int
    constants: tuple[Literal, ...]

    @property
    def schema(self) -> Schema:
        """The columns of the table."""
        own = (Field(name_of(place), each.type) for place, each in enumerate(self.constants))
        return Schema((Field(MEMBER, BIGINT), *own))

    @property
    def alone(self) -> Member:
        """The same row as the only one of a table."""
        table = self.table.partition("/")[0]
        return Member(f"{table}/{self.number}", self.number, self.constants)

    @property
    def is_alone(self) -> bool:
        return self.alone == self


@dataclass(frozen=True)
class ReadyQuery:
    """A query ready to run: `columns` are the names its rows are delivered under (they may repeat)."""

    name: str
    plan: Physical
    columns: tuple[str, ...]
    sink: SinkDef | None = None
    relation: bool = False
    """whether its rows are valid during intervals, which their last two columns tell"""
    view: bool = False
    """whether nobody fetches its rows: it is there for its content"""
    bound: Node | None = None
    """the logical plan as it was bound, before any rule; None if physical operators were given as they are"""
    history: FromHistory | None = None
    """whether it also sees rows that came before it"""
    member: Member | None = field(default=None, metadata={"later": True})
    """of one that shares its operators with queries which have other constants"""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come, for displays: rows in and out per name, and whether it has ended."""

    rows_in: Mapping[str, int] = field(default_factory=dict)
    rows_out: Mapping[str, int] = field(default_factory=dict)
    rejected: int = 0
    late: int = 0
    total: int | None = None
    backfilling: Mapping[str, float] = field(default_factory=dict)
    """queries that are about to start, or to change, and how much of the kept rows they have seen: 0 to 1"""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of the rows that arrived were accepted, late (beyond the stream's slack), or rejected by its schema."""

    accepted: int = 0
    late: int = 0
    rejected: int = 0

    @property
    def lost(self) -> int:
        """How many of them only LATE(s) and ERRORS(s) have."""
        return self.late + self.rejected

    def __str__(self) -> str:
        return f"{self.accepted} accepted, {self.late} late, {self.rejected} rejected"

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.accepted + other.accepted, self.late + other.late, self.rejected + other.rejected)


@dataclass(frozen=True, slots=True)
class Once:
    """A push that takes effect once, however often it is tried: who pushes, and the number of the push, which grows."""

    producer: str
    number: int


@dataclass(frozen=True, slots=True)
class Shared:
    """An operator that runs once for several queries."""

    operator: str
    queries: tuple[str, ...]
    how: str


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """An operator that runs, or the entry of a stream, and what has passed it since the session was opened."""

    id: str
    label: str
    inputs: tuple[str, ...]
    rows: int
    """how many it has emitted"""
    upto: int | None
    """how far time has come behind it"""
    behind: int | None
    """how far that is behind the latest time of its streams"""
    state: int | None
    """about how many bytes it keeps; None if it keeps nothing"""
    seconds: float
    """how long it has worked"""
    queries: int
    """how many queries it works for"""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """What has become of the rows of a stream, and what is kept of them."""

    counts: Counts
    latest: int | None
    """the latest time of a row or a heartbeat"""
    upto: int | None
    """how far rows are in order and have been passed on"""
    waiting: int
    """rows that wait to be put in order"""
    kept: int
    """rows that are there for queries that come later"""


class Stepping(Protocol):
    """A copy of a running query, with its state, that takes rows one by one and gives none to anybody."""

    @property
    def waiting(self) -> int:
        """How many rows have come since that it has not taken."""
        ...

    @property
    def has_missed(self) -> bool:
        """Whether more rows came than may wait."""
        ...

    def push(self, stream: str, rows: pa.RecordBatch) -> dict[str, pa.Table]:
        """Take rows that only the copy gets, before those that wait: what passed each operator, by its id."""
        ...

    def step(self) -> dict[str, pa.Table]:
        """Take the next row: what passed each operator."""
        ...

    def close(self) -> None: ...


class Inspector(Protocol):
    """Looks at the operators of running queries, without any effect on them."""

    def operators(self, query: str | None = None) -> list[OperatorFigures]:
        """The operators of a query, or of all, each after those it takes from."""
        ...

    def stream(self, name: str) -> StreamFigures:
        """What has become of the rows of a stream."""
        ...

    def peek(self, id: str) -> pa.Table:
        """The latest rows that an operator, or a stream, has emitted since somebody looks; that ends by itself."""
        ...

    def copy(self, query: str) -> Stepping:
        """A copy of a query to step through."""
        ...


@dataclass(frozen=True, slots=True)
class Coverage:
    """Since when a query has seen all rows of its streams, and from when on its answers are complete: instants, None if
    unknown or never. `is_complete`: it has seen all rows that there ever were."""

    since: int | None
    complete_from: int | None
    is_complete: bool


Report = Callable[[Progress], None]

Left = Callable[[], pa.Table]
"""what a query that was stopped had left to fetch"""


class Host(Protocol):
    """One place where queries run. Streams are known to it by their definitions, queries by their programs."""

    def new_member(self) -> int | None:
        """A number for a query that shares its operators with others; None if queries that come later cannot."""
        ...

    def declare(self, stream: StreamDef) -> None:
        """Make a stream known before anything reads or feeds it."""
        ...

    def bind_source(self, stream: str, source: RowSource) -> None:
        """Let the rows of a declared stream come from `source`."""
        ...

    def forget(self, stream: str) -> None: ...

    def hold(self, stream: str, rows: object) -> Counts | None:
        """Take a few rows that enter together with later ones, if nobody can notice; None if they must be pushed."""
        ...

    def progress(self) -> Progress:
        """How far it has come."""
        ...

    def settle(self) -> None:
        """Let rows in that were held: called before anything changes that they could meet."""
        ...

    def start(self, program: ReadyQuery) -> None: ...

    def replace(self, program: ReadyQuery) -> None:
        """Let a program take the place of the query of its name; what state it kept must be what the program keeps."""
        ...

    def stop(self, name: str) -> Left:
        """End a query; what it had produced and nobody had fetched is still there to be asked for."""
        ...

    def prepare(self, program: ReadyQuery) -> None:
        """Do ahead what takes long of starting a query or altering the one of its name; the others go on meanwhile."""
        ...

    def alter(self, program: ReadyQuery) -> None:
        """Let a program take the place of the query of its name, which keeps its sink, its readers and its rows."""
        ...

    def explain_alteration(self, program: ReadyQuery) -> list[str]:
        """What `alter` would reuse, and what it would compute anew."""
        ...

    def pause(self, name: str) -> None:
        """Pause a query: no rows reach it."""
        ...

    def go_on(self, name: str) -> None:
        """Let a query that rests go on, with rows that were kept meanwhile."""
        ...

    def state(self, name: str) -> str:
        """running, paused, failed or ended."""
        ...

    def coverage(self, name: str) -> Coverage:
        """From when on the answers of a query are complete."""
        ...

    def keep(self, stream: StreamDef) -> None:
        """Keep as much of a stream's past as its definition says."""
        ...

    def history(self, stream: str) -> Any:
        """The kept rows of a stream: an Arrow data set or table."""
        ...

    def sources_of_history(self, program: ReadyQuery) -> list[str]:
        """Where a query that starts now would take rows of the past from."""
        ...

    def push(
        self, stream: str, rows: pa.RecordBatch, rejected: tuple[Rejected, ...], once: Once | None = None
    ) -> Counts:
        """Rows of a stream, in order of arrival, with those that were refused on the way."""
        ...

    def counts(self, name: str) -> Counts:
        """What became of all rows of the streams that a query reads, as far as it is known."""
        ...

    def advance(self, stream: str, upto: int) -> None:
        """No later row of the stream is below `upto`."""
        ...

    def finish(self) -> None:
        """All inputs have ended: run declared sources to their end and deliver everything."""
        ...

    def fetch(self, name: str) -> pa.Table:
        """What a query has produced since the last fetch."""
        ...

    def admit(self, name: str, admit: Admit) -> None:
        """Let a query's results only have the rows that `admit` leaves of them."""
        ...

    def unfetched(self, name: str) -> tuple[int, int]:
        """Between which positions of what a query has produced so far the rows are that wait to be fetched."""
        ...

    def results(self, name: str) -> ResultLog:
        """All that a query produces, for readers."""
        ...

    def acknowledge(self, name: str, reader: str, upto: int | None) -> None:
        """A reader with a name needs no rows of a query before a position any more; with None it needs none at all."""
        ...

    def trouble(self) -> Mapping[str, str]:
        """What is wrong, by the names (in small letters) of queries that failed and of streams no longer read."""
        ...

    def phase(self, name: str) -> str:
        """How far a query is that is about to start or to change; safe from any thread."""
        ...

    def waits(self, name: str) -> bool:
        """Whether rows that are pushed feed the query, so that it goes on when declared sources have ended."""
        ...

    knows_what_waits: bool
    """whether it can tell what waits in operators"""

    def takes_in(self, name: str, inputs: Collection[Physical]) -> bool:
        """Whether a query that joins a running one now sees no row from before, although these inputs of automata have
        rows for all queries: none of these wait for first events that are still to come."""
        ...

    def emit_so_far(self, name: str) -> None:
        """Emit what is final of a query's rows so far, before a table that they meet changes."""
        ...

    def content(self, name: str, at: int | None) -> pa.Table:
        """The content of a relation at an instant, or now."""
        ...

    def content_of(self, program: ReadyQuery, at: int | None) -> pa.Table:
        """The content that a relation would have at an instant, or now, from rows that its streams keep. It is another
        definition of the query of its name, and does not run."""
        ...

    def run(self, names: tuple[str, ...], report: Report | None = None) -> None:
        """Read the declared sources that feed these queries until they end (or `interrupt`)."""
        ...

    def interrupt(self) -> None:
        """Ask a `run` in progress to come to an orderly end soon; safe from a signal handler."""
        ...

    def cancel(self, name: str, error: MillstreamError | None = None) -> None:
        """Let a query end soon, with a CancelledError unless another is given; safe from any thread."""
        ...

    def statistics(self) -> Statistics:
        """What is known of the streams by now."""
        ...

    def sharing(self) -> list[Shared]:
        """The operators that run once for several queries."""
        ...

    def inspector(self) -> Inspector | None:
        """Who looks at running operators; None if they run elsewhere."""
        ...

    def explain(self, program: ReadyQuery) -> str:
        """How this host would run the program: its stages."""
        ...

    def close(self) -> None: ...


def not_running(name: str) -> CatalogError:
    """What to say when a query is asked for that was stopped."""
    return CatalogError(f"query {name} is not running", hint="it was stopped; start it again with sql()")
