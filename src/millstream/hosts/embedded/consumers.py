"""The consumers of a vertex; filters that differ only in constants are evaluated together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.hosts.filter_groups import LEAST_MEMBERS, FilterGroup, FilterShape, shape_of
from millstream.kernels.compute import ComputeStage
from millstream.physical.nodes import Compute, Physical

if TYPE_CHECKING:
    from millstream.hosts.embedded.graph import Vertex


class VertexGroup(FilterGroup["Vertex"]):
    """The filters of one shape behind one vertex."""

    _listeners: list[Vertex] | None = None

    @property
    def listeners(self) -> list[Vertex]:
        """The filters whose takers must hear how far time has come, also without rows."""
        if self._listeners is None:
            self._listeners = [vertex for vertex in self.members.values() if vertex.hears_progress]
        return self._listeners

    def changed(self) -> None:
        """It has other members, or somebody else takes the output of one."""
        self._listeners = None


class Consumers:
    """Who takes the output of a vertex: groups of filters, and all others with the port they take it on."""

    def __init__(self) -> None:
        self.all: list[tuple[Vertex, int]] = []
        self._groups: dict[FilterShape, VertexGroup] = {}
        self._member_of: dict[Vertex, VertexGroup] = {}
        self._dispatch: tuple[list[tuple[Vertex, int]], list[VertexGroup]] | None = None

    def add(self, vertex: Vertex, port: int, node: Physical, grouped: bool = True) -> None:
        """A vertex takes the output; a filter that may be grouped with those of its shape."""
        self.all.append((vertex, port))
        self._dispatch = None
        if not isinstance(node, Compute) or not grouped:
            return
        found = shape_of(ComputeStage(node.input.schema, node.predicate, node.columns))
        if found is None:
            return
        shape, values = found
        group = self._groups.get(shape) or VertexGroup(shape)
        if group.is_indexed:
            self._groups[shape] = group
            group.add(vertex, values)
            group.changed()
            vertex.group = group
            self._member_of[vertex] = group

    def remove(self, vertex: Vertex) -> None:
        self.all = [edge for edge in self.all if edge[0] is not vertex]
        self._dispatch = None
        group = self._member_of.pop(vertex, None)
        if group is not None:
            group.remove(vertex)
            group.changed()
            if not group.members:
                del self._groups[group.shape]

    def dispatch(self) -> tuple[list[tuple[Vertex, int]], list[VertexGroup]]:
        """Those that are asked one by one, and the groups of the others."""
        if self._dispatch is None:
            groups = [group for group in self._groups.values() if len(group) >= LEAST_MEMBERS]
            shared = {id(group) for group in groups}
            alone = [edge for edge in self.all if id(self._member_of.get(edge[0])) not in shared]
            self._dispatch = alone, groups
        return self._dispatch
