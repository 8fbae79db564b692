"""Drives an engine over tuples, in batches and through exports, so that its results compare with the reference's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from millstream.expressions.object_values import to_arrow, to_values
from millstream.kernels.batch import BEGIN, FOREVER
from millstream.kernels.programs.engine import Closing, Engine, Mode, Returned
from millstream.plan.programs.nodes import Program
from tests.support.program_reference import Result, Tuple


def run_engine(
    engine: Engine,
    program: Program,
    mode: Mode,
    tuples: Sequence[Tuple],
    cuts: Sequence[int] = (),
    reload: bool = False,
) -> list[Result]:
    """What `run_reference` gives, from an engine: in batches that begin at the places `cuts`, and with `reload`
    through an export in another order and a load between them. Results are in order of delivery."""
    state = engine.open()
    keys = list(dict.fromkeys(key for key, _, _ in tuples))
    slots = {key: i for i, key in enumerate(keys)}
    results: list[Result] = []
    edges = sorted({0, len(tuples), *(cut for cut in cuts if 0 < cut < len(tuples))})
    for start, stop in pairwise(edges):
        batch = tuples[start:stop]
        upto = FOREVER if stop == len(tuples) else tuples[stop][1]
        columns = [
            to_arrow([values[i] for _, _, values in batch], param.type) for i, param in enumerate(program.parameters)
        ]
        returned = engine.arrive(
            state,
            np.array([slots[key] for key, _, _ in batch], np.int32),
            np.array([time for _, time, _ in batch], np.int64),
            np.arange(start, stop, dtype=np.int64),
            columns,
            upto,
        )
        results += _results(returned, program, start, batch)
        if reload:
            order = sorted(slots.values(), reverse=True)
            state = engine.load(engine.export(state, np.array(order, np.int64)))
            slots = {key: order.index(slot) for key, slot in slots.items()}
    if not tuples:
        engine.arrive(state, np.array([], np.int32), np.array([], np.int64), np.array([], np.int64),
                      [to_arrow([], param.type) for param in program.parameters], BEGIN)  # fmt: skip
    if isinstance(mode, Closing):
        closed = engine.close(state, np.array([slots[key] for key in keys], np.int64))
        results += _results(closed, program, 0, ())
    return results


def _results(returned: Returned, program: Program, start: int, batch: Sequence[Tuple]) -> list[Result]:
    columns = [to_values(array, field.type) for array, field in zip(returned.columns, program.result, strict=True)]
    # Without an origin, there is a row for each tuple.
    places = range(len(batch)) if returned.origin is None else returned.origin.tolist()
    if returned.time is not None:
        times = returned.time.tolist()
    else:
        times = [None] * len(places) if returned.origin is not None else [time for _, time, _ in batch]
    origins = [place + start if place >= 0 else place for place in places]
    return list(zip(origins, times, zip(*columns, strict=True), strict=True))


def same_results(left: Sequence[Result], right: Sequence[Result]) -> bool:
    """Whether two runs gave the same rows in the same order; NaN is NaN."""
    return [_comparable(result) for result in left] == [_comparable(result) for result in right]


def _comparable(result: Result) -> Any:
    origin, time, values = result
    return origin, time, [(type(v), "nan" if isinstance(v, float) and math.isnan(v) else v) for v in values]
