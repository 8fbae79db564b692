"""Random damage to good statements: only errors of ours come out, and none takes longer than its limit.

python -m tests.security.fuzz_statements --statements 100000
"""

from __future__ import annotations

import argparse
import datetime as dt
import random
import re
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import millstream as ms
from millstream.catalog import StreamDef
from millstream.types import SqlType

ROOT = Path(__file__).parents[2]
SECONDS = 2.0
"""the time limit of a statement"""
GRACE = 2.0
"""what closing and measuring may add, in processor time: a statement beyond limit and grace has failed"""

NUMBERS = [
    "0", "-1", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e308", "1e999", "-0.0",
    "18446744073709551616", "1000000000", "100000", "0.1", "99999999999999999999999999999999999999999", "1e-400",
]  # fmt: skip
TEXTS = ["''", "'x'", "'\0'", "'é'", "'\U0001f600'", "'%Y-%m-%d'", "'2026-13-45'", "'" + "a" * 5000 + "'", "'\ud800'"]
WORDS = [
    *"()[]{},;.*+-/%=<$?@#\\\0\ufeff\u202e",
    "||", "::",
    "NULL", "SELECT", "FROM", "WHERE", "OVER", "ROWS", "RANGE", "SLIDE", "PARTITION BY", "ORDER BY", "GROUP BY",
    "UNION", "ISTREAM", "MATCH_RECOGNIZE", "PATTERN", "DEFINE", "WITH", "RECURSIVE", "CASE", "END", "CAST", "AS",
    "INTERVAL", "LATE", "ERRORS", "EXISTS", "IN", "UNBOUNDED", "PRECEDING", "FOLLOWING", "x", "s", "t", "ts",
    "price", "EXPLAIN", "CREATE", "DROP", "INSERT", "STOP", "SET", "SHOW", "TUMBLE", "HOP", "SESSION", "DISTINCT",
    "HAVING", "LIMIT", "FILTER", "--", "/*", "*/", "\"", "`",
]  # fmt: skip
FUNCTIONS = [
    "abs", "lead", "lag", "ntile", "first_value", "last_value", "nth_value", "row_number", "rank", "LAST", "PREV",
    "NEXT", "FIRST", "sum", "count", "min", "max", "avg", "stddev", "string_agg", "quantile_cont", "repeat", "lpad",
    "rpad", "generate_series", "unnest", "substring", "round", "strftime", "strptime", "date_trunc",
    "regexp_replace", "regexp_matches", "greatest", "coalesce", "nullif", "length", "concat", "upper", "make_date",
    "to_timestamp", "log", "exp", "power", "factorial", "list_value", "printf", "format", "epoch_us", "chr",
]  # fmt: skip
OPENINGS = ("(", "[", "abs(", "(SELECT ", "NOT ", "-", "CASE WHEN ")
_TOKEN = re.compile(r"\s+|'(?:[^']|'')*'|\"[^\"]*\"|\w+|.", re.DOTALL)


@dataclass(frozen=True)
class Golden:
    """What a golden file or a document declares, and all its statements."""

    declared: tuple[str, ...]
    statements: tuple[str, ...]


_REACHES_OUT = re.compile(r"(?i)connector\s*=|\bsource\b\s*'")
_DECLARES = re.compile(r"(?i)\s*(create\s+(or\s+replace\s+)?(stream|table|sink)|stream|table|insert)\b")


def corpus() -> list[Golden]:
    """The statements of golden files and documents."""
    found = []
    for path in sorted((ROOT / "tests" / "slt").rglob("*.slt")):
        blocks = re.split(r"\n\s*\n", path.read_text(encoding="utf-8"))
        heads = (block.partition("\n") for block in blocks)
        texts = [rest.partition("\n----")[0] for head, _, rest in heads if re.match(r"(statement|stream|query)", head)]
        found.append(_golden(texts))
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        parts = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
        parts += re.findall(r'(?:execute|sql)\("{1,3}(.*?)"{1,3}[,)]', text, re.DOTALL)
        found.append(_golden([statement for part in parts for statement in part.split(";")]))
    return [golden for golden in found if golden.statements]


def _golden(texts: list[str]) -> Golden:
    kept = [text.strip() for text in texts if text.strip() and not _REACHES_OUT.search(text)]
    return Golden(tuple(text for text in kept if _DECLARES.match(text)), tuple(kept))


