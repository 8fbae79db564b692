"""A session: parse → bind → rules → physical plan → host. Start reading here."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from dataclasses import replace as replaced
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from millstream import sql
from millstream.bind import statements as act
from millstream.bind.queries.select import Bound
from millstream.bind.statements import bind
from millstream.catalog import Catalog, Clock, FromHistory, SinkDef, StreamDef, TableDef
from millstream.config import Config
from millstream.connectors import rows as conversion
from millstream.errors import BindError, CatalogError, DataError, StateError, UnsupportedError, refusing_depth
from millstream.hosts.contract import Counts, Host, Inspector, Once, Progress, ReadyQuery, Report
from millstream.hosts.tables import TableStore
from millstream.kernels.programs.spec import why_slow
from millstream.physical.nodes import Physical, Source, walk
from millstream.plan.nodes import Node
from millstream.rules import OPTIMIZE, run_rules
from millstream.session import altering, definitions
from millstream.session.ahead import planned_ahead
from millstream.session.explain import explainable, explained
from millstream.session.guard import Guarded
from millstream.session.listener import Listener, heard
from millstream.session.listings import listed, showing_at_once
from millstream.session.planned import Planned, Planning, errors_of, plan_query
from millstream.session.publishing import publish
from millstream.session.query import Query, Result, text_table
from millstream.session.redefining import Follower, follow, followers
from millstream.session.stored import StoredStatements
from millstream.session.table_changes import TableChanges
from millstream.session.templates import Templates
from millstream.session.times import Moment, instant_of, ordered_stream
from millstream.session.turns import StatementTurn, in_turn
from millstream.session.untyped import as_text
from millstream.sql.parameters import Parameters

if TYPE_CHECKING:
    from millstream.session.builder import Flow
    from millstream.session.query_sets import QuerySet
    from millstream.session.sets import QuerySets


class Database(Guarded):
    """A session: its streams, tables and continuous queries, for any number of threads. See `millstream.connect`."""

    def __init__(self, host: Host, tables: TableStore, config: Config) -> None:
        self.catalog = Catalog()
        self.tables, self._host = tables, host
        self.turn = StatementTurn()
        self.configure(config)
        self.listener: Listener | None = None
        self._queries: dict[str, Query] = {}
        self._planned: dict[str, Planned] = {}
        self.coming: tuple[str, str] | None = None
        """the name and text of the query that a statement is about to start or to change"""
        self.views: set[str] = set()
        self.numbered = 0
        """how many queries got their names from the session"""
        self._closed = False
        self.table_changes = TableChanges(self, host)
        self._stored = StoredStatements(self, host)

    # -- SQL -------------------------------------------------------------------------------------------------------

    @showing_at_once
    @in_turn
    def execute(self, text: str, params: Parameters | None = None) -> Query | Result | None:
        """Run one or more statements separated by `;`, and return the result of the last one, if it has any.

        `params` are values for `$name` (a dict) or `?` (a list) in the text. They are constants and never become SQL.
        """
        self._require_open()
        result: Query | Result | None = None
        with self.guard.working(self.config.limits):
            statements = sql.parse(text, params)
        for statement in statements:
            with self.guard.working(self.config.limits):
                result = self.perform(bind(statement.ast, self.catalog, text), statement.text, None)
        return result

    @overload
    def sql(
        self, text: str, name: str, replace: bool = False, params: Parameters | None = None,
        history: altering.HistoryAsked = None,
    ) -> Query: ...  # fmt: skip
    @overload
    def sql(
        self, text: str, name: None = None, replace: bool = False, params: Parameters | None = None,
        history: altering.HistoryAsked = None,
    ) -> Query | Result: ...  # fmt: skip
    @showing_at_once  # type: ignore[misc]
    @in_turn
    def sql(
        self, text: str, name: str | None = None, replace: bool = False, params: Parameters | None = None,
        history: altering.HistoryAsked = None,
    ) -> Query | Result:  # fmt: skip
        """Start a continuous query, or answer an ad-hoc one on stored tables, EXPLAIN or SHOW.

        Only a continuous query has a `name`. With `replace`, it replaces a running query of that name and continues
        with its state, which must stay the same; names and stateless parts may differ. `params` are values for `$name`
        (a dict) or `?` (a list) in the text. They are constants and never become SQL. With `history`, the query starts
        with all kept rows (True), or with those from an instant on.
        """
        self._require_open()
        with self.guard.working(self.config.limits):
            parsed = sql.parse(text, params)
            if len(parsed) != 1:
                raise BindError(f"one statement is expected, got {len(parsed)}", hint="use execute() for several")
            action = altering.with_history(self, bind(parsed[0].ast, self.catalog, text), history)
            if isinstance(action, act.Publish):
                action = act.Publish(action.streams, action.query, is_stream=False)
            elif name is not None and not isinstance(action, act.StartQuery):
                raise BindError("only a continuous query has a name", hint="leave name= out, or select from a stream")
            if isinstance(action, act.StartQuery) and name is not None and name.lower() in self._queries:
                action = replaced(action, replace=replace)
            result = self.perform(action, parsed[0].text, name)
        if result is None:
            raise BindError("this statement returns no rows", hint="use execute() for declarations")
        return result

    @in_turn
    def sql_many(self, text: str, rows: Any, key: str, name: str | None = None, merged: bool = False) -> QuerySet:
        """Start many continuous queries of one shape: `text` with parameters, and a row of constants for each query.

        `rows` are dicts, an Arrow table or a DataFrame with a column for each `$parameter`; the column `key`
        identifies each query. All queries run as one. If `merged`, a row that several queries emit is there once,
        with the list of their keys as column `queries`.
        """
        self._require_open()
        return self.sets.start(self.free_name(name), text, rows, key, merged)

    def query_set(self, name: str) -> QuerySet:
        """The set of queries of that name."""
        return self.sets.get(name)

    def query_sets(self) -> list[QuerySet]:
        return self.sets.all()

    @cached_property
    def sets(self) -> QuerySets:
        from millstream.session.sets import QuerySets

        return QuerySets(self)

    templates = cached_property(Templates)

    def optimized(self, plan: Node, without: frozenset[str] = frozenset()) -> Node:
        """The plan after the rules of this session, without the given ones."""
        rules = OPTIMIZE if self.config.rules else ()
        return run_rules(plan, rules, self.config.disabled_rules | without, self._host.statistics(), why_slow)[0]

    @in_turn
    @refusing_depth()
    def prepare(self, text: str, name: str = "query", params: Parameters | None = None) -> ReadyQuery:
        """Plan a query without starting it. `prepare(text).plan` is its physical plan."""
        self._require_open()
        parsed = sql.parse(text, params)
        action = bind(parsed[0].ast, self.catalog, text) if len(parsed) == 1 else None
        if not isinstance(action, act.StartQuery):
            raise BindError("a query over streams is expected here")
        return self.plan(name, action.bound, action.sink).program

    @in_turn
    def explain(self, text: str, mode: str = "", params: Parameters | None = None, format: str = "text") -> str:
        """How a query would run, as EXPLAIN shows it; "dot" or "svg" draw its automata and row patterns."""
        self._require_open()
        query, mode = explainable(bind(sql.parse(text, params)[0].ast, self.catalog, text), mode.upper())
        admitted = self.guard.admit(act.ExplainPlan(query, mode), self.catalog)
        assert isinstance(admitted, act.ExplainPlan)
        return self._explain(admitted.of, mode, text, format)

    @in_turn
    def perform(self, action: act.Action, text: str = "", name: str | None = None) -> Query | Result | None:
        """Run one bound statement."""
        self._require_open()
        if isinstance(action, act.Publish):
            return publish(self, action, text, name)
        action = altering.settled(self, self.guard.admit(action, self.catalog))
        self._host.settle()
        following = followers(self, action)
        if following:
            assert isinstance(action, act.Define)
            action = replaced(action, in_use=True, followers=tuple(follower for follower, _ in following))
        try:
            planned = planned_ahead(self, action, text, name)
            do = partial(self._do, action, text, name, planned, following)
            with self.guard.permitting(None):
                result = heard(self.listener if act.changes(action) else None, action, text, planned, do)
                return self._stored.followed(action, result) if isinstance(action, act.OnTables) else result
        finally:
            self.coming = None

    def _do(
        self, action: act.Action, text: str, name: str | None, planned: Planned | None, following: list[Follower]
    ) -> Query | Result | None:
        match action:
            case act.StartQuery(replace=True) if name is not None:
                return altering.replaced(self, action, text, self.query(name).name)
            case act.StartQuery():
                assert planned is not None
                return self.go_on(planned, self._host.start)
            case act.Define():
                definitions.define(self, action, planned, self._stored.fill)
                for follower in following:
                    follow(self, follower)
            case act.Remove():
                definitions.remove(self, action)
            case act.OnTables():
                return self._stored.perform(action)
            case act.PushRows(stream=stream, query=query):
                rows = self._stored.perform(query)
                assert rows is not None
                counts = self.push(stream, rows.arrow())
                return Result(pa.table({name: [count] for name, count in asdict(counts).items()}))
            case act.ExplainPlan(of=query, mode=mode):
                return text_table("plan", self._explain(query, mode, text).splitlines())
            case act.ShowList() | act.DescribeEntry():
                return listed(self, self._host, action)
            case act.ChangeRows(table=table, rows=rows, gone=gone):
                if rows is not None:
                    self.tables.add_rows(table, rows)
                if gone is not None:
                    self.tables.remove_rows(table, gone)
            case act.ForgetSet(name=ended):
                self.sets.forget(ended)
            case act.StartSet():
                self.sets.begin(action)
            case act.StopQuery(name=query, whole=True):
                self.sets.stop(query)
            case act.StopQuery(name=query):
                self._stop(query)
            case act.AlterQuery() | act.AlterWindow() | act.AlterStream() | act.PauseQuery():
                return altering.perform(self, action, planned)
            case act.BackUp(target=target):
                with self.turn.let_others():
                    self.backup(target)
            case act.SetPlace(name=place, directory=directory, read_only=read_only):
                self.guard.set_location(place, directory, read_only)
            case act.ChangeSetting(name=setting, value=value):
                if hasattr(self._host, "check_setting"):
                    self._host.check_setting(setting)
                self.configure(self.config.with_setting(setting, value))
        return None

    def plan(
        self, name: str, bound: Bound, sink: SinkDef | None, uses: frozenset[str] = frozenset(), text: str = "",
        how: Planning | None = None, view: bool = False, history: FromHistory | None = None,
    ) -> Planned:  # fmt: skip
        how = how or Planning.of(self.config, self._host.statistics())
        sink, rules = self.tables.found_by(sink), self.config.disabled_rules
        # another definition of a running query belongs to whom the query belongs to
        owner = getattr(self._planned.get(name.lower()), "owner", "") or self.guard.account
        return plan_query(name, bound, sink, how, rules, uses=uses, text=text, view=view, history=history, owner=owner)

    @refusing_depth()
    def _explain(
        self, query: act.StartQuery | act.AlterQuery | act.AlterWindow, mode: str, text: str = "", format: str = "text"
    ) -> str:
        return altering.explained_statement(self, query, mode, text, format)

    # -- queries ---------------------------------------------------------------------------------------------------

    def go_on(self, planned: Planned, start: Callable[[ReadyQuery], None]) -> Query:
        """Start a query that is already planned."""
        self.table_changes.admit(program := planned.program)
        self.templates.start(planned, start)
        query = Query(
            self, self._host, program, planned.text, lambda mode: explained(planned, mode, self.catalog, self._host)
        )
        self._queries[program.name.lower()] = query
        self._planned[program.name.lower()] = planned
        self.catalog.hold(program.name, planned.uses)
        self.catalog.note_errors(program.name, errors_of(program))
        if program.view:
            self.views.add(program.name.lower())
        return query

    def planned(self, name: str) -> Planned:
        """The definition of the running query of that name."""
        return self._planned[self.query(name).name.lower()]

    def free_name(self, name: str | None) -> str:
        if name is not None:
            if name.lower() in self._queries:
                raise CatalogError(f"query {name} is already running", hint="stop it first, or choose another name")
            return name
        while name is None or name in self._queries:
            self.numbered += 1
            name = f"q{self.numbered}"
        return name

    def query(self, name: str) -> Query:
        """The running query of that name."""
        if (found := self._queries.get(name.lower())) is not None:
            return found
        running = ", ".join(query.name for query in self._queries.values())
        raise CatalogError(f"no query {name}", hint=f"running: {running}" if running else "no query is running")

    def queries(self) -> list[Query]:
        """The running queries, oldest first."""
        return list(self._queries.values())

    def stop(self, name: str) -> None:
        """Stop a query. Rows that were not fetched can still be fetched from its object."""
        self.perform(act.StopQuery(name, whole=True))

    def _stop(self, name: str) -> None:
        altering.require_query(self, name, "DROP")
        self.withdraw(name)

    def withdraw(self, name: str) -> None:
        """Stop a query, or undo that it was started."""
        query = self.query(name)
        query.leave(self._host.stop(query.name))
        del self._queries[query.name.lower()], self._planned[query.name.lower()]
        self.catalog.release(query.name)

    def stream(self, name: str, alias: str | None = None) -> Flow:
        """A stream, relation or table to build a query from, operator by operator; see `session/builder.py`."""
        self._require_open()
        from millstream.session.builder import flow_of

        return flow_of(self, name, alias)

    @in_turn
    def install(self, plan: Physical, name: str | None = None) -> Query:
        """Run physical operators exactly as given, without optimising. A persistent session does not keep the query."""
        self._require_open()
        from millstream.physical.check import check_plan

        program = ReadyQuery(self.free_name(name), plan, plan.schema.names, relation=check_plan(plan, self.catalog))
        uses = frozenset(node.stream for node in walk(plan) if isinstance(node, Source))
        return self.go_on(Planned(program, str(plan), uses), self._host.start)

    @in_turn
    def start_bound(self, bound: Bound, uses: frozenset[str], text: str, name: str | None) -> Query:
        """Start a query that was built without SQL; `text` is only for display."""
        self._require_open()
        with refusing_depth():
            planned = self.plan(self.free_name(name), bound, None, uses, text)
        return self.go_on(planned, self._host.start)

    @in_turn
    def explain_bound(self, bound: Bound, mode: str) -> str:
        return self._explain(act.StartQuery(bound, frozenset()), mode.upper())

    # -- data ------------------------------------------------------------------------------------------------------

    def push(self, stream: str, rows: Any, once: tuple[str, int] | None = None) -> Counts:
        """Push rows into a stream: a list of tuples or dicts, Arrow, pandas or polars. Returns how many were accepted.

        A row that does not fit the schema raises no error. It is counted as rejected and goes to ERRORS(stream) with
        the reason. A late row is counted as late and goes to LATE(stream). `once` is the name of
        a producer and a number that grows: a push that is repeated with it takes effect once, even across a crash.
        """
        self._require_open()
        definition = self.catalog.get(stream, StreamDef).pushed()
        if definition.table is not None:
            raise DataError(f"{stream} has the changes of a table", hint=f"INSERT INTO {definition.table}")
        if once is None and (held := self._host.hold(definition.name, rows)) is not None:
            return held
        batch, rejected = conversion.to_batch(as_text(rows, definition), definition.given, definition.name)
        return self._host.push(definition.name, batch, rejected, None if once is None else Once(*once))

    def advance(self, stream: str, time: Moment) -> None:
        """Move the watermark of `stream` to `time`: no later row is before it (a heartbeat)."""
        self._require_open()
        definition = self.catalog.get(stream, StreamDef).pushed()
        if definition.clock is Clock.LATENT:
            raise DataError(f"stream {definition.name} has no times", hint="declare it with ORDER BY")
        self._host.advance(definition.name, instant_of(definition, time))

    def finish(self) -> None:
        """End all inputs: read declared sources to their end, and emit the remaining rows of every query."""
        self._require_open()
        self._host.finish()

    def run(self, *queries: str, report: Report | None = None) -> None:
        """Read the declared sources behind these queries (default: all) until they end."""
        self._require_open()
        self._host.run(queries or tuple(query.name for query in self.queries()), report)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Counters of every query, by name: see `Query.metrics`."""
        return {query.name: query.metrics() for query in self.queries()}

    def progress(self) -> Progress:
        return self._host.progress()

    @property
    def inspector(self) -> Inspector:
        """Looks at running operators: their figures, the rows that pass them, and copies to step through."""
        found = self._host.inspector()
        if found is None:
            raise UnsupportedError("this engine does not show its operators", hint="Spark's own pages show its stages")
        return found

    def interrupt(self) -> None:
        """Ask a `run` in progress to end soon and cleanly."""
        self._host.interrupt()

    @in_turn
    def register(
        self, name: str, source: Any, time: str | None = None, slack: str | dt.timedelta | int | None = None,
        replace: bool = False,
    ) -> None:  # fmt: skip
        """Register data under a name: with `time` a bounded stream ordered by that column, without it a table.

        `source` is a pyarrow Table, a pandas or polars DataFrame, or the path of a CSV, JSON lines or Parquet file.
        With `replace`, it replaces data of the same name, unless a query uses it.
        """
        self._require_open()
        self._host.settle()
        kinds = (StreamDef, TableDef)
        if not replace and self.catalog.has(name, kinds):
            raise CatalogError(f"{name} already exists", hint="register(…, replace=True) replaces it")
        schema, data = conversion.to_batches(source, None, name)
        if replace:
            self.perform(act.Remove(name, kinds, if_exists=True))
        if time is None:
            self.perform(act.Define(TableDef(name, schema)))
            self._stored.load(name, data)
            return
        definition = ordered_stream(name, schema, time, slack)
        self.catalog.add(definition)
        self._host.declare(definition)
        self._host.bind_source(name, data)

    @in_turn
    def register_aggregate(self, made: Any) -> None:
        """Register an aggregate or function written in Python: `@millstream.aggregate` or `@millstream.function`.
        Registering the same one again has no effect. Drop a different one of the same name first."""
        from millstream.session.python_aggregates import definitions_of

        for entry in (entry for entry in definitions_of(made) if self.catalog.like(entry) != entry):
            self.perform(act.Define(entry))

    register_function = register_aggregate

    def configure(self, config: Config) -> None:
        self.config = self.tables.config = config
        self.catalog.zone = config.timezone
        if hasattr(self._host, "config"):
            self._host.config = config

    # -- end -------------------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Take a checkpoint now. Only for sessions with a directory."""
        self._kept().checkpoint()

    def backup(self, target: str | Path) -> None:
        """Copy the session as it is now to a new directory, while it keeps running; `connect` opens the copy.

        With the profile untrusted, the target is a named location and a name in it: 'backups/monday'.
        """
        self._kept().backup(self.guard.access.target(target))

    def _kept(self) -> Listener:
        self._require_open()
        if self.listener is None:
            raise StateError("this session is not persistent", hint="open it with a directory: ms.connect(directory)")
        return self.listener

    def close(self) -> None:
        """Stop all queries; a persistent session takes a checkpoint first. Files and locks are always released.
        Afterwards you can only fetch rows."""
        if self._closed:
            return
        with ExitStack() as ends:
            if self.listener is not None:
                ends.callback(self.listener.after_close)
            ends.callback(self.tables.close)
            for query in self.queries():
                ends.callback(query.wait_for_callbacks)
            ends.callback(self._host.close)
            ends.callback(setattr, self, "_closed", True)
            if self.listener is not None:
                self.listener.before_close()

    def _require_open(self) -> None:
        if self._closed:
            raise StateError("this session is closed", hint="open another one: ms.connect(…)")

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
