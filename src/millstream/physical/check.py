"""Checks plans that users build: whether their parts fit together."""

from __future__ import annotations

from millstream.catalog import Catalog, StreamDef
from millstream.errors import BindError
from millstream.kernels.relations.deliver import DeliverSpec
from millstream.kernels.relations.stages import ValidityStage
from millstream.physical.nodes import Apply, Physical, Source, Staged, walk


def check_plan(plan: Physical, catalog: Catalog) -> bool:
    """Refuse a plan that reads what is not there, or whose kernels get other columns than they are made for.

    Says whether the last two columns of its rows bound their validity."""
    if plan.spans:
        raise BindError(
            "the rows of this plan are valid during intervals, which are not among its columns",
            hint="put Staged(…, ValidityStage(…)) or Apply(…, ToEventsSpec(…)) on top",
        )
    for node in walk(plan):
        if isinstance(node, Source):
            known = catalog.get(node.stream, StreamDef).side(node.side)
            for field in node.schema:
                if field.name not in known or known[field.name] != field:
                    raise BindError(f"no column {field} in {node.stream}", hint=f"available: {known}")
        elif isinstance(node, Apply):
            given = tuple(child.schema for child in node.over)
            if given != node.spec.inputs:
                raise BindError(
                    f"{node.spec.describe()} takes {_listed(node.spec.inputs)}, and is given {_listed(given)}"
                )
    match plan:
        case Staged(stage=ValidityStage()) | Apply(spec=DeliverSpec()):
            return True
    return False


def _listed(schemas: tuple[object, ...]) -> str:
    return " and ".join(map(str, schemas)) or "nothing"