def mutated(text: str, other: str, draw: random.Random) -> str:
    """The text with some damage; parts may come from another one."""
    tokens = _TOKEN.findall(text)
    gentle = draw.random() < 0.6
    for _ in range(draw.choice((1, 1, 2) if gentle else (1, 1, 2, 3, 6))):
        tokens = tokens or [" "]
        place = draw.randrange(len(tokens))
        match draw.choice((5, 6, 13, 13, 14, 15)) if gentle else draw.randrange(16):
            case 0:
                del tokens[place]
            case 1:
                tokens.insert(place, tokens[draw.randrange(len(tokens))])
            case 2:
                swapped = draw.randrange(len(tokens))
                tokens[place], tokens[swapped] = tokens[swapped], tokens[place]
            case 3:
                tokens[place] = draw.choice(WORDS)
            case 4:
                tokens.insert(place, f" {draw.choice(WORDS)} ")
            case 5 | 6:
                numbers = [i for i, token in enumerate(tokens) if token.isdigit()] or [place]
                tokens[draw.choice(numbers)] = draw.choice(NUMBERS)
            case 7:
                tokens[place] = draw.choice(TEXTS)
            case 8:
                tokens = tokens[:place]
            case 9:
                depth = draw.choice((3, 20, 60, 200, 2000))
                tokens[place] = (
                    draw.choice(("(", "[", "abs(", "(SELECT ", "NOT ", "-", "CASE WHEN ")) * depth + tokens[place]
                )
                if draw.random() < 0.7:
                    tokens[place] += ")" * depth
            case 10:
                tokens[place] += draw.choice((" + ", " OR ", " AND ", ", ", " || ", " UNION ALL ")).join(
                    [tokens[place]] * draw.choice((2, 50, 1000))
                )
            case 11:
                parts = _TOKEN.findall(other)
                start = draw.randrange(len(parts))
                tokens[place:place] = parts[start : start + draw.randrange(1, 20)]
            case 12:
                tokens[place] = chr(draw.choice((0, 1, 7, 127, 0x85, 0x2028, 0x3000, 0xFFFE, draw.randrange(0xD7FF))))
            case 14:
                texts = [i for i, token in enumerate(tokens) if token.startswith("'")] or [place]
                tokens[draw.choice(texts)] = draw.choice(TEXTS + NUMBERS)
            case 15:
                calls = [i for i, token in enumerate(tokens[:-1]) if token.isidentifier() and tokens[i + 1] == "("]
                if calls:
                    tokens[draw.choice(calls)] = draw.choice(FUNCTIONS)
            case 13:
                words = [i for i, token in enumerate(tokens) if token.isidentifier()] or [place]
                tokens[draw.choice(words)] = draw.choice([token for token in tokens if token.strip()] or ["x"])
    return "".join(tokens)


def opened(golden: Golden) -> ms.Database:
    """A session with what the statements of a golden file find there."""
    db = ms.connect(profile="untrusted", statement_timeout=SECONDS, jit="off", memory_limit="300 MB", threads=1)
    for statement in golden.declared:
        try:
            db.execute(statement)
        except ms.MillstreamError:
            continue
    return db


def feed(db: ms.Database) -> None:
    """Some rows for every stream, so that what was accepted has to run."""
    for entry in list(db.catalog.entries()):
        if isinstance(entry, StreamDef):
            for number in range(3):
                db.push(entry.name, [tuple(_value(field.type, number) for field in entry.given)])


def _value(type_: SqlType, number: int) -> Any:
    if type_.is_text:
        return "ab"[number % 2]
    if type_.is_integer:
        return number
    arrow = type_.arrow
    if pa.types.is_timestamp(arrow):
        return dt.datetime(2026, 1, 1, 0, 0, number, tzinfo=dt.UTC if arrow.tz else None)
    if pa.types.is_date(arrow):
        return dt.date(2026, 1, 1 + number)
    if pa.types.is_floating(arrow):
        return 1.5 * number
    return None


def attempt(db: ms.Database, text: str) -> tuple[str, float, str | None]:
    """Run a statement, and push rows to what it made: the kind of outcome, its seconds, and what is wrong with it."""
    begin = time.process_time()
    try:
        try:
            result = db.execute(text)
            if isinstance(result, ms.Query):
                feed(db)
            if result is not None:
                result.fetch()
            if isinstance(result, ms.Query):
                result.stop()
            outcome = "accepted"
        except ms.MillstreamError as error:
            outcome, said = type(error).__name__, str(error)
            if "internal error" in said or "bug in Millstream" in said:
                raise RuntimeError(said) from error
    except Exception:
        return "foreign", time.process_time() - begin, traceback.format_exc()
    seconds = time.process_time() - begin
    if seconds > SECONDS + GRACE:
        return "slow", seconds, f"it took {seconds:.1f} s"
    return outcome, seconds, None


def fuzz(
    count: int, seed: int, tell: bool = False, per_session: int = 100
) -> tuple[Counter[str], list[tuple[str, str]]]:
    """Outcomes by kind, and statements with what was wrong."""
    draw = random.Random(seed)
    known, outcomes = corpus(), Counter[str]()
    wrong: list[tuple[str, str]] = []
    longest = 0.0
    for number in range(count):
        if number % per_session == 0:
            golden = draw.choice(known)
            db = opened(golden)
        text = mutated(draw.choice(golden.statements), draw.choice(draw.choice(known).statements), draw)
        outcome, seconds, trouble = attempt(db, text)
        outcomes[outcome] += 1
        longest = max(longest, seconds)
        if trouble is not None:
            wrong.append((text, trouble))
            if tell:
                print(f"-- {number}\n{text[:800]!r}\n{trouble[-1500:]}\n", flush=True)
        if tell and number % 1000 == 999:
            print(f"{number + 1}: {dict(outcomes)}, longest {longest:.2f} s", flush=True)
        if number % per_session == per_session - 1 or number == count - 1:
            trouble = closed(db)
            if trouble is not None:
                wrong.append(("close", trouble))
    return outcomes, wrong


def closed(db: ms.Database) -> str | None:
    try:
        db.close()
    except ms.MillstreamError:
        return None
    except Exception:
        return traceback.format_exc()
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statements", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    outcomes, wrong = fuzz(given.statements, given.seed, tell=True)
    print(f"{sum(outcomes.values())} statements: {dict(outcomes)}; {len(wrong)} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
