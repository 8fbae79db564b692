"""Random inputs for kernels, and random ways to cut the same input into batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from millstream import types
from millstream.expressions.nodes import Call, Column, Expr, Literal
from millstream.expressions.object_values import to_arrow
from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.compute import ComputeStage
from millstream.kernels.contract import KernelSpec
from millstream.kernels.over import AheadSpec, Between, Frame, OverSpec
from millstream.kernels.programs.engine import Closing
from millstream.kernels.programs.spec import AggregateSpec, GroupSpec
from millstream.kernels.streams.chain import ChainSpec
from millstream.kernels.streams.distinct import DistinctSpec
from millstream.kernels.streams.hop import WindowStage
from millstream.kernels.streams.lateness import LatenessSpec
from millstream.kernels.streams.merge import MergeSpec
from millstream.kernels.streams.reorder import LateSpec, ReorderSpec
from millstream.kernels.streams.row_slots import RowSlotSpec
from millstream.kernels.streams.session import SessionSpec
from millstream.kernels.streams.ties import TieOrderSpec
from millstream.kernels.streams.yields import YieldSpec
from millstream.kernels.window_groups import WindowGroupSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import HALVES, KNOWN, NAMES, OVER_NAMES, RANKS, result_type
from millstream.plan.programs.product import product
from millstream.plan.ties import SortKey
from millstream.plan.window_tables import Cumulating, Hopping
from millstream.schema import Field, Schema
from millstream.types import BIGINT, DECIMAL, DOUBLE, VARCHAR, SqlType
from tests.support.builtin_programs import builtin_program
from tests.support.programs import BASE_PROGRAMS, WINDOW_PROGRAMS, modes_for, programs, tuples_for

COLUMNS = Schema.of(
    k=BIGINT, name=VARCHAR, x=DOUBLE, i=types.INTEGER, b=BIGINT, d=DECIMAL(9, 2), s=VARCHAR, flag=types.BOOLEAN,
    day=types.DATE, at=types.TIMESTAMP, tz=types.TIMESTAMPTZ, clock=types.TIME, span=types.INTERVAL, raw=types.BLOB,
    tiny=types.TINYINT, nothing=types.NULL,
)  # fmt: skip

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BIGINT": st.integers(-5, 5) | st.integers(-(2**53), 2**53),
    "INTEGER": st.integers(-(2**31), 2**31 - 1) | st.integers(0, 3),
    "DOUBLE": st.sampled_from([0.0, -0.0, 0.1, 1.5, -2.25, 1e9, math.inf, -math.inf, math.nan]) | st.floats(-1e6, 1e6),
    "DECIMAL": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda v: Decimal(v).scaleb(-2)),
    "VARCHAR": st.sampled_from(["", "a", "b", "ab", "é", "z", "𝄞", "a longer string", "a longer strong"]),
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "BLOB": st.sampled_from([b"", b"\x00", b"\xff", b"\x7f\x80"]),
    "DATE": st.integers(-1000, 1000),
    "TIMESTAMP": st.integers(-(10**15), 10**15),
    "TIMESTAMPTZ": st.integers(-(10**15), 10**15),
    "TIME": st.integers(0, 86_400_000_000 - 1),
    "INTERVAL": st.integers(-(10**12), 10**12),
    "NULL": st.none(),
}


_WILD_FLOATS = st.floats()


@dataclass(frozen=True)
class Scenario:
    """A spec and all that arrives on each of its ports; `beats` are heartbeats between rows that change results."""

    spec: KernelSpec
    ports: tuple[Batch, ...]
    beats: tuple[tuple[int, int], ...] = ()
    is_raw: bool = False


def column(type_: SqlType, values: list[Any]) -> pa.Array:
    if type_.is_temporal or type_.name == "INTERVAL":
        return pa.array(values, pa.int32() if type_.name == "DATE" else pa.int64()).cast(type_.arrow)
    return pa.array(values, type_.arrow)


@st.composite
def rows(draw: st.DrawFn, schema: Schema, size: int, wild: bool) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if field.name in ("k", "name"):
            keys = [1, 2, 2**40, None] if field.type == BIGINT else ["p", "q", "", None]
            values = st.sampled_from(keys)
        else:
            values = st.none() | _VALUES[field.type.name]
            if wild and field.type == DOUBLE:
                values |= _WILD_FLOATS
        columns.append(column(field.type, draw(st.lists(values, min_size=size, max_size=size))))
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


@st.composite
def ordered(draw: st.DrawFn, schema: Schema, max_size: int = 24, wild: bool = True) -> Batch:
    """Rows in order of time, with many ties."""
    size = draw(st.integers(0, max_size))
    gaps = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 7]), min_size=size, max_size=size))
    start = draw(st.sampled_from([0, 1_000_000, -50, BEGIN + 3]))
    time = start + np.cumsum(np.array(gaps, dtype=np.int64), dtype=np.int64)
    return Batch(draw(rows(schema, size, wild)), time, np.arange(size, dtype=np.int64), FOREVER)


_BEFORE = st.builds(Between, st.none() | st.integers(4, 9), st.integers(1, 4))
_FRAMES = (
    st.builds(Frame, st.sampled_from(["rows", "range", "groups"]), st.none() | st.integers(0, 6) | _BEFORE)
    | st.builds(Frame, st.just("earlier"), _BEFORE)
    | st.builds(Frame, st.just("later"), st.builds(Between, st.integers(4, 9), st.integers(1, 4)))
)


@st.composite
def aggregate_calls(
    draw: st.DrawFn, name: str, fields: Sequence[Field], fns: Set[str], distinct: bool = False
) -> AggregateCall[str]:
    """A call of one of some built-in aggregates over a field, over two, or over rows."""
    arg = draw(st.none() | st.sampled_from(fields))
    if arg is None:
        args: tuple[Field, ...] = ()
    else:
        args = (arg, draw(st.sampled_from(fields))) if draw(st.integers(0, 4)) == 0 else (arg,)
    distinct = distinct and len(args) == 1 and draw(st.booleans())
    types = {fn: result_type(fn, distinct, *(field.type for field in args)) for fn in sorted(fns)}
    fn, type_ = draw(st.sampled_from([(fn, type_) for fn, type_ in types.items() if type_ is not None]))
    return AggregateCall((name,), fn, tuple(field.name for field in args), (type_,), distinct)


@st.composite
def calls(draw: st.DrawFn, schema: Schema, max_calls: int = 4) -> tuple[AggregateCall, ...]:
    frames = draw(st.lists(_FRAMES, min_size=1, max_size=2))
    chosen = []
    for i in range(draw(st.integers(1, max_calls))):
        call = draw(
            aggregate_calls(f"c{i}", [field for field in schema if field.name != "k"], OVER_NAMES - HALVES, True)
        )
        frame = draw(st.sampled_from(frames))
        if call.fn in RANKS:
            frame = Frame("rows", None)
        elif call.fn == "lag":
            frame = Frame("rows", draw(st.integers(0, 6)))
        number = draw(st.integers(1, 4)) if call.fn == "nth_value" else None
        chosen.append(replace(call, framed=frame, number=number))
    return tuple(chosen)


@st.composite
def over_specs(draw: st.DrawFn, max_calls: int = 4) -> OverSpec:
    """A spec over a few of the columns."""
    others = draw(st.lists(st.sampled_from(COLUMNS.fields[2:]), min_size=1, max_size=3, unique=True))
    schema = Schema((*COLUMNS.fields[:2], *others))
    keys = draw(st.sampled_from([(), ("k",), ("name",), ("k", "name"), (others[0].name,)]))
    return OverSpec(schema, keys, draw(calls(schema, max_calls)))


@st.composite
def over_scenarios(draw: st.DrawFn) -> Scenario:
    spec = draw(over_specs())
    return Scenario(spec, (draw(ordered(spec.input)),))


@st.composite
def ahead_specs(draw: st.DrawFn) -> AheadSpec:
    """Frames of rows or of time of which at least one ends after the current row, or of later rows alone."""
    unit = draw(st.sampled_from(["rows", "range", "later"]))
    schema = Schema(tuple(COLUMNS[name] for name in ("k", "name", "x", "i", "s", "flag")))
    reach = draw(st.integers(1, 4))
    chosen = []
    for i in range(draw(st.integers(1, 4))):
        end = -reach if i == 0 else draw(st.integers(-reach, -1 if unit == "later" else 2))
        start = -1 if unit == "later" else draw(st.none() | st.integers(end, 5))
        fits = {fn for fn in NAMES | KNOWN if unit != "range" or not fn.endswith("_value")}
        call = draw(aggregate_calls(f"c{i}", [field for field in schema if field.name != "k"], fits, True))
        chosen.append(replace(call, framed=Frame(unit, Between(start, end) if end else start)))
    return AheadSpec(schema, draw(st.sampled_from([(), ("k",), ("name",), ("k", "name"), ("x",)])), tuple(chosen))


@st.composite
def ahead_scenarios(draw: st.DrawFn) -> Scenario:
    spec = draw(ahead_specs())
    return Scenario(spec, (draw(ordered(spec.input)),))


# Without sums that can overflow: which stage would overflow first depends on the batches.
CHAINED = Schema(tuple(COLUMNS[name] for name in ("k", "name", "x", "i", "s")))


@st.composite
def chain_scenarios(draw: st.DrawFn) -> Scenario:
    """OVER, a filter with computed columns that give the keys other names, and OVER with the same key."""
    keys = draw(st.sampled_from([(), ("k",), ("name",), ("k", "name")]))
    first = OverSpec(CHAINED, keys, draw(calls(CHAINED, 2)))
    kept = tuple((f"{name}_2", Column(first.output[name].type, name)) for name in ("name", "k", "x", "s", "i", "c0"))
    less: Expr = Call(types.BOOLEAN, "<", (Column(types.INTEGER, "i"), Literal(types.INTEGER, 2)))
    compute = ComputeStage(first.output, draw(st.sampled_from([None, less])), draw(st.sampled_from([None, kept])))
    own = [f"{key}_2" for key in keys] if compute.columns else keys
    second = Schema(tuple(f for f in compute.output if f.name not in ("k", "k_2") and f.type.name != "DECIMAL"))
    renamed = tuple(replace(call, names=(f"d{i}",)) for i, call in enumerate(draw(calls(second, 2))))
    return Scenario(
        ChainSpec((first, compute, OverSpec(compute.output, tuple(own), renamed))), (draw(ordered(CHAINED)),)
    )


SMALL = Schema.of(k=BIGINT, x=DOUBLE, s=VARCHAR)


@st.composite
def arrivals(draw: st.DrawFn, spec: Callable[[Schema, int], KernelSpec]) -> Scenario:
    """Rows in any order of time with heartbeats between them."""
    size = draw(st.integers(0, 24))
    time = np.array(draw(st.lists(st.integers(0, 30), min_size=size, max_size=size)), dtype=np.int64)
    time += draw(st.sampled_from([0, 10**6, BEGIN]))
    batch = Batch(draw(rows(SMALL, size, True)), time, np.arange(size, dtype=np.int64), FOREVER)
    places = sorted(draw(st.lists(st.integers(0, size), max_size=3)))
    first = int(time.min()) if size else 0
    beats = sorted(draw(st.lists(st.integers(0, 30), min_size=len(places), max_size=len(places))))
    slack = draw(st.sampled_from([0, 0, 1, 5, 1000]))
    steps = tuple(zip(places, (first + beat for beat in beats), strict=True))
    return Scenario(spec(SMALL, slack), (batch,), steps, is_raw=True)


@st.composite
def merge_scenarios(draw: st.DrawFn) -> Scenario:
    ports = draw(st.integers(1, 4))
    inputs = [draw(ordered(SMALL, 10)) for _ in range(ports)]
    return Scenario(MergeSpec(SMALL, ports), tuple(batch.on_port(i) for i, batch in enumerate(inputs)))


@st.composite
def lateness_scenarios(draw: st.DrawFn) -> Scenario:
    """Late rows stand at the time that had been reached, and have an earlier one of their own."""
    schema = Schema.of(t=BIGINT)
    inputs = []
    for port in range(2):
        batch = draw(ordered(schema, 10))
        behind = [draw(st.integers(1, 6)) * port for _ in range(len(batch))]
        seq = 2 * np.arange(len(batch)) + port
        rows = pa.RecordBatch.from_arrays([pa.array(batch.time - behind, pa.int64())], schema=schema.arrow)
        inputs.append(replace(batch, rows=rows, seq=seq).on_port(port))
    return Scenario(LatenessSpec(schema, "t", draw(st.sampled_from([1, 3, 5]))), tuple(inputs))


@st.composite
def distinct_scenarios(draw: st.DrawFn) -> Scenario:
    schema = draw(st.sampled_from([Schema.of(k=BIGINT), Schema.of(k=BIGINT, x=DOUBLE), SMALL]))
    return Scenario(DistinctSpec(schema), (draw(ordered(schema)),))


@st.composite
def session_scenarios(draw: st.DrawFn) -> Scenario:
    keys = draw(st.sampled_from([(), ("k",), ("s",), ("k", "s")]))
    spec = SessionSpec(SMALL, keys, draw(st.sampled_from([1, 2, 5])), BIGINT)
    batch = draw(ordered(SMALL))
    # arrival numbers need not rise with time
    return Scenario(spec, (replace(batch, seq=_shuffled_ties(draw, batch)),))


@st.composite
def tie_scenarios(draw: st.DrawFn) -> Scenario:
    keys = draw(st.sampled_from([(), ("k",), ("s",), ("k", "s")]))
    columns = draw(st.lists(st.sampled_from(SMALL.names), min_size=1, max_size=2, unique=True))
    by = tuple(SortKey(name, draw(st.booleans()), draw(st.booleans())) for name in columns)
    batch = draw(ordered(SMALL))
    return Scenario(TieOrderSpec(SMALL, keys, by), (replace(batch, seq=_shuffled_ties(draw, batch)),))


def _shuffled_ties(draw: st.DrawFn, batch: Batch) -> Any:
    seq = np.array(draw(st.permutations(range(len(batch)))), dtype=np.int64)
    return seq[np.lexsort((seq, batch.time))] if len(batch) else seq


@st.composite
def closing_scenarios(draw: st.DrawFn) -> Scenario:
    """Rows in windows, grouped by these and perhaps by more."""
    windows = draw(st.sampled_from([Hopping(4, 4), Hopping(6, 2, 1), Hopping(2, 3), Cumulating(6, 2)]))
    batch = draw(ordered(SMALL, wild=False))
    if len(batch) and batch.time[0] < -1000:
        batch = replace(batch, time=batch.time - BEGIN)
    stage = WindowStage(SMALL, windows, BIGINT)
    programs = draw(
        st.lists(
            st.sampled_from(
                [
                    builtin_program("count", None, BIGINT),
                    builtin_program("avg", DOUBLE, DOUBLE),
                    builtin_program("count", VARCHAR, BIGINT, distinct=True),
                    builtin_program("max", VARCHAR, VARCHAR),
                ]
            ),
            min_size=1,
            max_size=3,
        )
    )
    args = tuple("x" if field.type == DOUBLE else "s" for program in programs for field in program.parameters)
    keys = (*draw(st.sampled_from([(), ("k",), ("s", "k")])), "window_start", "window_end")
    results = tuple(f"r{i}" for i in range(len(programs)))
    spec = AggregateSpec(stage.output, keys, product(programs), args, Closing(), results, "window_end")
    return Scenario(spec, (stage.step(batch),))


@st.composite
def group_scenarios(draw: st.DrawFn) -> Scenario:
    """Rows in windows, grouped by these and perhaps by more, with aggregates by name and by program."""
    windows = draw(st.sampled_from([Hopping(4, 4), Hopping(6, 2, 1), Hopping(2, 3), Cumulating(6, 2)]))
    batch = draw(ordered(SMALL))
    if len(batch) and batch.time[0] < -1000:
        batch = replace(batch, time=batch.time - BEGIN)
    stage = WindowStage(SMALL, windows, BIGINT)
    kinds = [
        ("count", None, BIGINT, False), ("sum", "x", DOUBLE, False), ("stddev_pop", "x", DOUBLE, False),
        ("max", "s", VARCHAR, False), ("last_value", "s", VARCHAR, False), ("count", "s", BIGINT, True),
    ]  # fmt: skip
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
    calls = [AggregateCall.builtin(f"r{i}", *kind) for i, kind in enumerate(chosen)]
    if draw(st.booleans()):
        program = builtin_program("sum", DOUBLE, DOUBLE)
        calls.append(AggregateCall(("own",), "own", ("x",), (DOUBLE,), program=program))
    keys = (*draw(st.sampled_from([(), ("k",), ("s", "k")])), "window_start", "window_end")
    spec = GroupSpec(stage.output, keys, tuple(draw(st.permutations(calls))), "window_end")
    return Scenario(spec, (stage.step(batch),))


@st.composite
def window_group_specs(draw: st.DrawFn) -> WindowGroupSpec:
    """Aggregates that have lanes, over windows with and without overlap and gaps."""
    windows = draw(
        st.sampled_from(
            [Hopping(4, 4), Hopping(6, 2, 1), Hopping(6, 4), Hopping(2, 3), Hopping(7, 1), Cumulating(6, 2)]
        )
    )
    schema = Schema(tuple(COLUMNS[name] for name in ("k", "name", "x", "i", "b", "d", "s", "flag", "at")))
    chosen = []
    for i in range(draw(st.integers(1, 4))):
        chosen.append(draw(aggregate_calls(f"r{i}", schema.fields[2:], NAMES)))
    by = draw(st.sampled_from([(), ("k",), ("name",), ("name", "k")]))
    shown = draw(st.permutations([*by, "begin", "end"]))
    return WindowGroupSpec(schema, by, windows, BIGINT, tuple(shown), ("begin",), ("end",), tuple(chosen))


@st.composite
def window_group_scenarios(draw: st.DrawFn) -> Scenario:
    spec = draw(window_group_specs())
    batch = draw(ordered(spec.input))
    if len(batch) and batch.time[0] < -1000:
        batch = replace(batch, time=batch.time - BEGIN)
    # arrival numbers need not rise with time
    return Scenario(spec, (replace(batch, seq=_shuffled_ties(draw, batch)),))


@st.composite
def program_scenarios(draw: st.DrawFn) -> Scenario:
    """Aggregates of the papers and random ones, in all windows, with and without keys."""
    makers = [*BASE_PROGRAMS.values(), *WINDOW_PROGRAMS.values()]
    program = draw(st.sampled_from(makers).map(lambda make: make()) | programs(grouping=draw(st.integers(0, 3)) == 0))
    mode = draw(modes_for(program).filter(lambda mode: not isinstance(mode, Closing)))
    schema = Schema((COLUMNS["k"], *(Field(f"a{i}", field.type) for i, field in enumerate(program.parameters))))
    args = tuple(f"a{i}" for i in range(len(program.parameters)))
    results = tuple(f"r{i}" for i in range(len(program.result)))
    failing = draw(st.sampled_from(["stop", "skip"]))
    spec = AggregateSpec(schema, draw(st.sampled_from([(), ("k",)])), program, args, mode, results, failing=failing)
    batch = draw(ordered(schema, 12, wild=False))
    # Small values, which do not overflow; which statement would overflow first depends on nothing else.
    tuples = draw(tuples_for(program, len(batch)))
    columns = [batch.rows.column(0).slice(0, len(tuples))]
    for i, field in enumerate(program.parameters):
        columns.append(to_arrow([values[i] for _, _, values in tuples], field.type))
    batch = batch.slice(0, len(tuples))
    return Scenario(spec, (batch.with_rows(pa.RecordBatch.from_arrays(columns, schema=schema.arrow)),))


@st.composite
def yield_scenarios(draw: st.DrawFn) -> Scenario:
    unit = draw(st.sampled_from(["rows", "range"]))
    keys = draw(st.sampled_from([(), ("k",), ("k", "s")]))
    batch = draw(ordered(SMALL))
    if unit == "range" and len(batch) and int(batch.time[0]) < -(2**62):
        batch = replace(batch, time=batch.time + 2**62)
    return Scenario(YieldSpec(SMALL, keys, unit, draw(st.integers(1, 5))), (batch,))


@st.composite
def row_slot_scenarios(draw: st.DrawFn) -> Scenario:
    schema = Schema(tuple(COLUMNS[name] for name in ("k", "x", "i", "b", "d", "s", "at")))
    every = draw(st.integers(1, 5))
    chosen = []
    for i in range(draw(st.integers(1, 4))):
        frame = Frame("rows", draw(st.integers(0, every - 1)))
        chosen.append(replace(draw(aggregate_calls(f"c{i}", schema.fields[1:], NAMES)), framed=frame))
    keys = draw(st.sampled_from([(), ("k",), ("k", "s")]))
    return Scenario(RowSlotSpec(schema, keys, tuple(chosen), every), (draw(ordered(schema)),))


SCENARIOS: dict[str, st.SearchStrategy[Scenario]] = {
    "AheadSpec": ahead_scenarios(),
    "ChainSpec": chain_scenarios(),
    "OverSpec": over_scenarios(),
    "ReorderSpec": arrivals(ReorderSpec),
    "LateSpec": arrivals(LateSpec),
    "MergeSpec": merge_scenarios(),
    "LatenessSpec": lateness_scenarios(),
    "DistinctSpec": distinct_scenarios(),
    "SessionSpec": session_scenarios(),
    "TieOrderSpec": tie_scenarios(),
    "AggregateSpec": closing_scenarios() | program_scenarios(),
    "GroupSpec": group_scenarios(),
    "RowSlotSpec": row_slot_scenarios(),
    "YieldSpec": yield_scenarios(),
    "WindowGroupSpec": window_group_scenarios(),
}


def whole(scenario: Scenario) -> list[Batch]:
    """The input in as few batches as can be."""
    if not scenario.is_raw:
        return list(scenario.ports)
    batch = scenario.ports[0]
    cuts = [*scenario.beats, (len(batch), FOREVER)]
    start, pieces = 0, []
    for place, upto in cuts:
        pieces.append(batch.slice(start, place).with_upto(upto))
        start = place
    return pieces


@st.composite
def batches(draw: st.DrawFn, scenario: Scenario) -> list[Batch]:
    """The input in random batches, some empty, with random progress that keeps its promise."""
    if scenario.is_raw:
        return [part for piece in whole(scenario) for part in draw(_raw_parts(piece))]
    queues = [draw(_ordered_parts(batch)) for batch in scenario.ports]
    result = []
    while any(queues):
        port = draw(st.sampled_from([i for i, queue in enumerate(queues) if queue]))
        result.append(queues[port].pop(0))
    return result


@st.composite
def _raw_parts(draw: st.DrawFn, piece: Batch) -> list[Batch]:
    cuts = sorted(draw(st.lists(st.integers(0, len(piece)), max_size=4)))
    edges = [0, *cuts, len(piece)]
    parts = [piece.slice(a, b).with_upto(BEGIN) for a, b in pairwise(edges)]
    parts[-1] = parts[-1].with_upto(piece.upto)
    return parts


@st.composite
def _ordered_parts(draw: st.DrawFn, batch: Batch) -> list[Batch]:
    cuts = sorted(draw(st.lists(st.integers(0, len(batch)), max_size=6)))
    edges = [0, *cuts, len(batch)]
    parts = []
    upto = BEGIN
    for start, stop in pairwise(edges):
        part = batch.slice(start, stop)
        limit = int(batch.time[stop]) if stop < len(batch) else FOREVER
        reached = int(batch.time[stop - 1]) if stop else BEGIN
        upto = max(upto, draw(st.sampled_from([reached, limit, min(limit, reached + 1), upto])))
        parts.append(part.with_upto(min(upto, limit)))
    parts.append(replace(batch.slice(0, 0), upto=FOREVER))
    return parts
