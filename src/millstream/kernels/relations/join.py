"""Joins of relations: pairs of rows that match, during the time for which both are valid."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from millstream.expressions.nodes import Expr, columns_of
from millstream.kernels.contract import Kernel
from millstream.kernels.one_input import ByKeys
from millstream.kernels.registry import register
from millstream.kernels.relations.signs import signed
from millstream.plan.node import by_told
from millstream.plan.relations import Form, How
from millstream.records import dataclass
from millstream.schema import Field, Schema

LEFT, RIGHT = 0, 1


@register
@dataclass(frozen=True)
class JoinSpec(ByKeys):
    """Rows of `left` and `right` that are equal in the columns `by`, which both have, and fulfil `residual`.

    NULL equals nothing here. `columns` are those of the result, each with its side. `residual` reads columns of both
    sides by their names, keys from the left. In the form `changes`, both inputs and the result have the sign of each
    change as one more column.
    """

    by_instant = True

    left: Schema
    right: Schema
    by: tuple[str, ...]
    columns: tuple[tuple[Literal["left", "right"], str], ...]
    how: How = "inner"
    residual: Expr | None = None
    form: Form = "intervals"

    def __post_init__(self) -> None:
        for name in self.by:
            if self.left[name].type != self.right[name].type:
                raise ValueError(f"{name} is not of one type")
        if not self.columns:
            raise ValueError("a join without columns")
        if self.how in ("semi", "anti") and any(side == "right" for side, _ in self.columns):
            raise ValueError(f"the right side of {self.how} join has no columns in its result")
        if self.residual is not None:
            self.read  # noqa: B018 - refuses unknown names
        self.output  # noqa: B018 - refuses duplicate names

    @property
    def sides(self) -> tuple[Schema, Schema]:
        return (self.left, self.right)

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return tuple(self._in_form(schema.fields) for schema in self.sides)

    @cached_property
    def output(self) -> Schema:
        return self._in_form(tuple(self.sides[side][name] for side, name in self.results))

    @property
    def results(self) -> tuple[tuple[int, str], ...]:
        """The columns of the result with the number of their side."""
        return tuple((LEFT if side == "left" else RIGHT, name) for side, name in self.columns)

    @cached_property
    def read(self) -> tuple[tuple[int, str], ...]:
        """The columns that the residual needs, with the number of their side."""
        names = sorted(columns_of(self.residual)) if self.residual is not None else []
        known = [(LEFT if name in self.left else RIGHT, name) for name in names]
        for side, name in known:
            if name not in self.sides[side]:
                raise ValueError(f"no column {name} on either side")
        # Rows without columns would have no number.
        return tuple(known) or ((LEFT, self.left.names[0]),)

    @property
    def pairs_are_results(self) -> bool:
        return self.how not in ("semi", "anti")

    def tracks(self, side: int) -> bool:
        """Whether results depend on when a row of this side is matched."""
        return self.how in (("left", "full", "semi", "anti") if side == LEFT else ("right", "full"))

    def keeps_unmatched(self, side: int) -> bool:
        """Whether rows of this side are results while nothing matches them."""
        return self.how != "semi" and self.tracks(side)

    def state_signature(self) -> object:
        """Of each side the columns that are kept. Which rows are matched is kept only if results depend on it, and then
        so does what they were matched by."""
        return {
            "left": self.left,
            "right": self.right,
            "by": self.by,
            "columns": tuple(name for _, name in self.columns),
            "sides": tuple(side for side, _ in self.results),
            "read": frozenset(name for _, name in self.read) if self.residual is not None else None,
            "how": self.how,
            "matched": None if self.how == "inner" else self.residual,
            "form": self.form,
        }

    def build(self) -> Kernel:
        if self.form == "changes":
            from millstream.kernels.relations.join_changes import ChangesJoinKernel

            return ChangesJoinKernel(self)
        from millstream.kernels.relations.join_intervals import JoinKernel

        return JoinKernel(self)

    def describe(self) -> str:
        how = "" if self.how == "inner" else f"{self.how} "
        where = f" where {self.residual}" if self.residual is not None else ""
        return f"{how}join{by_told(self.by)}{where}{' of changes' if self.form == 'changes' else ''}"

    def _in_form(self, fields: tuple[Field, ...]) -> Schema:
        return signed(Schema(fields)) if self.form == "changes" else Schema(fields)
