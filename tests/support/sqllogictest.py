"""`python -m tests.support.sqllogictest FILE…`: the queries of public sqllogictest files as continuous queries.

Each table of a file becomes a stream, and each query reads all of its rows, `FROM t [UNBOUNDED]`. The query starts
first, then the rows are pushed one by one in random order, and what the query holds at the end is compared with what
the file expects. DuckDB applies the file's statements, so it says which rows a table has when a query is asked.

A query without FROM gets a stream of one row. Where our language decides otherwise, an answer that differs is
`decided`: / of integers gives a fraction, there is no row of an aggregate over nothing, text is not taken for a number,
a column that is not in GROUP BY has no value of a group, and rows have no order of their own that group_concat could
follow. SQLite's own functions are left out, too. A file ends where a number does not fit its column: an INTEGER of
SQLite has 64 bits, one of ours 32.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from sqlglot import exp, parse_one, select
from sqlglot.errors import SqlglotError

import millstream as ms
from millstream import sealed_duckdb
from millstream.records import dataclass
from millstream.sql import parse, to_sql
from millstream.sql.relations import Windowed

Verdict = Literal["same", "different", "refused", "decided"]
_VERDICTS: tuple[Verdict, ...] = ("same", "different", "refused", "decided")
_HASH = re.compile(r"(\d+) values hashing to ([0-9a-f]{32})")
_ENGINE = "sqlite"
_ONE = "one_row"
_TOGETHER = 25
"""queries that run in one session"""


@dataclass(frozen=True)
class LogicRecord:
    """A statement, or a query with the types of its columns, how its values are sorted, and what it gives."""

    line: int
    sql: str
    types: str | None = None
    sort: str = "nosort"
    expected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What became of a query, and if it is not the same, why."""

    record: LogicRecord
    verdict: Verdict
    why: str = ""


def read(text: str) -> Iterator[LogicRecord]:
    """The records of a file that are for every engine."""
    line = 1
    for block in re.split(r"\n[ \t]*\n", text):
        start, line = line, line + block.count("\n") + 2
        lines = [each for each in block.splitlines() if not each.startswith("#")]
        lines = [each for each in lines if each.strip()]
        while lines and lines[0].split()[0] in ("skipif", "onlyif"):
            # our values are compared with what the file's own engine gives
            word, engine = lines.pop(0).split()[:2]
            if (word == "skipif") == (engine == _ENGINE):
                lines = []
        match lines[0].split() if lines else []:
            case ["halt", *_]:
                return
            case ["statement", "ok", *_]:
                yield LogicRecord(start, "\n".join(lines[1:]))
            case ["query", types, *rest]:
                end = lines.index("----") if "----" in lines else len(lines)
                sort = rest[0] if rest else "nosort"
                yield LogicRecord(start, _standard("\n".join(lines[1:end])), types, sort, tuple(lines[end + 1 :]))


def play(text: str, seed: int = 0) -> Iterator[Answer]:
    """Every query of a file with what became of it."""
    store, chance = sealed_duckdb.connect(threads=1), random.Random(seed)
    asked: list[LogicRecord] = []
    for record in read(text):
        if record.types is not None:
            asked.append(record)
        if asked and (record.types is None or len(asked) == _TOGETHER):
            yield from _answers(asked, store, chance)
            asked = []
        if record.types is None and (reason := _applied(record, store)) is not None:
            verdict: Verdict = "decided" if reason.startswith("Out of Range") else "refused"
            yield Answer(record, verdict, f"DuckDB does not apply this statement, the file ends here: {reason}")
            return
    if asked:
        yield from _answers(asked, store, chance)


def _applied(record: LogicRecord, store: Any) -> str | None:
    """Apply a statement to the tables; why that is not possible, if it is not."""
    import duckdb

    try:
        store.execute(record.sql)
    except duckdb.Error as error:
        return str(error).splitlines()[0]
    return None


def _answers(asked: list[LogicRecord], store: Any, chance: random.Random) -> list[Answer]:
    """Queries over the same rows, in one session."""
    names = [name for (name,) in store.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()]
    rows: list[tuple[str, tuple[Any, ...]]] = []
    with ms.connect() as db:
        for name in names:
            columns = store.execute(f'DESCRIBE "{name}"').fetchall()
            listed = ", ".join(f'"{column}" {_type(kind)}' for column, kind, *_ in columns)
            db.execute(f'CREATE STREAM "{name}" ({listed})')
            rows += [(name, row) for row in store.execute(f'SELECT * FROM "{name}"').fetchall()]
        db.execute(f"CREATE STREAM {_ONE} (one INT)")
        rows.append((_ONE, (1,)))
        names = [*names, _ONE]
        started = [(record, _started(record, db, names)) for record in asked]
        chance.shuffle(rows)
        for name, row in rows:
            db.push(name, [row])
        return [_answer(record, query) for record, query in started]


def _type(kind: str) -> str:
    return "DOUBLE" if kind in ("FLOAT", "DOUBLE") else kind


def _started(record: LogicRecord, db: ms.Database, names: list[str]) -> ms.Query | ms.Result | ms.MillstreamError:
    try:
        return db.sql(over_all_rows(record.sql, {name.lower() for name in names}))
    except ms.MillstreamError as error:
        return error


def _standard(text: str) -> str:
    """A query without what SQLite alone has: x IN table, x IN (), and hints."""
    text = re.sub(r"\bNOT INDEXED\b", "", text, flags=re.IGNORECASE)
    if re.search(r"\bIN\s*(\(\s*\)|\w)", text, re.IGNORECASE) is None:
        return text
    try:
        ast = parse_one(text, read=_ENGINE)
    except SqlglotError:
        return text
    for node in [*ast.find_all(exp.In)]:
        if (name := node.args.get("field")) is not None:
            node.set("field", None)
            node.set("query", select("*").from_(exp.to_table(name.name)).subquery())
        elif not node.expressions and node.args.get("query") is None:
            node.replace(exp.false())
    return ast.sql(dialect="duckdb")


