"""Functions of structs and arrays in Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.arrays import to_numpy
from millstream.expressions.arrow.conditional import Builder, Compile, simple
from millstream.expressions.arrow.node import Datum, Node, as_array
from millstream.expressions.functions.arrays import MOST_PLACES
from millstream.expressions.nodes import Call, Literal


def _field(call: Call, compile_: Compile) -> Node | None:
    struct, name = call.args
    node = compile_(struct)
    if node is None or not isinstance(name, Literal):
        return None
    source, place = node, [known for known, _ in struct.type.fields].index(str(name.value))
    return lambda rows: pc.struct_field(source(rows), [place])


def _pack(call: Call, compile_: Compile) -> Node | None:
    parts = [compile_(arg) for arg in call.args]
    nodes = [part for part in parts if part is not None]
    if len(nodes) < len(parts):
        return None
    fields = list(call.type.arrow)
    return lambda rows: pa.StructArray.from_arrays(
        [as_array(node(rows), rows.num_rows) for node in nodes], fields=fields
    )


def _places(numbers: Datum) -> Datum:
    """The numbers from 0 to n."""
    counts = pc.add(pc.min_element_wise(pc.max_element_wise(numbers, -1), MOST_PLACES, skip_nulls=False), 1)
    if isinstance(counts, pa.Scalar):
        return pa.scalar(None if counts.as_py() is None else range(counts.as_py()), pa.list_(pa.int64()))
    sizes = to_numpy(pc.fill_null(counts, 0))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    values = np.arange(ends[-1]) - np.repeat(ends[:-1], sizes)
    return pa.ListArray.from_arrays(
        pa.array(ends.astype(np.int32)), pa.array(values), mask=pc.is_null(counts) if counts.null_count else None
    )


BUILDERS: dict[str, Builder] = {"struct_extract": _field, "struct_pack": _pack, "$places": simple(_places)}
