"""Functions of structs in Arrow."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.arrow.conditional import Builder, Compile
from millstream.expressions.arrow.node import Node, as_array
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


BUILDERS: dict[str, Builder] = {"struct_extract": _field, "struct_pack": _pack}