def _decision(text: str, given: list[str]) -> str | None:
    """What our language decides otherwise about a query that gives something else."""
    try:
        ast = parse_one(text, read=_ENGINE)
    except SqlglotError:
        return None
    if not given and ast.find(exp.AggFunc) is not None and ast.find(exp.Group) is None:
        return "an aggregate over nothing has no row"
    if re.search(r"\bgroup_concat\s*\(", text, re.IGNORECASE):
        return "rows have no order of their own"
    if re.search(r"\btotal\s*\(", text, re.IGNORECASE):
        return "total is SQLite's own"
    return "/ of integers gives a fraction" if ast.find(exp.Div) is not None else None


def over_all_rows(text: str, names: set[str]) -> str:
    """The query with all tables as windows that keep every row; what orders its result as a whole is left out."""
    ast = parse(text)[0].ast
    if isinstance(ast, exp.Select) and ast.args.get("from_") is None and ast.find(exp.Table) is not None:
        ast.set("from_", exp.From(this=exp.to_table(_ONE)))
    if ast.args.get("limit") is None and ast.args.get("offset") is None:
        ast.set("order", None)
    for table in [*ast.find_all(exp.Table)]:
        if table.name.lower() in names:
            window = parse("SELECT 1 FROM t [UNBOUNDED]")[0].ast.find(Windowed)
            assert window is not None
            window.set("this", exp.Table(this=table.this.copy()))
            alias = table.args.get("alias")
            window.set("alias", alias.copy() if alias is not None else exp.TableAlias(this=table.this.copy()))
            for join in table.args.get("joins") or []:
                window.append("joins", join)
            table.replace(window)
    return to_sql(ast)


def _answer(record: LogicRecord, query: ms.Query | ms.Result | ms.MillstreamError) -> Answer:
    try:
        if isinstance(query, ms.MillstreamError):
            raise query
        table = query.snapshot() if isinstance(query, ms.Query) else query.fetch()
    except ms.MillstreamError as error:
        reason = _decision(record.sql, ["refused"])
        if any(words in error.message for words in ("is not a valid", "no operator", "does not apply to")):
            reason = "text is not taken for a number"
        if "neither in GROUP BY" in error.message:
            reason = "a column that is not in GROUP BY has no value of a group"
        return Answer(record, "refused" if reason is None else "decided", reason or error.message)
    width = len(record.types or "")
    columns = [table.column(i).to_pylist() for i in range(width)]
    rows = [tuple(row) for row in zip(*columns, strict=True)]
    shown = [tuple(map(_shown, row, record.types or "")) for row in _ordered(rows, record)]
    given = _sorted(shown, record.sort)
    if len(record.expected) == 1 and (hashed := _HASH.fullmatch(record.expected[0])):
        digest = hashlib.md5("".join(f"{value}\n" for value in given).encode(), usedforsecurity=False).hexdigest()
        is_same = (len(given), digest) == (int(hashed[1]), hashed[2])
    else:
        is_same = given == [*record.expected]
    if is_same:
        return Answer(record, "same")
    reason = _decision(record.sql, given)
    return Answer(
        record, "different" if reason is None else "decided", reason or f"{given[:12]} for {record.expected[:12]}"
    )


def _ordered(rows: list[tuple[Any, ...]], record: LogicRecord) -> list[tuple[Any, ...]]:
    """The rows in the order that the query asks for by places or names; NULLs come first, as in SQLite."""
    ast = parse(record.sql)[0].ast
    order = ast.args.get("order")
    names = [item.alias_or_name for item in ast.expressions] if isinstance(ast, exp.Select) else []
    for part in reversed(order.expressions if order is not None else []):
        place = int(part.this.name) - 1 if isinstance(part.this, exp.Literal) else -1
        place = names.index(part.this.name) if part.this.name in names else place
        if place >= 0:
            rows = sorted(
                rows, key=lambda row: (row[place] is not None, row[place]), reverse=bool(part.args.get("desc"))
            )
    return rows


def _sorted(rows: list[tuple[str, ...]], sort: str) -> list[str]:
    if sort == "rowsort":
        rows = sorted(rows)
    values = [value for row in rows for value in row]
    return sorted(values) if sort == "valuesort" else values


def _shown(value: Any, kind: str) -> str:
    if value is None:
        return "NULL"
    if kind == "I" and isinstance(value, bool | int | float | Decimal):
        return str(int(value))
    if kind == "I" and isinstance(value, str):
        # SQLite shows text as the number that it begins with
        number = re.match(r"\s*[-+]?\d+", value)
        return str(int(number[0])) if number is not None else "0"
    if kind == "R":
        return f"{float(value):.3f}"
    return str(value) or "(empty)"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.sqllogictest", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="a .test file, or a directory of them")
    parser.add_argument("--seed", type=int, default=0, help="of the random order in which rows are pushed")
    options = parser.parse_args()
    files = [file for path in options.paths for file in (sorted(path.rglob("*.test")) if path.is_dir() else [path])]
    failed = False
    for file in files:
        answers = list(play(file.read_text(), options.seed))
        for answer in answers:
            if answer.verdict not in ("same", "decided"):
                print(f"{file}:{answer.record.line}: {answer.verdict}: {answer.why}")
        counts = {verdict: sum(a.verdict == verdict for a in answers) for verdict in _VERDICTS}
        print(f"{file}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
        failed = failed or counts["same"] + counts["decided"] < len(answers)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
