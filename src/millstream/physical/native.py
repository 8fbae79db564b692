"""Which operators a host may replace with its own, because that is faster and gives the same results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millstream.kernels.window_groups.spec import WindowGroupSpec
from millstream.physical.nodes import Apply, Compute, NativeGroups, Physical
from millstream.plan.aggregate_calls import AggregateCall
from millstream.types import SqlType

_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMPTZ")


def with_native(node: Physical, is_hosts: Callable[[Physical], bool]) -> Physical:
    """The plan of a bounded run with its last kernel replaced by the host's own operator, where the rows below are
    the host's anyhow and nobody asks for the order of what comes out."""
    match node:
        case Compute(input=below):
            return replace(node, input=with_native(below, is_hosts))
        case Apply(over=(below,), spec=WindowGroupSpec() as spec) if is_hosts(below) and why_not_native(spec) is None:
            return NativeGroups(node.schema, below, spec)
    return node


def why_not_native(spec: WindowGroupSpec) -> str | None:
    """What keeps groups from being an ordinary GROUP BY of the host's; None if nothing does."""
    if spec.type.name not in _TIMES[1:]:
        return "times are numbers, whose range must be checked"
    for name in spec.by:
        if not _is_exact(spec.input[name].type) and spec.input[name].type.name not in ("BOOLEAN", "VARCHAR"):
            return f"equality of {name} may differ"
    told = next((call.told for call in spec.calls if not _has_own(call, spec)), None)
    return None if told is None else f"{told} may differ"


def _has_own(call: AggregateCall[str], spec: WindowGroupSpec) -> bool:
    """Counts, and what is exact: sums of floats are here, but not in the host."""
    if call.fn == "count" or call.arg is None:
        return call.fn == "count"
    type_ = spec.input[call.arg].type
    return type_.is_integer if call.fn in ("sum", "avg") else call.fn in ("min", "max") and _is_exact(type_)


def _is_exact(type_: SqlType) -> bool:
    return type_.is_integer or type_.name in _TIMES
