"""Random expressions of the event algebra, as text and by their definition, over random streams with ties and overlaps.

`python -m tests.support.event_queries --cases 10000` compares that many of each operator.
"""

from __future__ import annotations

import argparse
import random
import sys
import time as clock
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import millstream as ms
from tests.support.event_algebra import (
    Condition,
    Happened,
    Stream,
    Values,
    combined,
    filtered,
    folded,
    following,
    mapped,
)

OPERATORS = ("filter", "select", "next", "fold", "nested", "union", "aggregate")
STREAMS = ("A", "B", "C")
_OPS: dict[str, Callable[[int, int], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
Data = dict[str, Stream]


def _known(values: tuple[int | None, ...]) -> list[int]:
    return [value for value in values if value is not None]


_AGGREGATES: dict[str, Callable[[tuple[int | None, ...]], Any]] = {
    "rows": len,
    "count": lambda values: len(_known(values)),
    "sum": lambda values: sum(_known(values)) if _known(values) else None,
    "min": lambda values: min(_known(values), default=None),
    "max": lambda values: max(_known(values), default=None),
    "first_value": lambda values: values[0],
    "last_value": lambda values: values[-1],
}


@dataclass(frozen=True)
class Expression:
    """An item of FROM, its columns, what it means, and whether its events last."""

    text: str
    columns: tuple[str, ...]
    meaning: Callable[[Data], Stream]
    lasts: bool = True


@dataclass(frozen=True)
class Test:
    """A condition as text, and its truth: True, False or None."""

    text: str
    truth: Callable[[Values, int], bool | None]

    def holds(self) -> Condition:
        return lambda values, duration: self.truth(values, duration) is True


class Queries:
    """Random expressions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._numbers = count()

    def expression(self, operator: str, depth: int) -> Expression:
        """An expression with this operator outermost."""
        return getattr(self, f"_{operator}")(depth)  # type: ignore[no-any-return]

    def _any(self, depth: int) -> Expression:
        if depth <= 0 or self.random.random() < 0.3:
            return self._stream()
        return self.expression(self.random.choice(OPERATORS), depth - 1)

    def _stream(self) -> Expression:
        name, number = self.random.choice(STREAMS), next(self._numbers)
        columns = {f"k{number}": "k", f"x{number}": "x"}
        return self._renamed(name, columns)

    def _renamed(self, name: str, columns: dict[str, str]) -> Expression:
        items = ", ".join(f"{own} AS {new}" for new, own in columns.items())

        def meaning(data: Data) -> Stream:
            return mapped(data[name], lambda values: {new: values[own] for new, own in columns.items()})

        return Expression(f"(SELECT {items} FROM {name})", tuple(columns), meaning)

    def _filter(self, depth: int) -> Expression:
        of = self._any(depth)
        test = self._test(list(of.columns), dur=True)
        return Expression(
            f"(FILTER{{{test.text}}} {of.text})",
            of.columns,
            lambda data: filtered(of.meaning(data), test.holds()),
            of.lasts,
        )

    def _select(self, depth: int) -> Expression:
        of = self._any(depth)
        number = next(self._numbers)
        chosen = self.random.sample(of.columns, self.random.randint(1, len(of.columns)))
        sums = [(f"s{number}", *self.random.choices(of.columns, k=2))] if self.random.random() < 0.5 else []
        items = [*chosen, *(f"{a} + {b} AS {name}" for name, a, b in sums)]

        def columns(values: Values) -> Values:
            made = {name: _plus(values[a], values[b]) for name, a, b in sums}
            return {**{name: values[name] for name in chosen}, **made}

        return Expression(
            f"(SELECT {', '.join(items)} FROM {of.text})",
            (*chosen, *(name for name, _, _ in sums)),
            lambda data: mapped(of.meaning(data), columns),
            of.lasts,
        )

    def _next(self, depth: int) -> Expression:
        first, second = self._any(depth), self._any(depth - 1 if self.random.random() < 0.3 else 0)
        return self._followed(first, second)

    def _nested(self, depth: int) -> Expression:
        """A right side that is an expression itself: its events come at the same instant."""
        return self._followed(self._any(depth - 1), self._next(depth - 1))

    def _followed(self, first: Expression, second: Expression) -> Expression:
        columns = (*first.columns, *second.columns)
        test = self._test(list(columns), dur=True, pairs=(first.columns, second.columns))
        braces = "" if test.text == "TRUE" else f"{{{test.text}}}"
        return Expression(
            f"({first.text} NEXT{braces} {second.text})",
            columns,
            lambda data: following(first.meaning(data), second.meaning(data), test.holds()),
        )

    def _fold(self, depth: int) -> Expression:
        first = self._any(depth)
        number = next(self._numbers)
        free = [name for name in first.columns if f"{name}_1" not in first.columns]
        own = self.random.sample(free, min(len(free), self.random.randint(1, 2)))
        second = self._renamed(
            self.random.choice(STREAMS), dict(zip(own, self.random.choices("kx", k=2), strict=False))
        )
        if self.random.random() < 0.3:
            second = self._filtered(second)
        decorated = [f"$2.{name}" for name in own] + [f"$.{name}" for name in own] + [f"$1.{first.columns[0]}"]
        names = {f"$2.{name}": name for name in own} | {f"$.{name}": f"$.{name}" for name in own}
        names[decorated[-1]] = f"{first.columns[0]}_1" if first.columns[0] in own else first.columns[0]
        pairs = ([f"$.{name}" for name in own], [f"$2.{name}" for name in own])
        condition = self._test(decorated, dur=True, names=names, pairs=pairs)
        continues = self._test(decorated, dur=True, names=names, pairs=pairs)
        updates: list[Any] = []
        given, text = [], first.text
        if self.random.random() < 0.6:
            updates.append((f"n{number}", None, lambda v, key=f"$.n{number}": _plus(v[key], 1)))
            given.append(f"$.n{number} + 1 AS n{number}")
            text = f"(SELECT *, 1 AS n{number} FROM {first.text})"
        if self.random.random() < 0.4:
            updates.append((f"m{number}", None, lambda v, key=own[0]: _plus(v[key], v[f"$.{key}"])))
            given.append(f"$2.{own[0]} + $.{own[0]} AS m{number}")
        if self.random.random() < 0.5:
            texts, more, hidden = self._aggregated(number, own[0])
            given += texts
            updates += more
            # what the definition remembers, and the engine does not
            updates.append(hidden)
        starts = {f"n{number}": 1} if f"n{number}" in {name for name, _, _ in updates} else {}
        again = {*own, *starts}
        columns = (
            *(f"{name}_1" if name in again else name for name in (*first.columns, *starts)),
            *own,
            *(name for name, _, _ in updates if not name.startswith("hidden")),
        )

        def meaning(data: Data) -> Stream:
            begun = mapped(first.meaning(data), lambda values: {**values, **starts})
            return folded(begun, second.meaning(data), condition.holds(), continues.holds(), updates)

        first_part = "" if condition.text == "TRUE" else condition.text
        second_part = "" if continues.text == "TRUE" else continues.text
        braces = f"FOLD{{{first_part}, {second_part}, {', '.join(given)}}}"
        return Expression(f"({text} {braces} {second.text})", columns, meaning)

    def _aggregated(self, number: int, column: str) -> tuple[list[str], list[Any], Any]:
        """Some aggregates over the events taken: their texts, what they mean, and the values that they are of."""
        hidden = f"hidden{number}"

        def taken(values: Values) -> tuple[Any, ...]:
            return (*(values[f"$.{hidden}"] or ()), values[column])

        texts, updates = [], []
        for fn in self.random.sample(list(_AGGREGATES), self.random.randint(1, 3)):
            name = f"{fn}{number}"
            texts.append(f"{'count(*)' if fn == 'rows' else f'{fn}($2.{column})'} AS {name}")
            begin = 0 if fn in ("rows", "count") else None
            updates.append((name, begin, lambda v, fn=fn: _AGGREGATES[fn](taken(v))))
        return texts, updates, (hidden, None, taken)

    def _filtered(self, of: Expression) -> Expression:
        test = self._test(list(of.columns), dur=True)
        return Expression(
            f"(FILTER{{{test.text}}} {of.text})", of.columns, lambda data: filtered(of.meaning(data), test.holds())
        )

    def _union(self, depth: int) -> Expression:
        branches = [self._any(depth) for _ in range(2)]
        number = next(self._numbers)
        texts, meanings = [], []
        for branch in branches:
            one, two = self.random.choices(branch.columns, k=2)
            texts.append(f"SELECT {one} AS u{number}, {two} AS w{number} FROM {branch.text}")

            def meaning(data: Data, branch: Expression = branch, one: str = one, two: str = two) -> Stream:
                return mapped(branch.meaning(data), lambda v: {f"u{number}": v[one], f"w{number}": v[two]})

            meanings.append(meaning)
        return Expression(
            f"({texts[0]} UNION ALL {texts[1]})",
            (f"u{number}", f"w{number}"),
            lambda data: [event for meaning in meanings for event in meaning(data)],
            any(branch.lasts for branch in branches),
        )

    def _aggregate(self, depth: int) -> Expression:
        of = self._any(depth)
        number = next(self._numbers)
        keys = [self.random.choice(of.columns)] if self.random.random() < 0.5 else []
        arg = self.random.choice(of.columns)

        def combine(rows: list[Values]) -> Values:
            known = [row[arg] for row in rows if row[arg] is not None]
            return {f"h{number}": max(known, default=None), f"c{number}": len(rows)}

        by = f" BY {', '.join(keys)}" if keys else ""
        return Expression(
            f"(AGGREGATE{{max({arg}) AS h{number}, count(*) AS c{number}{by}}} {of.text})",
            (*keys, f"h{number}", f"c{number}"),
            lambda data: combined(of.meaning(data), keys, combine),
            False,
        )

    # -- conditions ------------------------------------------------------------------------------------------------

    def _test(
        self,
        columns: list[str],
        dur: bool = False,
        names: dict[str, str] | None = None,
        pairs: tuple[Any, Any] | None = None,
    ) -> Test:
        known = names or {name: name for name in columns}
        shape = self.random.random()
        if shape < 0.12:
            return Test("TRUE", lambda _values, _duration: True)
        parts = [self._atom(columns, known, dur, pairs) for _ in range(self.random.choice((1, 1, 2)))]
        if len(parts) == 1:
            only = parts[0]
            if self.random.random() < 0.15:
                return Test(f"NOT ({only.text})", lambda v, d: None if (t := only.truth(v, d)) is None else not t)
            return only
        one, two = parts
        if self.random.random() < 0.75:
            return Test(f"{one.text} AND {two.text}", lambda v, d: _and(one.truth(v, d), two.truth(v, d)))
        return Test(f"({one.text} OR {two.text})", lambda v, d: _or(one.truth(v, d), two.truth(v, d)))

    def _atom(self, columns: list[str], known: dict[str, str], dur: bool, pairs: tuple[Any, Any] | None) -> Test:
        kind = self.random.random()
        if dur and kind < 0.2:
            op, bound = self.random.choice(("<=", "<", ">=", "=")), self.random.randint(0, 9)
            return Test(f"DUR {op} {bound}", lambda _values, duration: _OPS[op](duration, bound))
        if pairs is not None and kind < 0.65:
            left, right = self.random.choice(list(pairs[0])), self.random.choice(list(pairs[1]))
            op = self.random.choice(("=", "=", "=", "<", ">=", "contains"))
            one, two = known[left], known[right]
            if op == "contains":
                # what compiled loops do not know
                text = f"contains(CAST({left} AS VARCHAR), CAST({right} AS VARCHAR))"
                return Test(text, lambda v, _d: None if None in (v[one], v[two]) else str(v[two]) in str(v[one]))
            return Test(f"{left} {op} {right}", lambda v, _d: _compared(op, v[one], v[two]))
        left, op, constant = self.random.choice(columns), self.random.choice(list(_OPS)), self.random.randint(0, 4)
        own = known[left]
        return Test(f"{left} {op} {constant}", lambda v, _d: _compared(op, v[own], constant))


def _compared(op: str, a: int | None, b: int | None) -> bool | None:
    return None if a is None or b is None else _OPS[op](a, b)


def _and(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


def _or(a: bool | None, b: bool | None) -> bool | None:
    return True if a is True or b is True else None if a is None or b is None else False


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


# -- running -----------------------------------------------------------------------------------------------------------


def random_data(rng: random.Random) -> Data:
    """Streams with ties, overlaps and NULLs."""
    data: Data = {}
    for name in STREAMS:
        ends = sorted(rng.randint(0, 14) for _ in range(rng.randint(0, 9)))
        data[name] = [
            Happened(
                {"k": rng.choice((1, 1, 2, 2, 3, None)), "x": rng.randint(0, 4)},
                end - rng.choice((0, 0, 0, 1, 2, 4)),
                end,
            )
            for end in ends
        ]
    return data


def differences(expressions: list[Expression], many: list[Data], rng: random.Random, **settings: Any) -> list[str]:
    """Where the engine's answers are not those of the definition. Each expression is planned once."""
    texts = [f"SELECT {', '.join(expression.columns)} FROM {expression.text}" for expression in expressions]
    with _session(settings) as db:
        plans = [db.prepare(text).plan for text in texts]
    found = []
    for data in many:
        with _session(settings) as db:
            queries = [db.install(plan) for plan in plans]
            for name, rows in _pushes(data, rng):
                db.push(name, rows)
            db.finish()
            for expression, text, query in zip(expressions, texts, queries, strict=True):
                got = Counter(tuple(row.values()) for row in query.fetch().to_pylist())
                wanted = _meant(expression, data)
                if got != wanted:
                    found.append(f"{text}\n  too many {got - wanted}\n  missing {wanted - got}\n  data {_listed(data)}")
    return found


def _session(settings: dict[str, Any]) -> ms.Database:
    db = ms.connect()
    for name, value in settings.items():
        db.execute(f"SET {name} = {value}")
    for name in STREAMS:
        db.execute(f"CREATE STREAM {name} (k INT, x INT, s BIGINT, t BIGINT) ORDER BY t SINCE s")
    return db


def _meant(expression: Expression, data: Data) -> Counter[tuple[Any, ...]]:
    return Counter(
        (*(event.values[name] for name in expression.columns), *((event.start, event.end) if expression.lasts else ()))
        for event in expression.meaning(data)
    )


def _pushes(data: Data, rng: random.Random) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """The rows of all streams in pieces, streams in any order, ties shuffled."""
    waiting = {}
    for name, events in data.items():
        order = sorted(events, key=lambda event: (event.end, rng.random()))
        waiting[name] = [(e.values["k"], e.values["x"], e.start, e.end) for e in order]
    pieces = []
    while any(waiting.values()):
        name = rng.choice([name for name, rows in waiting.items() if rows])
        size = rng.randint(1, 4)
        pieces.append((name, waiting[name][:size]))
        waiting[name] = waiting[name][size:]
    return pieces


def _listed(data: Data) -> dict[str, list[Any]]:
    return {name: [(e.values["k"], e.values["x"], e.start, e.end) for e in events] for name, events in data.items()}


def check(operator: str, cases: int, seed: int, at_once: int = 8, streams: int = 25) -> list[str]:
    """Compare so many random cases of an operator: expressions, each over several sets of streams."""
    found: list[str] = []
    for begin in range(0, cases, at_once * streams):
        rng = random.Random(f"{operator} {seed} {begin}")
        queries = Queries(rng.randrange(2**62))
        expressions = [queries.expression(operator, rng.randint(1, 3)) for _ in range(at_once)]
        data = [random_data(rng) for _ in range(min(streams, -(-(cases - begin) // at_once)))]
        found += differences(expressions, data, rng, rules=rng.choice(("on", "on", "off")))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1_000, help="of each operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--operator", choices=OPERATORS, action="append")
    options = parser.parse_args()
    wrong = 0
    for operator in options.operator or OPERATORS:
        began = clock.process_time()
        found = check(operator, options.cases, options.seed)
        wrong += len(found)
        for text in found[:5]:
            print(text)
        taken = clock.process_time() - began
        print(f"{operator}: {options.cases} cases, {len(found)} differences, {taken:.0f} s", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
