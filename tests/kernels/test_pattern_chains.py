"""The machine for chains against the reference: the same matches, values and times, however rows come."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from millstream.errors import DataError
from millstream.expressions.nodes import Column, Expr, Literal
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.jit import using
from millstream.kernels.patterns.chain import ChainMachine, why_not
from millstream.kernels.patterns.kernel import MatchKernel
from millstream.kernels.patterns.log import RowLog
from millstream.kernels.patterns.machine import Found, Positions, far_shifts
from millstream.kernels.patterns.spec import MatchSpec
from millstream.kernels.saving import states as saving
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.expressions import Check, Either, Pattern, Repeat, Sequence, Variable
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, TIMED_OUT, Given, Reach, Search
from millstream.plan.programs.builder import call
from millstream.types import BIGINT, DOUBLE, VARCHAR
from tests.support.pattern_strategies import COLUMNS, Arrival, arrivals, searches
from tests.support.patterns import told_when
from tiers import examples

Told = tuple[int, int, int, tuple[Any, ...]]
"""A partition, a time, an arrival number, and the values of a match."""

_RANDOMLY = settings(deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
"""What is drawn from random numbers does not shrink."""

_TYPES = {name: COLUMNS[name].type for name in ("x", "y", "s")}


@st.composite
def chains(draw: st.DrawFn) -> Search:
    """Random searches whose patterns are chains, many of them."""
    return replace(draw(searches(ahead=False, chains=True)), timeouts=False, given=Given("one"))


@st.composite
def trends(draw: st.DrawFn) -> Search:
    """Random chains whose conditions say much about each other: rises, falls, levels, counts."""
    random: Random = draw(st.randoms(use_true_random=True))
    names = "ABCD"[: random.randint(1, 4)]
    reaches = [Reach("x", "x", BIGINT), Reach("px", "x", BIGINT, shift=-1), Reach("y", "y", BIGINT)]
    reaches += [Reach(f"last{name}", "x", BIGINT, (name,)) for name in names]
    reaches += [Reach(f"first{name}", "x", BIGINT, (name,), first=True) for name in names]
    summaries = [AggregateCall.matched(f"n{name}", "count", (), BIGINT, (name,)) for name in names]
    x, y = Column(BIGINT, "x"), Column(BIGINT, "y")

    def literal() -> Expr:
        return Literal(BIGINT, random.randint(0, 3))

    def simple(name: str) -> Expr:
        match random.randrange(8):
            case 0:
                return call(random.choice(("=", "<>", "<", ">=")), x, literal())
            case 1:
                return call(random.choice(("=", "<")), y, literal())
            case 2:
                other = random.choice(names)
                return call(
                    random.choice(("<", ">", "<=")), x, Column(BIGINT, f"{random.choice(('last', 'first'))}{other}")
                )
            case 3:
                return call("<=", Column(BIGINT, f"n{name}"), Literal(BIGINT, random.randint(1, 3)))
        return call(random.choice(("<", ">", "<=", ">=", "=")), x, Column(BIGINT, "px"))

    conditions = []
    for name in names:
        if random.random() < 0.9:
            one = simple(name)
            conditions.append((name, call("and", one, simple(name)) if random.random() < 0.3 else one))
    items: list[Pattern] = []
    for _ in range(random.randint(1, 5)):
        name = random.choice(names)
        item: Pattern = Variable(name)
        if random.random() < 0.6:
            least, most = random.choice(((1, None), (1, None), (1, None), (0, None), (0, 1), (2, 2), (1, 2), (2, None)))
            item = Repeat(item, least, most, random.choice(("greedy", "possessive")))
        items.append(item)
        if random.random() < 0.2:
            items.append(Check(call(">=", Column(BIGINT, f"n{name}"), Literal(BIGINT, random.randint(1, 3)))))
    present = {item.name for part in items for item in (part, *part.parts()) if isinstance(item, Variable)}
    for i in range(random.randint(0, 3)):
        which = None if random.random() < 0.3 else tuple(random.sample(names, random.randint(1, min(2, len(names)))))
        column, type_ = random.choice((("x", BIGINT), ("y", BIGINT), ("s", VARCHAR)))
        offset, shift = random.choice((0, 0, 1, 2)), random.choice((0, 0, -1, -2))
        reaches.append(Reach(f"told{i}", column, type_, which, random.random() < 0.4, offset, shift))
        fn = random.choice(("count", "sum", "avg", "min", "max"))
        type_ = DOUBLE if fn == "avg" else BIGINT
        summaries.append(AggregateCall.matched(f"sum{i}", fn, (x,), type_, which))
    told = [one.name for one in (*reaches, *summaries) if one.name.startswith(("told", "sum"))]
    columns = tuple(random.sample(told, random.randint(0, len(told)))) or ("x",)
    return Search(
        ("k",), Sequence(tuple(items)), tuple(one for one in conditions if one[0] in present), tuple(reaches),
        tuple(summaries), (*columns, *random.choice(((), (MATCH_NUMBER, TIMED_OUT)))),
        within=random.choice((None, None, 3, 10)), time=BIGINT,
    )  # fmt: skip


class Run:
    """A machine with its log, fed in pieces."""

    def __init__(self, search: Search, **options: bool) -> None:
        self.search = search
        self.machine = ChainMachine(search, **options)
        self.state = self.machine.open()
        self.log = self._new_log()
        self.slots: dict[int, int] = {}
        self.seen = 0
        self.told: list[Told] = []

    def _new_log(self) -> RowLog:
        types = {name: _TYPES[name] for name in self.search.read - {"k"}}
        return RowLog(types, self.search.variables, None, far=far_shifts(self.search))

    def push(self, rows: list[Arrival], upto: int) -> None:
        slot = np.array([self.slots.setdefault(row["k"], len(self.slots)) for _, row in rows], dtype=np.int64)
        self.log.hold_slots(len(self.slots))
        columns = {
            name: self.log.encode(name, pa.array([row[name] for _, row in rows], type_.arrow))
            for name, type_ in self.log.types.items()
        }
        time = np.array([time for time, _ in rows], dtype=np.int64)
        seq = np.arange(self.seen, self.seen + len(rows))
        self.seen += len(rows)
        since = self.log.add(time, seq, slot, columns, None)
        self._tell(self.machine.advance(self.state, self.log, since, upto))

    def _tell(self, found: Found) -> None:
        keys = {slot: key for key, slot in self.slots.items()}
        columns = []
        for name, column in zip(self.search.columns, found.columns, strict=True):
            if not isinstance(column, pa.Array):
                values, ok = column
                assert values.dtype == self.search.values[name].kernel
                column = pa.array(values.tolist(), mask=~ok)
            columns.append(column.to_pylist())
        for i in range(len(found)):
            values = tuple(column[i] for column in columns)
            self.told.append((keys[int(found.slot[i])], int(found.time[i]), int(found.seq[i]), values))

    def compact(self) -> None:
        floors = self.machine.floors(self.state, self.log)
        self.machine.moved(self.state, self.log.compact(*self.log.needed(floors)))

    def restart(self, random: Random) -> None:
        """Save everything and load it again, in another order of slots."""
        old, order = self.log, list(range(len(self.slots)))
        random.shuffle(order)
        # rows by their slot: a row's place is that among the rows of its slot
        by_slot = np.argsort(old.slot, kind="stable")
        first = np.searchsorted(old.slot[by_slot], np.arange(len(order)))
        places = np.empty(len(old), dtype=np.int64)
        places[by_slot] = np.arange(len(old)) - first[old.slot[by_slot]]
        saved = self.machine.export(self.state, np.array(order, dtype=np.int64), places)
        evaluations = self.state.evaluations
        self.state = self.machine.load(saved, Positions(first[order], by_slot))
        self.state.evaluations = evaluations
        self.slots = {key: order.index(slot) for key, slot in self.slots.items()}
        renamed = np.argsort(np.array(order, dtype=np.int64)) if order else np.zeros(0, dtype=np.int64)
        self.log = self._new_log()
        self.log.texts.slots(pa.array(["other", "b", "text"]), add=True)
        self.log.hold_slots(len(order))
        columns = {name: self.log.encode(name, old.decode(name, old.values[name], old.ok[name])) for name in old.types}
        self.log.add(old.time.copy(), old.seq.copy(), renamed[old.slot], columns, None)


def expected(search: Search, rows: list[Arrival]) -> list[Told]:
    told: list[Told] = []
    for key in {row["k"] for _, row in rows}:
        own = [(i, time, row) for i, (time, row) in enumerate(rows) if row["k"] == key]
        found = told_when(search, [row for _, _, row in own], [time for _, time, _ in own])
        told += [(key, time, own[last][0], one.values) for time, last, one in found]
    return told


def ran(search: Search, rows: list[Arrival], random: Random, **options: bool) -> Run:
    run = Run(search, **options)
    at = 0
    while at < len(rows):
        count = random.choice((1, 1, 2, 3, 5, 20))
        run.push(rows[at : at + count], rows[min(at + count, len(rows)) - 1][0])
        at += count
        if random.random() < 0.5:
            run.compact()
        if random.random() < 0.2:
            run.restart(random)
        if random.random() < 0.2 and at < len(rows):
            run.push([], rows[at][0])
    run.push([], FOREVER)
    return run


def by_partition(told: list[Told]) -> dict[int, list[Told]]:
    return {key: [one for one in told if one[0] == key] for key in {one[0] for one in told}}


def _outcome(make: Any) -> Any:
    try:
        return make()
    except DataError:
        return "error"


@settings(_RANDOMLY, max_examples=examples(100))
@given(st.one_of(chains(), trends(), trends()), arrivals(max_size=40, keys=2), st.randoms(use_true_random=True))
def test_same_as_the_reference(search: Search, rows: list[Arrival], random: Random) -> None:
    assume(why_not(search) is None)
    wanted = _outcome(lambda: by_partition(expected(search, rows)))
    naive = _outcome(lambda: ran(search, rows, random, shifting=False, counting=True))
    quick = _outcome(lambda: ran(search, rows, random, counting=True))
    if wanted == "error":
        assert naive == quick == "error"
        return
    assert by_partition(naive.told) == wanted
    assert by_partition(quick.told) == wanted
    assert quick.state.evaluations <= naive.state.evaluations


@settings(_RANDOMLY, max_examples=examples(40))
@given(st.one_of(chains(), trends(), trends()), arrivals(max_size=30), st.randoms(use_true_random=True))
def test_same_as_the_general_machine(search: Search, rows: list[Arrival], random: Random) -> None:
    assume(why_not(search) is None)
    spec = MatchSpec(COLUMNS, search)
    kernels = MatchKernel(spec), MatchKernel(spec, general=True)
    assert isinstance(kernels[0].machine, ChainMachine)
    states, at = [kernel.open() for kernel in kernels], 0
    while at <= len(rows):
        some = rows[at : at + random.choice((1, 3, 30))]
        batch = Batch(
            pa.RecordBatch.from_pylist([row for _, row in some], schema=COLUMNS.arrow),
            np.array([time for time, _ in some], dtype=np.int64), np.arange(at, at + len(some)),
            some[-1][0] if some else FOREVER,
        )  # fmt: skip
        at += len(some) or 1
        quick, general = (
            _outcome(partial(_step, kernel, state, batch)) for kernel, state in zip(kernels, states, strict=True)
        )
        assert quick == general
        if quick == "error":
            return
        if random.random() < 0.2:
            states[0] = saving.restore(kernels[0], saving.snapshot(kernels[0], states[0]))
        if random.random() < 0.2:
            states[0] = saving.merge(kernels[0], saving.split(kernels[0], states[0], 3))


def _step(kernel: MatchKernel, state: Any, batch: Batch) -> Any:
    given_ = kernel.step(state, batch)
    return given_.rows.to_pylist(), given_.time.tolist(), given_.seq.tolist()


def _reaches_of_quotes() -> tuple[Reach, ...]:
    own = [Reach("x", "x", BIGINT), Reach("px", "x", BIGINT, shift=-1), Reach("s", "s", VARCHAR)]
    of_each = [Reach(f"{name}.x", "x", BIGINT, (name,)) for name in ("A", "DOWN", "UP")]
    return (*own, *of_each, Reach("A.s", "s", VARCHAR, ("A",)), Reach("label", CLASSIFIER, VARCHAR))


def falls_and_rises(**changes: Any) -> Search:
    """`A DOWN+ UP+`."""
    x, px = Column(BIGINT, "x"), Column(BIGINT, "px")
    pattern = Sequence((Variable("A"), Repeat(Variable("DOWN"), 1, None), Repeat(Variable("UP"), 1, None)))
    search = Search(
        ("k",), pattern, (("DOWN", call("<", x, px)), ("UP", call(">", x, px))), _reaches_of_quotes(),
        columns=("A.x", "DOWN.x", "UP.x", "A.s", "label", MATCH_NUMBER), time=BIGINT,
    )  # fmt: skip
    return replace(search, **changes)


def word(letters: str) -> Search:
    """A pattern of one variable for each letter, as they follow each other."""
    conditions = [(one, call("=", Column(BIGINT, "x"), Literal(BIGINT, ord(one)))) for one in sorted(set(letters))]
    pattern = Sequence(tuple(map(Variable, letters)))
    reaches = (Reach("x", "x", BIGINT), Reach("first", "x", BIGINT, first=True))
    return Search(("k",), pattern, tuple(conditions), reaches, columns=("first", "x"), time=BIGINT)


def double_bottom(least: int = 3) -> Search:
    """Falls, rises, falls and rises again, each over some rows."""
    x, px = Column(BIGINT, "x"), Column(BIGINT, "px")
    items: list[Pattern] = []
    for name in "WXYZ":
        enough = call(">=", Column(BIGINT, f"n{name}"), Literal(BIGINT, least))
        items += [Repeat(Variable(name), 1, None, "possessive"), Check(enough)]
    return Search(
        ("k",), Sequence(tuple(items)), tuple((name, call("<=" if name in "WY" else ">=", x, px)) for name in "WXYZ"),
        (Reach("x", "x", BIGINT), Reach("px", "x", BIGINT, shift=-1), Reach("low", "x", BIGINT, ("X",), first=True)),
        tuple(AggregateCall.matched(f"n{name}", "count", (), BIGINT, (name,)) for name in "WXYZ"), ("low", "nW", "nZ"),
        time=BIGINT,
    )  # fmt: skip


def walk(count: int, seed: int, keys: int = 3, steps: tuple[int, ...] = (-2, -1, 0, 1, 2)) -> list[Arrival]:
    random, levels = Random(seed), dict.fromkeys(range(keys), 50)
    rows = []
    for i in range(count):
        key = random.randrange(keys)
        levels[key] += random.choice(steps)
        rows.append((i, {"k": key, "x": levels[key], "y": 0, "s": random.choice("abc")}))
    return rows


@pytest.mark.parametrize("search", [falls_and_rises(), word("aba"), falls_and_rises(within=6), double_bottom(2)])
def test_compiled_is_the_same(search: Search) -> None:
    letters = [(i, {"k": 0, "x": ord(one), "y": 0, "s": "a"}) for i, one in enumerate("ababababbabaaababaabab")]
    rows = letters if search == word("aba") else walk(300, 1)
    if search.within is None:
        rows[len(rows) // 2][1]["x"] = None
    wanted = by_partition(expected(search, rows))
    assert sum(map(len, wanted.values())) >= 3
    with using("on"):
        assert by_partition(ran(search, rows, Random(2)).told) == wanted
    with using("off"):
        assert by_partition(ran(search, rows, Random(3)).told) == wanted


def test_threads_change_nothing() -> None:
    search, rows = falls_and_rises(), walk(40_000, 3, keys=50)
    alone, together = Run(search), Run(search)
    with using("on", threads=1):
        alone.push(rows, rows[-1][0])
    with using("on", threads=2):
        together.push(rows, rows[-1][0])
    assert len(alone.told) > 1_000
    assert by_partition(alone.told) == by_partition(together.told)


def test_falls_and_rises_keep_no_rows() -> None:
    run = Run(falls_and_rises())
    assert not run.machine.needs_rows
    assert run.machine.describe() == "chain A DOWN+ UP+, no rows are kept"
    for i in range(0, 400, 20):
        run.push(walk(400, 5)[i : i + 20], i + 20)
        run.compact()
        assert len(run.log) == 0


def test_rows_before_the_shift_point_are_dropped() -> None:
    """After a fall, only what follows it can begin another double bottom."""
    run = Run(double_bottom())
    falling = [(i, {"k": 0, "x": -i, "y": 0, "s": "a"}) for i in range(200)]
    rising = [(i, {"k": 0, "x": i, "y": 0, "s": "a"}) for i in range(200, 210)]
    run.push(falling, 199)
    run.compact()
    assert len(run.log) == 1  # the one before the next
    run.push(rising, 209)
    run.compact()
    assert len(run.log) <= len(rising) + 1


def test_knuth_morris_pratt() -> None:
    """The example of the papers: a constant number of comparisons for each letter."""
    searched, text = "abcabcacab", "babcbabcabcaabcabcabcacabc"
    rows = [(i, {"k": 0, "x": ord(one), "y": 0, "s": "a"}) for i, one in enumerate(text * 20)]
    quick, naive = (Run(word(searched), shifting=shifting, counting=True) for shifting in (True, False))
    for run in (quick, naive):
        run.push(rows, FOREVER)
    assert len(quick.told) == 20
    assert quick.told == naive.told
    assert quick.state.evaluations <= 1.3 * len(rows)
    assert naive.state.evaluations > 1.7 * len(rows)
    assert quick.machine.lines()[7] == "c: begin at a, test this row for b"


def test_double_bottom_asks_less() -> None:
    rows = walk(1_500, 7, keys=1, steps=(-1, 0, 0, 0, 1))
    quick, naive = (Run(double_bottom(), shifting=shifting, counting=True) for shifting in (True, False))
    for run in (quick, naive):
        run.push(rows, FOREVER)
    assert len(quick.told) > 10
    assert quick.told == naive.told
    assert 2 * quick.state.evaluations < naive.state.evaluations


def rests(ending: tuple[Pattern, ...], within: int | None = None) -> Search:
    """A row that is no fall, a fall, a rest, and an ending: after a failure there, only the last row of the rest can be
    the one before another fall."""
    x, px = Column(BIGINT, "x"), Column(BIGINT, "px")
    conditions = [("A", ">="), ("DOWN", "<"), ("REST", "="), ("UP", ">"), ("LEVEL", "=")]
    reaches = (
        Reach("x", "x", BIGINT), Reach("px", "x", BIGINT, shift=-1),
        Reach("A.x", "x", BIGINT, ("A",)), Reach("before A.x", "x", BIGINT, ("A",), shift=-1),
        Reach("DOWN.x", "x", BIGINT, ("DOWN",), first=True),
    )  # fmt: skip
    runs = (Repeat(Variable(name), 1, None, "possessive") for name in ("DOWN", "REST"))
    return Search(
        ("k",), Sequence((Variable("A"), *runs, *ending)),
        tuple((name, call(how, x, px)) for name, how in conditions if Variable(name) in ending or name[0] in "ADR"),
        reaches, (AggregateCall.matched("n", "count", (), BIGINT, ("REST",)),), ("A.x", "before A.x", "DOWN.x", "n"),
        within=within, time=BIGINT,
    )  # fmt: skip


_LONG_REST = Check(call(">=", Column(BIGINT, "n"), Literal(BIGINT, 3)))


@pytest.mark.parametrize(
    ("ending", "line"),
    [
        ((Variable("UP"), Variable("LEVEL")), "UP: begin at the last row of REST+, test this row for DOWN+"),
        ((_LONG_REST, Variable("UP")), "REST+ check: begin at the last row of REST+, test this row for DOWN+"),
        (
            (Variable("UP"), _LONG_REST, Variable("LEVEL")),
            "UP: begin at the last row of REST+, test this row for DOWN+",
        ),
    ],
)
@pytest.mark.parametrize("within", [None, 20])
def test_an_attempt_begins_at_the_last_row_of_a_run(ending: tuple[Pattern, ...], line: str, within: int | None) -> None:
    search = rests(ending, within)
    rows = walk(300, 4, keys=2, steps=(-1, 0, 0, 1))
    quick, naive = (ran(search, rows, Random(5), shifting=shifting, counting=True) for shifting in (True, False))
    assert line in quick.machine.lines()
    wanted = by_partition(expected(search, rows))
    assert len(wanted) == 2
    assert by_partition(quick.told) == by_partition(naive.told) == wanted
    assert quick.state.evaluations < naive.state.evaluations


def test_text_survives_what_the_log_forgets() -> None:
    """Text is kept by the machine, of rows that are gone, over restarts and however much of it there is."""
    run, wanted = Run(falls_and_rises(columns=("A.s", "label"))), []
    for i in range(0, 1_600, 4):
        values = [(i + j, {"k": 0, "x": x, "y": 0, "s": f"text {i + j}"}) for j, x in enumerate((9, 8, 9, 9))]
        run.push(values[:1], i)
        run.compact()
        if i % 400 == 0:
            run.restart(Random(i))
        run.push(values[1:], i + 3)
        run.compact()
        wanted.append((f"text {i}", "UP"))
    assert [values for *_, values in run.told] == wanted
    assert len(run.state.texts) < 1_200


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pattern": Either((Variable("A"), Variable("DOWN")))}, "it has alternatives"),
        ({"given": Given("all")}, "matches emit their rows"),
        ({"pattern": Repeat(Variable("A"), 0, None)}, "an empty match is possible"),
        ({"within": 3, "timeouts": True}, "timeouts are emitted"),
        ({"reaches": (*_reaches_of_quotes(), Reach("y", "y", BIGINT, shift=1))}, "looks ahead"),
        (
            {"summaries": (AggregateCall.matched("n", "count", (Column(BIGINT, "x"),), BIGINT, distinct=True),)},
            "needs the rows",
        ),
    ],
)  # fmt: skip
def test_what_it_does_not_take(changes: dict[str, Any], reason: str) -> None:
    changed = falls_and_rises(**changes) if "pattern" not in changes else falls_and_rises(conditions=(), **changes)
    assert (why_not(changed) or "").endswith(reason)
    assert why_not(falls_and_rises()) is None


def test_overflow_is_an_error() -> None:
    total = AggregateCall.matched("total", "sum", (Column(BIGINT, "x"),), BIGINT)
    run = Run(falls_and_rises(summaries=(total,), columns=("total",)))
    with pytest.raises(DataError, match="does not fit"):
        run.push([(i, {"k": 0, "x": 2**62 + x, "y": 0, "s": "a"}) for i, x in enumerate((3, 2, 3, 1))], FOREVER)


def test_a_log_moves_its_own_rows_only() -> None:
    """The arrays of a batch are read where they are; what is kept of them is moved elsewhere."""
    log, batches = RowLog({"x": BIGINT}, ("A",), None), []
    log.hold_slots(2)
    for first in (0, 5, 10):
        time, slot = np.arange(first, first + 5), np.array([0, 1, 0, 1, 0])
        batches.append(time)
        log.add(time, time, slot, {"x": (time, np.ones(5, dtype=np.bool_))}, None)
        new = log.compact(*log.needed(log.last.copy()))
        assert new[-2:].tolist() == [0, 1]
        assert log.time.tolist() == log.values["x"].tolist() == [first + 3, first + 4]
        assert log.last.tolist() == [1, 0]
        assert log.prev.tolist() == log.next.tolist() == [-1, -1]
        assert log.cut.all()
    assert [batch.tolist() for batch in batches] == [list(range(first, first + 5)) for first in (0, 5, 10)]
