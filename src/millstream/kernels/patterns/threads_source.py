"""The source text of the machine of threads, made for a search."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cache
from typing import Any

import numpy as np

from millstream.expressions.kernel.coded_text import NotCompilable
from millstream.expressions.kernel.forms import zero
from millstream.expressions.kernel.helpers import helper_source
from millstream.expressions.nodes import Expr, columns_of
from millstream.kernels.accumulators import imports
from millstream.kernels.batch import Ints
from millstream.kernels.jit import source_of
from millstream.kernels.patterns import thread_loops, thread_parts
from millstream.kernels.patterns.conditions import Constants, Doubt, doubts_of, evaluated
from millstream.kernels.patterns.machine import ahead
from millstream.kernels.patterns.program import ACCEPT, CHECK, FAIL, SPLIT, TAKE, TRY, WIDTH, Instructions, instructions
from millstream.kernels.patterns.registers import Group, MatchRegisters, is_marked, shifted
from millstream.kernels.patterns.telling import Tell, is_replayed, tell_source
from millstream.kernels.patterns.thread_parts import ENV
from millstream.kernels.source.passes import LoopSource
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, TIMED_OUT, Reach, Search
from millstream.records import dataclass
from millstream.types import BOOLEAN, SqlType

_OWN_LANES = 2
"""Lanes of a thread before its registers: its place in the program and its newest cell."""
_SKIPS = {"past last": 0, "next": 1, "first": 2, "last": 3}


@dataclass
class ThreadLoops:
    """Kernel source with `run` and `tell`, and what runs it has to know."""

    source: str
    program: Instructions
    lanes: int
    tell: Tell
    marks: list[int]
    """the lanes of a thread that are positions"""
    relevant: Ints
    constants: Constants
    asked: list[Callable[[list[Any]], bool]] = field(default_factory=list)
    """conditions in Python; if there are any, the source does not compile"""
    asked_types: list[list[tuple[SqlType, str] | None]] = field(default_factory=list)
    """the types of what they read; None: given as a Python value"""
    reason: str | None = None
    """why not all conditions are compiled"""
    together: bool = False
    """whether attempts run at the same time"""
    doubts: list[tuple[Doubt, ...]] = field(default_factory=list)
    """of each condition in Python, its parts that may fail, if that is to be reported"""


def generate(search: Search, columns: dict[str, int], reporting: bool = False) -> ThreadLoops:
    """The source for a search over columns whose arrays are at these places."""
    return _Source(search, columns, reporting).generated()


class _Source:
    def __init__(self, search: Search, columns: dict[str, int], reporting: bool) -> None:
        self._search, self._columns, self._reporting = search, columns, reporting
        self._program = instructions(search.pattern, search.variables)
        self._conditions: dict[int, Expr] = {search.variables.index(name): expr for name, expr in search.conditions}
        self._constants = Constants()
        self._helpers: set[str] = set()
        self._asked: list[Callable[[list[Any]], bool]] = []
        self._asked_types: list[list[tuple[SqlType, str] | None]] = []
        self._doubts: list[tuple[Doubt, ...]] = []
        self._reason: str | None = None
        self._reads_start = False
        self._reads = {v: self._kept(columns_of(expr), v) for v, expr in self._conditions.items()}
        self._check_reads = [self._kept(columns_of(check), None) for check in self._program.checks]
        names = [name for read in (*self._reads.values(), *self._check_reads) for name in sorted(read)]
        self._registers = MatchRegisters(search, names, _OWN_LANES, merged=True)
        self._reads_cells = False
        self._groups: list[Group] = []
        """those whose last rows are found by their labels"""

    def _number(self, value: int) -> str:
        return f"whole[{self._constants.number(value, value)}]"

    def _numbers(self, group: Group) -> list[int]:
        return [v for v, name in enumerate(self._search.variables) if group is None or name in group]

    def generated(self) -> ThreadLoops:
        search = self._search
        takes = [self._take(v) for v in range(len(search.variables))]
        checks = [self._check(c, expr) for c, expr in enumerate(self._program.checks)]
        told = tell_source(search, self._columns, self._number)
        relevant = self._relevant()
        shared = not relevant.any()
        together = shared and not self._reads_start and self._may_fail_silently()
        lanes, marks = self._registers.width, self._registers.marks
        if together:
            lanes, marks = _OWN_LANES + 1, [_OWN_LANES]
            relevant = np.zeros(len(self._program) * lanes, dtype=np.int64)
        wanted = self._reads_cells or told.needs_labels or search.skip.to in ("first", "last")
        constants = {
            "LANES": lanes, "SHARED": shared, "TOGETHER": together, "CELLS": wanted, "AHEAD": ahead(search) > 0,
            "BOUNDED": search.within is not None, "TIMEOUTS": search.timeouts,
            "UNMATCHED": search.given.rows == "all" and search.given.unmatched, "EMPTY": search.given.empty,
            "EACH": search.given.rows == "each", "SEEK": search.given.rows == "each" and search.given.seek,
            "SKIP": _SKIPS[search.skip.to], "REPORTS": self._reporting,
        }  # fmt: skip
        targets = [search.variables.index(name) for name in search.skip.variables if name in search.variables]
        parts = [
            "\n".join(f"{name} = {value}" for name, value in constants.items()),
            helper_source(self._helpers),
            _LABEL_OF,
            *(_last_of(g, self._numbers(group)) for g, group in enumerate(self._groups)),
            *takes,
            *checks,
            _chosen("take", "v", len(takes), _TAKE_ARGS),
            _chosen("check", "c", len(checks), _CHECK_ARGS),
            f"def is_target(v):\n    return {_among('v', targets)}\n",
            _loops(),
            told.source,
        ]
        text = "\n\n".join(part for part in parts if part)
        return ThreadLoops(
            f"import numpy as np\n{imports(text)}\n{text}", self._program, lanes, told, marks, relevant,
            self._constants, self._asked, self._asked_types, self._reason, together, self._doubts,
        )  # fmt: skip

    def _may_fail_silently(self) -> bool:
        """Whether attempts that find nothing leave no trace, and none ends by its own time."""
        search = self._search
        return search.within is None and search.given.rows != "each" and not search.given.unmatched

    def _kept(self, names: frozenset[str], v: int | None) -> frozenset[str]:
        """Of the values that a condition reads, those that the row at hand does not tell."""
        kept = set()
        for name in names & self._search.named.keys():
            value = self._search.named[name]
            if self._is_replayed(name):
                continue
            if v is None or not isinstance(value, Reach) or self._at_hand(value, v) is None:
                kept.add(name)
        return frozenset(kept)

    def _at_hand(self, reach: Reach, v: int) -> str | None:
        if reach.offset:
            return None
        if reach.first:
            self._reads_start |= reach.variables is None
            return "start" if reach.variables is None else None
        return "p" if reach.variables is None or self._search.variables[v] in reach.variables else None

    def _take(self, v: int) -> str:
        """The function that takes a row as a variable."""
        lanes = range(_OWN_LANES, self._registers.width)
        copy = [f"rec[{lane}] = now[o + {lane}]" for lane in lanes]
        here = self._search.variables[v]

        def within(group: Group) -> str:
            return str(group is None or here in group)

        update = [*copy, *self._registers.update(within, "rec", self._columns.__getitem__, self._number)]
        condition = self._conditions.get(v)
        if condition is None:
            lines = [*update, "return True"]
        else:
            loads, holds = self._condition(condition, v, lambda lane: f"rec[{lane}]", lambda lane: f"frec[{lane}]")
            if self._reads[v]:
                lines = [*update, *loads, f"return {holds}"]
            else:
                lines = [*loads, f"if not {holds}:", "    return False", *update, "return True"]
        body = "\n".join(f"    {line}" for line in lines)
        return f"def take{v}({_TAKE_ARGS}):\n{_UNPACK}{body}\n"

    def _check(self, c: int, condition: Expr) -> str:
        loads, holds = self._condition(
            condition, None, lambda lane: f"rec[o + {lane}]", lambda lane: f"frec[o + {lane}]"
        )
        body = "\n".join(f"    {line}" for line in [*loads, f"return {holds}"])
        return f"def check{c}({_CHECK_ARGS}):\n{_UNPACK}{body}\n"

    def _condition(
        self, condition: Expr, v: int | None, regs: Callable[[int], str], fregs: Callable[[int], str]
    ) -> tuple[list[str], str]:
        """The lines that load what a condition reads, and the condition."""
        read = sorted(columns_of(condition))
        names = {name: f"x{i}" for i, name in enumerate(read)}
        loads = [line for name in read for line in self._load(name, names[name], v, regs, fregs)]
        doubts = doubts_of(self._search, condition, read) if self._reporting else ()
        try:
            if doubts:
                raise NotCompilable("what cannot be computed is reported")
            for name in read:
                self._require_compilable(name)
            place = f"variable {v}" if v is not None else condition
            source = self._constants.compiled(place, condition, names)
        except NotCompilable as reason:
            self._reason = self._reason or str(reason)
            self._asked.append(evaluated(condition, {name: i for i, name in enumerate(read)}))
            self._doubts.append(doubts)
            self._asked_types.append([None if self._is_replayed(name) else self._typed(name) for name in read])
            values = "".join(f"v_{name}, " for name in names.values())
            nulls = "".join(f"n_{name}, " for name in names.values())
            return loads, f"ask({len(self._asked) - 1}, ({values}), ({nulls}))"
        self._helpers |= source.helpers
        return [*self._constants.lines(place), *loads], source.holds

    def _typed(self, name: str) -> tuple[SqlType, str]:
        """The type of a value, and the column that it is of."""
        value = self._search.named.get(name)
        return self._search.values[name], value.column if isinstance(value, Reach) else ""

    def _require_compilable(self, name: str) -> None:
        if self._is_replayed(name):
            raise NotCompilable(f"{self._search.named[name]} is computed from the rows of the match each time")
        if self._search.values[name].name in ("BLOB", "DECIMAL", "NULL"):
            raise NotCompilable(f"{self._search.named[name]} is {self._search.values[name]}")

    def _summary_number(self, name: str) -> int:
        return [summary.name for summary in self._search.summaries].index(name)

    def _is_replayed(self, name: str) -> bool:
        return is_replayed(self._search, name)

    def _load(
        self, name: str, to: str, v: int | None, regs: Callable[[int], str], fregs: Callable[[int], str]
    ) -> Iterator[str]:
        """Source that sets v_<to> and n_<to>."""
        if name == MATCH_NUMBER:
            yield from (f"v_{to} = number", f"n_{to} = False")
            return
        if name == TIMED_OUT:
            yield from (f"v_{to} = False", f"n_{to} = False")
            return
        value = self._search.named[name]
        newest, own = ("now[o + 1]", f"{v}, p") if v is not None else ("rec[o + 1]", "-1, -1")
        if self._is_replayed(name):
            self._reads_cells = True
            yield f"v_{to} = ask.summed({self._summary_number(name)}, cells, {newest}, {own}, number)"
            yield f"n_{to} = v_{to} is None"
            return
        if isinstance(value, AggregateCall):
            yield from self._registers.summed(value, regs, fregs, f"sum_{to}", f"known_{to}")
            yield f"n_{to} = {'False' if value.fn == 'count' else f'not known_{to}'}"
            yield f"v_{to} = sum_{to}{' != 0' if value.type == BOOLEAN else ''}"
            return
        yield f"q = {self._position(value, v, regs, newest, own)}"
        yield from shifted(value.shift, self._search)
        if self._search.given.rows == "each":
            yield "if q < low or q > high:"
            yield "    q = -1"
        if value.column == CLASSIFIER:
            self._reads_cells = True
            yield f"label = label_of(cells, {newest}, q, {own})"
            yield f"n_{to} = label < 0"
            yield f"v_{to} = codes[label] if label >= 0 else 0"
            return
        place = self._columns[value.column]
        yield f"n_{to} = q < 0 or not cols[{place + 1}][q]"
        yield f"v_{to} = {zero(value.type)}" if not value.type.is_coded else f"v_{to} = 0"
        yield f"if not n_{to}:"
        yield f"    v_{to} = cols[{place}][q]"

    def _position(self, reach: Reach, v: int | None, regs: Callable[[int], str], newest: str, own: str) -> str:
        """Source of where the row is that a reach goes by."""
        at_hand = None if v is None else self._at_hand(reach, v)
        if at_hand is not None or is_marked(reach):
            return at_hand or self._registers.mark(reach, regs)
        self._reads_cells = True
        if reach.variables not in self._groups:
            self._groups.append(reach.variables)
        number = self._groups.index(reach.variables)
        return f"last_of{number}(cells, {newest}, {own}, {self._number(reach.offset)})"

    def _relevant(self) -> Ints:
        """For each place of the program, which lanes of a thread that stands there decide what becomes of it."""
        lanes, size = self._registers.width, len(self._program)
        own = np.zeros((size, lanes), dtype=np.bool_)
        code = self._program.code.reshape(-1, WIDTH)
        history = self._history_readers()
        for pc, (op, what, _, _) in enumerate(code.tolist()):
            read: frozenset[str] = frozenset()
            if op in (TAKE, TRY):
                read = self._reads.get(what >> 1, frozenset())
                own[pc, 1] = (0, what >> 1) in history
            elif op == CHECK:
                read = self._check_reads[what]
                own[pc, 1] = (1, what) in history
            for name in read:
                own[pc, list(self._registers.owned[name])] = True
        changed = True
        while changed:
            before = own.copy()
            for pc in range(size - 1, -1, -1):
                op, _, other, following = code[pc].tolist()
                if op not in (ACCEPT, FAIL):
                    own[pc] |= own[following]
                if op in (SPLIT, TRY):
                    own[pc] |= own[other]
            changed = bool((own != before).any())
        return own.reshape(-1).astype(np.int64)

    def _history_readers(self) -> set[tuple[int, int]]:
        """The conditions of variables (0) and checks (1) that read how earlier rows were labelled."""

        def reads(expr: Expr, v: int | None) -> bool:
            names = columns_of(expr) & self._search.named.keys()
            values = [self._search.named[name] for name in names]
            return any(map(self._is_replayed, names)) or any(
                not is_marked(value)
                or (value.column == CLASSIFIER and (v is None or value.shift != 0 or self._at_hand(value, v) != "p"))
                for value in values
                if isinstance(value, Reach)
            )

        found = {(0, v) for v, expr in self._conditions.items() if reads(expr, v)}
        return found | {(1, c) for c, expr in enumerate(self._program.checks) if reads(expr, None)}


_TAKE_ARGS = "now, fnow, o, rec, frec, p, start, number, low, high, cells, env"
_CHECK_ARGS = "rec, frec, o, start, number, low, high, cells, env"
_UNPACK = f"    {', '.join(ENV)} = env\n"
_LABEL_OF = """\
def label_of(cells, c, q, v, p):
    # How a thread labelled a row; -1 if it has not taken it.
    if q < 0:
        return -1
    if q == p:
        return v
    while c >= 0:
        if cells[3 * c + 1] == q:
            return cells[3 * c + 2] >> 1
        c = cells[3 * c]
    return -1
