"""Row patterns of other dialects in ours; the meaning stays."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Any

from conformance_cases import Case
from conformance_translation import CLOCK, Input, table_of, timestamps

_DEFINITIONS = {
    "list_of": """CREATE AGGREGATE list_of(x VARCHAR) : VARCHAR {
  TABLE state(joined VARCHAR);
  INITIALIZE: { INSERT INTO state VALUES (x); }
  ITERATE: { UPDATE state SET joined = joined || ',' || x; }
  TERMINATE: { INSERT INTO RETURN SELECT joined FROM state; }
}""",
    "max_by": """CREATE AGGREGATE max_by(x, label VARCHAR) : (value) {
  TABLE state(value, top VARCHAR);
  INITIALIZE: { INSERT INTO state VALUES (x, label); }
  ITERATE: { UPDATE state SET value = x, top = label WHERE label > top; }
  TERMINATE: { INSERT INTO RETURN SELECT value FROM state; }
}""",
    "three_latest": """CREATE AGGREGATE three_latest(label VARCHAR) : VARCHAR {
  TABLE state(joined VARCHAR);
  INITIALIZE: { INSERT INTO state VALUES (label); }
  ITERATE: { UPDATE state SET joined = substr(label || joined, 1, 3); }
  TERMINATE: { INSERT INTO RETURN SELECT joined FROM state; }
}""",
    "three_least": """CREATE AGGREGATE three_least(label VARCHAR) : VARCHAR {
  TABLE state(a VARCHAR, b VARCHAR, c VARCHAR);
  INITIALIZE: { INSERT INTO state VALUES (label, NULL, NULL); }
  ITERATE: {
    UPDATE state SET a = least(a, label), b = least(b, greatest(a, label)),
                     c = CASE WHEN b IS NOT NULL THEN least(c, greatest(b, label)) END;
  }
  TERMINATE: { INSERT INTO RETURN SELECT a || coalesce(b, '') || coalesce(c, '') FROM state; }
}""",
    "weightedAvg": """CREATE AGGREGATE weightedAvg(v BIGINT, w BIGINT) : BIGINT {
  TABLE state(total BIGINT, weight BIGINT);
  INITIALIZE: { INSERT INTO state VALUES (v * w, w); }
  ITERATE: { UPDATE state SET total = total + v * w, weight = weight + w; }
  TERMINATE: { INSERT INTO RETURN SELECT total // weight FROM state; }
}""",
    "countFrom": """CREATE AGGREGATE countFrom(x BIGINT) : BIGINT {
  TABLE state(total BIGINT);
  INITIALIZE: { INSERT INTO state VALUES (4 + x); }
  ITERATE: { UPDATE state SET total = total + x; }
  TERMINATE: { INSERT INTO RETURN SELECT total FROM state; }
}""",
    "prefix": "CREATE FUNCTION prefix(s VARCHAR) RETURNS VARCHAR AS 'PREF:' || s",
}
"""What the cases call that is not built in here; lists come out as text."""

_REWRITTEN: dict[str, list[tuple[str, str]]] = {
    # A list of columns behind a name is none of our forms.
    "trino/TestRowPatternMatching.testPartitioningAndOrdering#2": [
        (
            "(SELECT * FROM values1 WHERE false) t(id, part, value)",
            "(SELECT _col0 AS id, _col1 AS part, _col2 AS value FROM values1 WHERE false)",
        )
    ],
    "trino/TestRowPatternMatching.testProperties#1": [
        ("t(a, b) AS values1", "t AS (SELECT _col0 AS a, _col1 AS b FROM values1)")
    ],
    # A stream has no order of its rows but that of time: what the query sorts by is delivered.
    "trino/TestRowPatternMatchingInWindow.testRowPatternMatchingInOrderBy#3": [
        ("SELECT id FROM t WINDOW w AS (ORDER BY id) ORDER BY label OVER (w ", "SELECT id, label OVER (ORDER BY id "),
        (") ASC NULLS FIRST", ") AS label FROM t"),
    ],
    # Streams join as relations; nothing ever leaves them.
    "trino/TestRowPatternMatching.testMultipleMatchRecognize#1": [
        ("SELECT first.classy, second.classy, third.classy FROM t ", "WITH one AS (SELECT classy FROM t "),
        (") AS first, t ", ")), two AS (SELECT classy FROM t "),
        (") AS second, t ", ")), three AS (SELECT classy FROM t "),
        (
            ") AS third",
            ")) SELECT one.classy AS a, two.classy AS b, three.classy AS c FROM one WINDOW(RANGE UNBOUNDED), "
            "two WINDOW(RANGE UNBOUNDED), three WINDOW(RANGE UNBOUNDED)",
        ),
    ],
    # Names that are not quoted are upper case there.
    "trino/TestRowPatternMatchingInWindow.testCaseSensitiveLabels#1": [("PATTERN (a b* C*)", "PATTERN (A B* C*)")],
    # Lists that are made only to be joined are made as text.
    "trino/TestCopyAggregationStateInRowPatternMatching.testMaxByN#1": [
        ("array_join(max_by(CLASSIFIER(), id, 3), '', '')", "three_latest(CLASSIFIER())")
    ],
    "trino/TestCopyAggregationStateInRowPatternMatching.testMinN#1": [
        ("array_join(min(CLASSIFIER(), 3), '', '')", "three_least(CLASSIFIER())")
    ],
    "trino/TestCopyAggregationStateInRowPatternMatching.testMultimapAgg#1": [
        (
            "array_join(element_at(multimap_agg(id, CLASSIFIER()), 1), '', '')",
            "string_agg(CASE WHEN id = 1 THEN CLASSIFIER() END, '')",
        )
    ],
    # RisingWave's own name of the first key.
    "risingwave/match_recognize_multi_partition#1": [("partition_0", "id")],
}

_ASKED_AFTERWARDS = {
    "trino/TestRowPatternMatching.testMultipleMatchRecognize#1": ("answer", "SELECT a, b, c FROM answer"),
    "trino/TestRowPatternMatchingInWindow.testRowPatternMatchingInOrderBy#3": (
        "answer",
        "SELECT id FROM answer ORDER BY label ASC NULLS FIRST",
    ),
}


@dataclass(frozen=True)
class Translation:
    """A standing query, its streams, what is asked of its result (a query over the result under a name), and the
    numbers that texts have become."""

    text: str
    streams: list[Input]
    after: tuple[str, str] | None
    numbers: dict[str, int]

    def definitions(self) -> list[str]:
        """The statements that must run before."""
        called = [text for name, text in _DEFINITIONS.items() if f"{name}(" in self.text]
        return [*called, *(stream.declaration(latent=True) for stream in self.streams)]


def translation(case: Case) -> Translation:
    """A case in our dialect."""
    text = _dialect(_rewritten(case, str(case.data.get("query_over_tables") or case.view)))
    inputs = case.inputs
    for number, given in enumerate(inputs if len(inputs) > 1 else [], 1):
        # Trino's literal rows have one name for several inputs.
        given["name"] = f"{given['name']}{number}"
        text = re.sub(r"\bt MATCH_RECOGNIZE", f"{given['name']} MATCH_RECOGNIZE", text, count=1)
    order, window = _order(text), re.search(r"\bDESCRIPTOR\((\w+)\)", text)
    is_of_windows = bool(re.search(r"\bDESCRIPTOR\(.*\bMATCH_RECOGNIZE", text, re.DOTALL))
    if order and (order[0].lower() == "proctime" or is_of_windows):
        # Times of rows that are no columns of the input: rows are searched as they come.
        text = re.sub(rf'\bORDER BY "?{order[0]}"?', "", text)
    after = _ASKED_AFTERWARDS.get(case.id)
    if case.view_names:
        after = (case.view_names[0], _rewritten(case, case.data["expected"]["query_after"]))
    streams = [_stream(given, [window[1]] if window and is_of_windows else order) for given in inputs]
    return Translation(
        text, streams, after, {old: new for given in inputs for old, new in _ranks(given, order).items()}
    )


def _rewritten(case: Case, text: str) -> str:
    for old, new in _REWRITTEN.get(case.id, []):
        text = text.replace(old, new)
    return text


def _dialect(text: str) -> str:
    """Functions and quotes of other dialects."""
    text = re.sub(r"`([^`]*)`", lambda name: '"' + name[1].replace('"', '""') + '"', text)
    text = re.sub(r"\bTUMBLE_ROWTIME\(", "TUMBLE_LAST(", text)
    text = _flink_windows(text)
    # A query without FROM is its value.
    text = re.sub(r"\bEXISTS \(SELECT '\w+'\)", "true", text)
    text = re.sub(r"\bIN \(SELECT ([\w']+)\)", r"IN (\1)", text)
    text = re.sub(r"\(SELECT ([\w']+)\)", r"\1", text)
    text = _call(text, "array_agg", lambda args: f"list_of(CAST({args} AS VARCHAR))")
    text = _call(text, "bool_and", lambda args: f"min(CASE WHEN {args} THEN 1 ELSE 0 END) = 1")
    return _call(text, "IF", lambda args: "CASE WHEN {} THEN {} ELSE {} END".format(*args.split(", ")))


def _call(text: str, name: str, change: Any) -> str:
    """Every call of a function as something else; `change` gets the text between the parentheses."""
    while found := re.search(rf"\b{name}\(", text):
        depth, at = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        text = text[: found.start()] + change(text[found.end() : at - 1]) + text[at:]
    return text


def _flink_windows(text: str) -> str:
    """GROUP BY TUMBLE(ts, size) as a window in FROM: around what FROM names, be it the matches."""
    found = re.search(r"\bGROUP BY (\w+), TUMBLE\((\w+), (interval '\d+' \w+)\)", text)
    if found is None:
        return text
    key, time, size = found.groups()
    text = re.sub(r"\bTUMBLE_LAST\([^)]*\) as (\w+)", r"window_end - INTERVAL '1' MILLISECOND AS \1", text)
    text = re.sub(r"\bTUMBLE_START\([^)]*\) as (\w+)", r"window_start AS \1", text)
    text = text.replace(found[0], f"GROUP BY {key}, window_start, window_end")
    if re.search(r"\bFROM \w+\s+GROUP BY", text):
        return re.sub(r"\bFROM (\w+)(?=\s+GROUP BY)", rf"FROM TUMBLE(TABLE \1, DESCRIPTOR({time}), {size})", text)
    matched = re.search(r"\bFROM (\w+\s+MATCH_RECOGNIZE \(.*\)) AS T(?=\s+GROUP BY)", text, re.DOTALL)
    assert matched is not None, text
    table = f"FROM TUMBLE(TABLE T, DESCRIPTOR({time}), {size})"
    return f"WITH T AS (SELECT * FROM {matched[1]}) " + text.replace(matched[0], table)


def _order(text: str) -> list[str]:
    """The columns that the pattern's rows are ordered by."""
    found = re.search(r'\bORDER BY ("?\w+"?(?:\s*,\s*"?\w+"?)*)', text, re.IGNORECASE)
    return [name.strip().strip('"') for name in found[1].split(",")] if found else []


def _stream(given: dict[str, Any], order: list[str]) -> Input:
    """An input as a stream in order of its watermark or of what the pattern orders by, or else as it is."""
    table = table_of(given)
    columns, rows = list(table.columns), table.rows
    for column in given.get("computed") or []:
        expression = column["expression"].replace("`", "")
        if expression.lower() != CLOCK:
            at = _computed(expression, [name for name, _ in columns])
            columns.append((column["name"], "TIMESTAMP"))
            rows = [(*row, at(row)) for row in rows]
    names = [name.lower() for name, _ in columns]
    mark = given.get("watermark")
    if mark:
        time = names.index(mark["column"].lower())
        return Input(table.name, columns, rows, columns[time][0], _slack(mark["expression"], columns[time][1]))
    places = [names.index(key.lower()) for key in order if key.lower() in names]
    if not places and names[0].startswith("_col") and order:
        places = [0]
    rows = sorted(rows, key=lambda row: tuple(row[place] for place in places))
    if ranks := _ranks(given, order):
        columns[places[0]] = (columns[places[0]][0], "INTEGER")
        rows = [tuple(ranks[value] if i == places[0] else value for i, value in enumerate(row)) for row in rows]
    return Input(table.name, columns, rows, columns[places[0]][0] if places else None)


def _ranks(given: dict[str, Any], order: list[str]) -> dict[str, int]:
    """Texts that rows are ordered by as numbers: text is no time."""
    names = [column["name"].lower() for column in given["columns"]]
    if not order or order[0].lower() not in names:
        return {}
    texts = {row[names.index(order[0].lower())] for row in given["rows"]}
    return {
        text: rank for rank, text in enumerate(sorted(texts, key=str)) if isinstance(text, str) and not _is_time(text)
    }


def _is_time(text: str) -> bool:
    return re.match(r"\d{4}-\d\d-\d\d", text) is not None


def _computed(expression: str, names: list[str]) -> Any:
    if found := re.fullmatch(r"TO_TIMESTAMP_LTZ\((\w+), 3\)", expression):
        place = names.index(found[1])
        return lambda row: f"{dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=row[place])}"
    return timestamps(expression, names)


def _slack(expression: str, type_: str) -> str:
    if found := re.search(r"-\s*INTERVAL\s*'(\d+)'\s*(\w+)", expression, re.IGNORECASE):
        return f" SLACK {found[1]} {found[2]}"
    found = re.search(r"-\s*(\d+)", expression)
    return f" SLACK {found[1]}" if found else ""
