"""What a statement asks the session to do."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

import pyarrow as pa

from millstream.bind.queries.outputs import Bound
from millstream.bind.tables.aggregates import TableAggregates
from millstream.catalog import Entry, FromHistory, Options, Retention, SinkDef
from millstream.records import dataclass
from millstream.sql.relations import StreamWindow


@dataclass(frozen=True)
class Define:
    """Put an entry into the catalog; `uses` are the names it depends on."""

    entry: Entry
    replace: bool = False
    if_not_exists: bool = False
    uses: frozenset[str] = frozenset()
    in_use: bool = False
    """whether it replaces one that others use: they are about to be replaced, too"""
    rows_from: Options | None = None
    """a table's first rows: the options of a source that ends"""
    history: FromHistory | None = None
    """what a view also sees of its streams' past"""
    followers: tuple[Define | AlterQuery, ...] = ()
    """what uses the definition that it replaces, bound to the new one"""


@dataclass(frozen=True)
class Remove:
    name: str
    kinds: tuple[type[Entry], ...]
    if_exists: bool = False


@dataclass(frozen=True)
class StartQuery:
    """Start a continuous query; with `sink`, its rows go there. `replace`: one of that name hands over its state."""

    bound: Bound
    uses: frozenset[str]
    sink: SinkDef | None = None
    replace: bool = False
    history: FromHistory | None = None
    view: bool = False
    """whether it stands for a view in EXPLAIN"""
    kept: bool = True
    """whether it runs again when its session is opened again"""


@dataclass(frozen=True)
class AlterQuery:
    """Let a query take the place of the running one of that name, with its sink and its readers; `text` is the new
    definition."""

    name: str
    query: StartQuery
    text: str


@dataclass(frozen=True)
class AlterWindow:
    """Give a running query another window on a stream in FROM; `stream` is None if it has only one."""

    name: str
    stream: str | None
    window: StreamWindow


@dataclass(frozen=True)
class AlterStream:
    """Keep more or less of a stream's past."""

    name: str
    keep: Retention | None


@dataclass(frozen=True)
class PauseQuery:
    """Pause or resume a query."""

    name: str
    resume: bool = False


@dataclass(frozen=True)
class Publish:
    """Make streams of queries, and start the one around them; if that is published itself, only for who asks for it."""

    streams: tuple[Define, ...]
    query: StartQuery
    is_stream: bool


@dataclass(frozen=True)
class OnTables:
    """Run on the stored tables, and on views as they are at this moment; `sql` is in the table store's dialect, `reads`
    are the tables it names and `views` the views."""

    sql: str
    reads: frozenset[str]
    is_query: bool
    create: tuple[str, bool] | None = None
    own: TableAggregates | None = None
    """instead of `sql`, a query that calls aggregates written in SQL or Python"""
    views: tuple[str, ...] = ()
    histories: tuple[str, ...] = ()
    """the streams whose kept rows it reads"""

    changed: str | None = None
    """the table that it changes"""
    effect: Literal["insert", "delete", "any"] = "any"
    """whether it does nothing but insert rows, or delete rows"""


@dataclass(frozen=True)
class StartSet:
    """Start queries of one shape, one for each row of a stored table, and one for each that comes."""

    name: str
    text: str
    """with a parameter for each column of the table that it reads"""
    table: str
    key: str
    sink: SinkDef | None = None


@dataclass(frozen=True)
class ChangeRows:
    """Rows come into a stored table whose changes are remembered, or go by their numbers."""

    table: str
    rows: pa.Table | None
    gone: pa.RecordBatch | None


@dataclass(frozen=True)
class PushRows:
    """Push the rows of a query over stored tables, or of VALUES, into a stream."""

    stream: str
    query: OnTables


@dataclass(frozen=True)
class ExplainPlan:
    of: StartQuery | AlterQuery | AlterWindow
    mode: str


@dataclass(frozen=True)
class ShowList:
    kind: str


@dataclass(frozen=True)
class DescribeEntry:
    name: str


@dataclass(frozen=True)
class StopQuery:
    """Stop a query, or with `whole` whatever has that name: a set of queries, too."""

    name: str
    whole: bool = False


@dataclass(frozen=True)
class ChangeSetting:
    """SET, or RESET if `value` is None."""

    name: str
    value: object = field(default=None)


@dataclass(frozen=True)
class KeepSet:
    """A set of queries as it is now."""

    name: str


@dataclass(frozen=True)
class ForgetSet:
    """A set of queries ends."""

    name: str


@dataclass(frozen=True)
class SetPlace:
    """SET LOCATION, or RESET LOCATION if `directory` is None."""

    name: str
    directory: str | None
    read_only: bool = False


@dataclass(frozen=True)
class BackUp:
    """Copy the session to a place, while it keeps running."""

    target: str


Action = (
    Define
    | Remove
    | StartQuery
    | AlterQuery
    | AlterWindow
    | AlterStream
    | PauseQuery
    | Publish
    | OnTables
    | StartSet
    | ChangeRows
    | KeepSet
    | ForgetSet
    | PushRows
    | SetPlace
    | ExplainPlan
    | ShowList
    | DescribeEntry
    | StopQuery
    | ChangeSetting
    | BackUp
)


def changes(action: Action) -> bool:
    """Whether it is kept; rows that are pushed are, as rows, and what consists of other actions is, as these."""
    looks = isinstance(action, ExplainPlan | ShowList | DescribeEntry | PushRows | StartSet | BackUp)
    looks = looks or (isinstance(action, StopQuery) and action.whole)
    return not looks and not (isinstance(action, OnTables) and action.is_query and action.create is None)
