"""What binding needs to know: the catalog, the SQL text that errors underline, and names local to the statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from millstream.catalog import AggregateDef, Catalog, Clock, DerivedDef, StreamDef
from millstream.errors import BindError, MillstreamError, UnsupportedError
from millstream.expressions.functions.zones import ZONE
from millstream.expressions.nodes import Column
from millstream.plan import event_joins as E
from millstream.plan import nodes as P
from millstream.plan.events import algebra as A
from millstream.plan.failed import FailedRows
from millstream.plan.lateness import AdmitLate
from millstream.plan.patterns.search import Match
from millstream.plan.patterns.times import timely_reaches
from millstream.plan.ties import Ties
from millstream.plan.unnest import Unnest
from millstream.records import dataclass
from millstream.sql import span_of
from millstream.types import BIGINT, TIMESTAMP, TIMESTAMPTZ, SqlType

if TYPE_CHECKING:
    from millstream.bind.queries.domains import Domain


@dataclass(frozen=True)
class Context:
    """The surroundings of a statement; `local` holds WITH queries by lower-case name, `written` how they read."""

    catalog: Catalog
    sql: str
    local: dict[str, P.Node] = field(default_factory=dict)
    uses: set[str] = field(default_factory=set)
    written: dict[str, exp.CTE] = field(default_factory=dict)
    domain: Domain | None = None
    """what the SELECT to be bound next knows of the query around it"""
    parameters: Mapping[str, SqlType] = field(default_factory=dict)
    """constants that each query of a set has for itself, by name"""
    published: dict[str, DerivedDef] = field(default_factory=dict)
    """the streams that queries inside of the statement PUBLISH, by lower-case name"""

    def __post_init__(self) -> None:
        ZONE.set(self.catalog.zone)

    def with_local(self, name: str, query: P.Node, cte: exp.CTE) -> Context:
        key = name.lower()
        return replace(self, local={**self.local, key: query}, written={**self.written, key: cte})

    def within(self, domain: Domain | None) -> Context:
        return replace(self, domain=domain)

    def fail(
        self, message: str, node: exp.Expr | None = None, *, detail: str | None = None, hint: str | None = None
    ) -> NoReturn:
        raise BindError(message, detail=detail, hint=hint, span=None if node is None else span_of(node), sql=self.sql)

    def refuse(
        self, message: str, node: exp.Expr | None = None, *, detail: str | None = None, hint: str | None = None
    ) -> NoReturn:
        """Like `fail`, for what is understood but has no meaning on a stream."""
        raise UnsupportedError(
            message, detail=detail, hint=hint, span=None if node is None else span_of(node), sql=self.sql
        )

    @contextmanager
    def blaming(self, node: exp.Expr) -> Iterator[None]:
        """Errors raised inside without a place get the place of `node`."""
        try:
            yield
        except MillstreamError as error:
            if error.span is None:
                error.span = span_of(node)
                error.sql = self.sql
            raise

    def publish(self, name: exp.Expr, plan: P.Node) -> DerivedDef:
        """Note that a query becomes a stream of that name."""
        if str(name.name).lower() in self.published:
            self.fail(f"{name.name} is published twice", name)
        clock = Clock.LATENT if Clock.LATENT in self.clocks_of(plan) else Clock.EXTERNAL
        made = self.published[str(name.name).lower()] = DerivedDef(str(name.name), plan, clock)
        return made

    def aggregate(self, name: str, window: bool) -> AggregateDef | None:
        """The base or the window version of an aggregate that somebody defined, or that comes with the engine."""
        if not self.catalog.is_callable(name) and (found := _definitions(name, self.catalog)):
            self.catalog.add_from_library(name, found)
        return self.catalog.aggregate(name, window)

    def clocks_of(self, plan: P.Node) -> set[Clock]:
        """The clocks that the times of a plan's rows come from."""
        found: set[Clock] = set()
        for node in P.walk(plan):
            streams = (
                node.streams if isinstance(node, FailedRows) else (node.stream,) if isinstance(node, P.Scan) else ()
            )
            for entry in map(self.catalog.find, streams):
                if isinstance(entry, StreamDef | DerivedDef):
                    found.add(entry.clock)
        return found

    def time_type(self, plan: P.Node) -> SqlType:
        """The type of instants of a plan's rows: BIGINT where streams are ordered by a number, or by arrival only."""
        types: set[SqlType] = set()
        for node in P.walk(plan):
            entry = self.catalog.find(node.stream) if isinstance(node, P.Scan) else None
            if isinstance(entry, StreamDef) and entry.time_column is not None:
                types.add(entry.schema[entry.time_column].type)
        if not types or any(type_.is_integer for type_ in types):
            return BIGINT
        return TIMESTAMPTZ if TIMESTAMPTZ in types else TIMESTAMP

    def time_columns(self, plan: P.Node) -> frozenset[str]:
        """The columns of a plan's rows that hold their order time; a relation has none."""
        match plan:
            case P.Scan(stream=stream, side="main"):
                entry = self.catalog.find(stream)
                column = entry.time_column if isinstance(entry, StreamDef) else None
                return frozenset() if column is None or column not in plan.schema else frozenset([column])
            case P.Project(input=child, columns=columns):
                inner = self.time_columns(child)
                return frozenset(name for name, expr in columns if isinstance(expr, Column) and expr.name in inner)
            case P.Union(branches=branches):
                return frozenset.intersection(*(self.time_columns(branch) for branch in branches))
            case E.Starts(times=times) | E.AsofJoin(times=times):
                return frozenset(times)
            case P.Group(ends=ends):
                return frozenset([ends])
            case Match(input=child, search=search):
                return timely_reaches(search, self.time_columns(child))
            case A.Times(input=child) | A.Since(input=child) | AdmitLate(left=child):
                return self.time_columns(child)
            case (
                P.Filter(input=child)
                | P.Over(input=child)
                | P.Distinct(input=child)
                | P.JoinTable(input=child)
                | P.AssignWindows(input=child)
                | Unnest(input=child)
                | Ties(input=child)
            ):
                return self.time_columns(child)
        return frozenset()


def _definitions(name: str, catalog: Catalog) -> tuple[AggregateDef, ...]:
    # binding what the library says needs a context itself
    from millstream.bind.programs.library import definitions

    return definitions(name, catalog)
