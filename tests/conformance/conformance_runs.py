"""Running a case, and comparing its answer with the expected one."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
from conformance_cases import Case, cases
from conformance_translation import NotExpressibleError, stream_of, stream_query, table_of, table_query

import millstream as ms
from millstream.errors import MillstreamError, UnsupportedError
from tests.support.sqllogictest import over_all_rows


@cache
def outcome(case_id: str) -> str | None:
    """What is wrong with our answer to a case, be it a refusal; None if nothing is."""
    try:
        return difference(next(case for case in cases() if case.id == case_id))
    except (MillstreamError, NotExpressibleError) as error:
        return str(error)


def difference(case: Case) -> str | None:
    """What is wrong with our answer; None if nothing is. Errors come out as they are, unless one is expected."""
    if case.expects_error:
        try:
            found = answer(case)
        except MillstreamError:
            return None
        return f"an error is expected, not {found}"
    found, wanted = answer(case), case.expected_rows
    if len(found) != len(wanted):
        return f"{len(found)} rows, not {len(wanted)}: {found}"
    own, theirs = [list(map(plain, row)) for row in found], [list(map(plain, row)) for row in wanted]
    if not (case.runs_on_tables and case.data["expected"]["ordered"]):
        own, theirs = sorted(own, key=str), sorted(theirs, key=str)
    return None if own == theirs else f"{own}, not {theirs}"


def answer(case: Case) -> list[tuple[Any, ...]]:
    """Our answer to a case. A materialized view that no stream of events answers is a relation over all rows."""
    try:
        return _as_events(case)
    except (UnsupportedError, NotExpressibleError):
        if case.expects_error or not case.only_inserts:
            raise
        return _as_relation(case)


def _as_relation(case: Case) -> list[tuple[Any, ...]]:
    """What the view holds in the end, FROM t [UNBOUNDED]."""
    with ms.connect() as db:
        inputs = [table_of(given) for given in case.inputs]
        for stream in inputs:
            db.execute(stream.declaration(latent=True))
        query = db.sql(over_all_rows(case.view, {stream.name.lower() for stream in inputs}))
        for stream in inputs:
            db.push(stream.name, stream.rows)
        assert isinstance(query, ms.Query)
        table = query.snapshot()
        if not case.view_names:
            return rows_of(table)
        for view in case.view_names:
            db.register(view, table)
        return rows_of(db.sql(case.data["expected"]["query_after"]).fetch())


def _as_events(case: Case) -> list[tuple[Any, ...]]:
    with ms.connect() as db:
        if case.runs_on_tables:
            for given in case.inputs:
                _load(db, given)
            return [tuple(map(_list, row)) for row in rows_of(db.sql(table_query(case)).fetch())]
        standing = stream_query(case)
        if "system_time" in standing.text.lower():
            return _step_by_step(db, case, standing.text)
        streams = [stream_of(given, standing) for given in case.inputs]
        for stream in streams:
            db.execute(stream.declaration())
        query = db.sql(standing.text)
        for stream in streams:
            db.push(stream.name, stream.rows)
        if not case.is_final_when_closed:
            db.finish()
        table = query.fetch()
        if not case.view_names:
            return rows_of(table)
        # What the other engine is asked is a query over the view.
        after = case.data["expected"]["query_after"]
        for view in case.view_names:
            db.register(view, table)
        return rows_of(db.sql(after).fetch())


def _step_by_step(db: ms.Database, case: Case, text: str) -> list[tuple[Any, ...]]:
    """The answer to rows that meet a stored table which changes between them."""
    stream, table = map(table_of, case.inputs)
    db.execute(stream.declaration().replace("CREATE TABLE", "CREATE STREAM"))
    db.execute(table.declaration())
    query = db.sql(text)
    for step in case.data["steps"]:
        match step["op"], step.get("table"):
            case "insert", stream.name:
                db.push(stream.name, list(map(tuple, step["rows"])))
            case "insert", table.name:
                _insert(db, table.name, step["rows"])
            case "dml", table.name:
                db.execute(step["sql"])
    db.finish()
    return rows_of(query.fetch())


def _load(db: ms.Database, given: dict[str, Any]) -> None:
    table = table_of(given)
    db.execute(table.declaration())
    _insert(db, table.name, table.rows)


def _insert(db: ms.Database, name: str, rows: list[Any]) -> None:
    for row in rows:
        db.execute(f"INSERT INTO {name} VALUES ({', '.join(map(_literal, row))})")


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _list(value: Any) -> Any:
    """A list that came as JSON."""
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value


def plain(value: Any) -> Any:
    """A value in the form that both sides can be compared in."""
    match value:
        case bool() | None:
            return value
        case int() | float() | Decimal():
            return f"number {float(value):.10g}"
        case dt.datetime():
            moment = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
            return moment.isoformat(" ")
        case dt.date():
            return value.isoformat()
        case list():
            return [plain(part) for part in value]
        case dict():
            return json.dumps(value)
    try:
        return plain(dt.datetime.fromisoformat(value)) if len(value) > 10 else value
    except ValueError:
        return value
