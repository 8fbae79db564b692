"""Physical plan → DataFrame program: scalar work and table joins as Spark SQL, kernels behind a packed exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from millstream.errors import EngineError
from millstream.hosts.spark.blobs import SEQ, TIME
from millstream.hosts.spark.branches import ORDER_BITS, Branch, Clockwork, merged, width_of
from millstream.hosts.spark.session import check_streaming, cores_of
from millstream.hosts.spark.sqltext import spark_sql, spark_value
from millstream.hosts.spark.steps import RunKernel, Unpack
from millstream.hosts.spark.tables import SparkTable
from millstream.physical.nodes import Apply, Compute, Physical, Source, StoredTable, TableJoin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAMING_BUCKETS = "spark.millstream.buckets"
"""How many buckets the keys of a streaming query fall into; fixed in its checkpoint, so it has a default of its own."""

DEFAULT_BUCKETS = 16


@dataclass
class Builder:
    """Builds one program. `source` and `table` say where rows come from."""

    spark: SparkSession
    clockwork: Clockwork
    source: Callable[[Source], Branch]
    table: Callable[[StoredTable], SparkTable]
    buckets: int | None = None
    _built: dict[Physical, tuple[Branch, ...]] = field(default_factory=dict)

    def build(self, plan: Physical) -> tuple[Branch, ...]:
        """The branches whose union is the plan's result."""
        if self.clockwork.streaming and self.clockwork.timed:
            check_streaming(self.spark)
        return self._node(plan)

    def _node(self, node: Physical) -> tuple[Branch, ...]:
        if node not in self._built:
            self._built[node] = self._made(node)
        return self._built[node]

    def _made(self, node: Physical) -> tuple[Branch, ...]:
        match node:
            case Source():
                return (self.source(node),)
            case Compute():
                return tuple(computed(branch, node) for branch in self._node(node.input))
            case TableJoin():
                table = self.table(node.table)
                return tuple(table_joined(branch, node, table) for branch in self._node(node.input))
            case Apply() if not is_exchange(node):
                return merged([self._node(child) for child in node.over])
            case Apply():
                return (self._applied(node),)
        raise EngineError(f"{node.label()} does not run on Spark")

    def _applied(self, node: Apply) -> Branch:
        spec = node.spec
        ports = [self._node(child) for child in node.over]
        buckets = self._bucket_count() if spec.keys else 1
        width = max(map(width_of, ports))
        bits = width + max((len(branches) - 1).bit_length() for branches in ports)
        if bits > ORDER_BITS:
            raise EngineError(
                "too many branches of unions meet in one place",
                hint="write intermediate results to a sink, and read them from there",
            )
        packed = [
            replace(branch, schema=spec.inputs[port]).packed(spec, port, buckets, width)
            for port, branches in enumerate(ports)
            for branch in branches
        ]
        exchanged = self._exchanged(reduce(lambda a, b: a.unionAll(b), packed), node, buckets)
        step = Unpack(spec.output) if self.clockwork.streaming else RunKernel(spec)
        return Branch(exchanged, spec.output, self.clockwork, step, bits)

    def _exchanged(self, packed: DataFrame, node: Apply, buckets: int) -> DataFrame:
        if not self.clockwork.streaming:
            if buckets == 1:
                return packed.repartition(1)
            # from Spark 4.1 on, each bucket has a task of its own; before, hashing may put two into one
            by_number: Any = getattr(packed, "repartitionById", None)
            return packed.repartition(buckets, "bucket") if by_number is None else by_number(buckets, "bucket")
        from millstream.hosts.spark.stateful import OUTPUT, KernelProcessor

        processor = KernelProcessor(node.spec, buckets, self.clockwork.per_ms, self.clockwork.latent)
        mode = "None" if self.clockwork.latent else "EventTime"
        return packed.groupBy("bucket").transformWithStateInPandas(processor, OUTPUT, "Append", mode)

    def _bucket_count(self) -> int:
        if self.buckets is not None:
            return self.buckets
        if self.clockwork.streaming:
            return int(self.spark.conf.get(STREAMING_BUCKETS, str(DEFAULT_BUCKETS)) or DEFAULT_BUCKETS)
        return cores_of(self.spark)


def is_exchange(node: Physical) -> bool:
    """Whether an operator needs its rows brought together: kernels do, a union as such does not."""
    from millstream.kernels.merge import MergeSpec

    return isinstance(node, Apply) and not isinstance(node.spec, MergeSpec)


def computed(branch: Branch, node: Compute) -> Branch:
    """Filter, then project, in Spark SQL."""
    branch = branch.settled()
    df = branch.df
    if node.predicate is not None:
        df = df.where(spark_sql(node.predicate, node.input.schema))
    if node.columns is not None:
        columns = [f"{spark_value(expr, node.input.schema)} AS c{i}" for i, (_, expr) in enumerate(node.columns)]
        df = df.selectExpr(TIME, SEQ, *columns)
    return replace(branch, df=df, schema=node.schema)


def table_joined(branch: Branch, node: TableJoin, table: SparkTable) -> Branch:
    """Each row with its matches; the table goes to every task."""
    from pyspark.sql import functions as F

    branch = branch.settled()
    ours, theirs = node.input.schema, node.table.schema
    conditions = [f"{spark_sql(mine, ours)} = {spark_sql(other, theirs, 'd')}" for mine, other in node.pairs]
    if node.residual is not None:
        conditions.append(f"({spark_sql(node.residual, node.schema, 'c', len(ours))})")
    on = F.expr(" AND ".join(conditions) or "TRUE")
    df = branch.df.join(F.broadcast(table.df), on, "left" if node.outer else "inner")
    number, bits = SEQ, branch.bits
    if branch.numbered and table.rows is not None and bits + table.rows.bit_length() < ORDER_BITS:
        # matches of one row come in the order of the table
        number = f"{SEQ} * {1 << table.rows.bit_length()} + coalesce(d_row, 0L) AS {SEQ}"
        bits += table.rows.bit_length()
    columns = [f"c{i}" for i in range(len(ours))] + [f"d{i} AS c{len(ours) + i}" for i in range(len(theirs))]
    return replace(branch, df=df.selectExpr(TIME, number, *columns), schema=node.schema, bits=bits)