"""


def _last_of(number: int, labels: list[int]) -> str:
    return f"""\
def last_of{number}(cells, c, v, p, back):
    # The row that is so many before the last one with some labels, by the cells of a thread and the row p as v.
    if {_among("v", labels)}:
        if back == 0:
            return p
        back -= 1
    while c >= 0:
        v = cells[3 * c + 2] >> 1
        if {_among("v", labels)}:
            if back == 0:
                return cells[3 * c + 1]
            back -= 1
        c = cells[3 * c]
    return -1
"""


def _chosen(name: str, by: str, count: int, args: str) -> str:
    """A function that calls one of several."""
    lines = [f"def {name}({by}, {args}):"]
    lines += [f"    if {by} == {i}:\n        return {name}{i}({args})" for i in range(count)]
    return "\n".join([*lines, "    return False", ""])


def _among(name: str, numbers: list[int]) -> str:
    return " or ".join(f"{name} == {number}" for number in numbers) or "False"


@cache
def _loops() -> str:
    """The loops of `thread_loops` without what this module writes in place of `thread_parts`."""
    source = LoopSource(source_of(thread_loops))
    written = {"typing", thread_parts.__name__}
    imports = [node for node in source.all(ast.ImportFrom) if node.module in written]
    return source.edited((source.begin(node), source.end(node), "") for node in imports)
