"""Physical plan → DataFrame program: scalar work and table joins as Spark SQL, kernels behind a packed exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from functools import reduce
from itertools import count
from typing import TYPE_CHECKING, Any

from millstream.errors import EngineError
from millstream.expressions.sql.text import in_spark_sql
from millstream.hosts.spark.arrive import ReadFiles
from millstream.hosts.spark.blobs import SEQ, TIME
from millstream.hosts.spark.branches import ORDER_BITS, Branch, Clockwork, merged, width_of
from millstream.hosts.spark.feeds import fed, whole_keys
from millstream.hosts.spark.meters import STAGE_METRICS, metered, metered_rows
from millstream.hosts.spark.native import grouped_natively
from millstream.hosts.spark.session import FILES, VARIABLES, check_streaming, cores_of, kept_as, kept_in_frame
from millstream.hosts.spark.spans import with_ends
from millstream.hosts.spark.sqltext import spark_sql, spark_value
from millstream.hosts.spark.stage import LateRows, Stage
from millstream.hosts.spark.steps import Beside, Computed, FromRows, KernelOpening, Pack, StageStep, TableStep, Unpack
from millstream.hosts.spark.tables import SparkTable, collected
from millstream.hosts.spark.wire import can_travel, wire_sql
from millstream.kernels.contract import KernelSpec
from millstream.limits import NO_LIMITS, Limits
from millstream.physical.native import with_native
from millstream.physical.nodes import (
    SEVERAL_ROWS,
    Apply,
    Compute,
    NativeGroups,
    Partial,
    Physical,
    Source,
    Staged,
    StoredTable,
    TableJoin,
)
from millstream.physical.partials import with_partials, with_records
from millstream.records import dataclass
from millstream.sql import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAMING_BUCKETS = "spark.millstream.buckets"
"""How many buckets the keys of a streaming query fall into; fixed in its checkpoint, so it has a default of its own."""

DEFAULT_BUCKETS = 8

PUT_TOGETHER = "spark.millstream.partials"
"""Whether rows may be put together where they are read, so that the exchange carries partials."""

FUSE_JOINS = "spark.millstream.fuseJoins"
"""Whether joins share an exchange with the kernels below them, where both have the same key."""

NATIVE = "spark.millstream.native"
"""Whether Spark's own operators may take the place of kernels."""

IDLE = "spark.millstream.idle"
"""How long an input may bring nothing before the others go on without it; `never` waits for it."""

DEFAULT_IDLE = "5 minutes"


@dataclass
class BranchBuilder:
    """Builds one program. `source` and `table` say where rows come from."""

    spark: SparkSession
    clockwork: Clockwork
    source: Callable[[Source], Branch]
    table: Callable[[StoredTable], SparkTable]
    buckets: int | None = None
    in_spark: Callable[[Physical], bool] = lambda node: False
    """whether the rows of an operator are Spark's"""
    allowed: Limits = NO_LIMITS
    stages: list[Stage] = field(default_factory=list)
    """those that keep state, in the order they are built"""
    kept: str = VARIABLES
    """how they keep it"""
    fed: bool = True
    """whether joins share an exchange with the kernels below them"""
    records: bool = True
    """whether groups of relations may keep records, so that partials come to them"""
    partitioned_by: Callable[[Source], str | None] = lambda node: None
    """the column by which a source is divided"""
    _built: dict[Physical, tuple[Branch, ...]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def build(self, plan: Physical, rows: bool = False) -> tuple[Branch, ...]:
        """The branches whose union is the plan's result; with `rows` they are to be Spark's, without hidden columns."""
        plan = fused(with_ends(with_records(plan) if self.records else plan), joins=self.fed)
        if self.clockwork.streaming and self.clockwork.timed:
            if rows:
                self.kept = kept_in_frame(self.spark, exchanges(plan), self.clockwork.watermarked)
            if self.kept == VARIABLES:
                check_streaming(self.spark)
                last = arranged(with_last_columns(plan), self.spark)
                if rows and isinstance(last, Apply) and is_exchange(last) and can_travel(last.schema, self.spark):
                    return (self._applied(last, wide=True),)
        native = rows and not self.clockwork.streaming
        return self._node(arranged(plan, self.spark, self.in_spark if native else None))

    def _node(self, node: Physical) -> tuple[Branch, ...]:
        if self.kept == FILES and exchanges(node):
            # each use has workers of its own, and so state of its own
            return self._made(node)
        if node not in self._built:
            self._built[node] = self._made(node)
        return self._built[node]

    def _made(self, node: Physical) -> tuple[Branch, ...]:
        match node:
            case Source(side="late") if self.clockwork.streaming:
                # the stream's own rows, of which a stage keeps only those that the others leave out
                return (self._applied(Apply(node.schema, (replace(node, side="main"),), LateRows(node.schema))),)
            case Source():
                return (self.source(node),)
            case Compute():
                return tuple(computed(branch, node) for branch in self._node(node.input))
            case Staged():
                return tuple(staged(branch, node) for branch in self._node(node.input))
            case TableJoin():
                table = self.table(node.table)
                return tuple(table_joined(branch, node, table) for branch in self._node(node.input))
            case NativeGroups():
                return tuple(grouped_natively(branch, node.spec) for branch in self._node(node.input))
            case Apply() if not is_exchange(node):
                return merged([self._node(child) for child in node.over])
            case Apply():
                return (self._applied(node),)
        raise EngineError(f"{node.label()} does not run on Spark")

    def _applied(self, node: Apply, wide: bool = False) -> Branch:
        """A kernel behind a packed exchange; a `wide` one is the last, and gives out its rows as they are."""
        spec = node.spec
        partials = [child.partials if isinstance(child, Partial) else None for child in node.over]
        ports = [self._node(child.input if isinstance(child, Partial) else child) for child in node.over]
        number = len(self.stages)
        buckets = self._bucket_count() if spec.keys else 1
        fixed = self.kept != FILES or self.buckets is not None or fixes_buckets(self.spark)
        width = max(map(width_of, ports))
        bits = width + max((len(branches) - 1).bit_length() for branches in ports)
        if bits > ORDER_BITS:
            raise EngineError(
                "too many union branches meet in one operator",
                hint="write intermediate results to a sink, and read them from there",
            )
        if not self.clockwork.streaming and whole_keys(node, self.partitioned_by) and len(ports) == len(ports[0]) == 1:
            (branch,) = ports[0]
            rows = branch.closed(Pack(spec.inputs[0], (), 1))
            kernel = KernelOpening(spec, self.allowed)
            told = branch.by_partition(buckets, buckets)
            return Branch(told, spec.output, self.clockwork, Beside(rows, kernel), bits=bits)
        packed: list[DataFrame] = []
        beating: list[bool] = []
        of_port: list[int] = []
        for port, branches in enumerate(ports):
            for branch in branches:
                own = replace(branch, schema=spec.inputs[port])
                packed.append(own.packed(spec, port, buckets, width, len(beating), partials[port], number, fixed))
                beating += [branch.beating] * branch.clocks
                of_port += [port] * branch.clocks
        rows = reduce(lambda a, b: a.unionAll(b), packed)
        if not self.clockwork.streaming:
            return Branch(
                self._brought_together(rows, buckets),
                spec.output,
                self.clockwork,
                KernelOpening(spec, self.allowed),
                bits=bits,
            )
        clockwork = self.clockwork
        idle = idle_of(self.spark)
        stage = Stage(
            spec,
            buckets,
            tuple(beating),
            clockwork.per_ms,
            clockwork.watermarked,
            wide,
            idle=idle,
            number=number,
            allowed=self.allowed,
            ports=tuple(of_port),
            fixed=fixed,
        )
        if self.kept == FILES:
            return self._in_files(rows, stage, bits)
        if wide:
            return Branch(self._kept(rows, stage), spec.output, clockwork)
        return Branch(
            self._kept(rows, stage), spec.output, self.clockwork, Unpack(spec.output), bits=bits, clocks=buckets
        )

    def _brought_together(self, packed: DataFrame, buckets: int) -> DataFrame:
        """Each bucket's rows in one task: a bounded run."""
        if buckets == 1:
            return packed.repartition(1)
        # from Spark 4.1 on, each bucket has a task of its own; before, hashing may put two into one
        by_number: Any = getattr(packed, "repartitionById", None)
        return packed.repartition(buckets, "bucket") if by_number is None else by_number(buckets, "bucket")

    def _kept(self, packed: DataFrame, stage: Stage) -> DataFrame:
        """Each bucket's rows with its state: a streaming query."""
        from millstream.hosts.spark.one_value import stateful
        from millstream.hosts.spark.stateful import KernelProcessor, output_ddl

        self.stages.append(stage)
        mode = "EventTime" if self.clockwork.watermarked else "None"
        output = stateful(packed, KernelProcessor(stage), output_ddl(stage), mode, self.kept)
        name = f"{STAGE_METRICS}{next(self._numbers)}"
        return metered_rows(output, name, wire_sql(stage.spec.output)) if stage.wide else metered(output, name)

    def _in_files(self, packed: DataFrame, stage: Stage, bits: int) -> Branch:
        """The same, where workers keep the state themselves: what follows the kernel is their work, too."""
        from millstream.hosts.spark.checkpoints import tell_checkpoints
        from millstream.hosts.spark.kept_stage import StageOpening

        tell_checkpoints(self.spark)
        self.stages.append(stage)
        return Branch(
            packed.repartition(min(stage.buckets, cores_of(self.spark)), "bucket"),
            stage.spec.output,
            self.clockwork,
            StageOpening(stage),
            bits=bits,
            clocks=stage.buckets,
            metrics=f"{STAGE_METRICS}{next(self._numbers)}",
        )

    def _bucket_count(self) -> int:
        if self.buckets is not None:
            return self.buckets
        return buckets_of(self.spark) if self.clockwork.streaming else cores_of(self.spark)


def buckets_of(spark: SparkSession) -> int:
    """How many buckets the keys of a streaming query fall into, as the session says, or at most."""
    return int(spark.conf.get(STREAMING_BUCKETS, None) or DEFAULT_BUCKETS)


def fixes_buckets(spark: SparkSession) -> bool:
    """Whether the session says how many; otherwise a checkpoint with state in files has as many as there are cores."""
    return bool(spark.conf.get(STREAMING_BUCKETS, None))


def first_buckets(spark: SparkSession) -> int:
    """How many buckets a new job has."""
    most = buckets_of(spark)
    return most if fixes_buckets(spark) or kept_as(spark) != FILES else min(most, cores_of(spark))


def fuses_joins(spark: SparkSession) -> bool:
    """Whether joins share an exchange with the kernels below them, as the session says."""
    return str(spark.conf.get(FUSE_JOINS, "true")).lower() != "false"


def puts_together(spark: SparkSession) -> bool:
    """Whether rows may be put together before they travel, as the session says."""
    return str(spark.conf.get(PUT_TOGETHER, "true")).lower() != "false"


def arranged(plan: Physical, spark: SparkSession, in_spark: Callable[[Physical], bool] | None = None) -> Physical:
    """The plan with Spark's own operators in place of kernels where they are faster, and with partials below exchanges,
    as the session says. `in_spark` tells of a bounded run's rows whether they are Spark's."""
    if in_spark is not None and str(spark.conf.get(NATIVE, "true")).lower() != "false":
        plan = with_native(plan, in_spark)
    return with_partials(plan) if puts_together(spark) else plan


def idle_of(spark: SparkSession) -> int | None:
    """Microseconds after which an input that brings nothing no longer holds the others back; None is never."""
    text = str(spark.conf.get(IDLE, DEFAULT_IDLE) or DEFAULT_IDLE).strip()
    if text.lower() == "never":
        return None
    span = parse_duration(text)
    if span is None:
        raise EngineError(f"{IDLE} is {text!r}, which is not a duration", hint="write it like '5 minutes', or never")
    return span


def fused(node: Physical, shared: frozenset[Physical] = frozenset(), joins: bool = True) -> Physical:
    """The plan with kernels that follow each other under the same key put into one: no exchange between them.

    What is `shared` is read by others, too, and stays on its own; so do the inputs of joins, unless `joins`.
    """
    from millstream.kernels.compute import ComputeStage
    from millstream.kernels.streams.chain import ChainSpec, why_not_chained

    def stages(spec: KernelSpec) -> tuple[KernelSpec | ComputeStage, ...]:
        return spec.stages if isinstance(spec, ChainSpec) else (spec,)

    match node:
        case Compute() | Staged() | TableJoin():
            return replace(node, input=fused(node.input, shared, joins))
        case Apply():
            given = node.over
            node = replace(node, over=tuple(fused(child, shared, joins) for child in given))
            if not is_exchange(node):
                return node
            if len(node.over) != 1:
                return fed(node, given, shared) if joins else node
            between: list[ComputeStage] = []
            below, as_given = node.over[0], given[0]
            while isinstance(below, Compute) and isinstance(as_given, Compute):
                if as_given in shared:
                    return node
                between.insert(0, ComputeStage(below.input.schema, below.predicate, below.columns))
                below, as_given = below.input, as_given.input
            if as_given in shared:
                return node
            if isinstance(below, Apply) and is_exchange(below) and len(below.over) == 1:
                chain = (*stages(below.spec), *between, *stages(node.spec))
                if why_not_chained(chain) is None:
                    return Apply(node.schema, below.over, ChainSpec(chain))
            return node
    return node


def with_last_columns(node: Physical) -> Physical:
    """The plan with the columns that are computed last as part of the kernel below them."""
    from millstream.kernels.compute import ComputeStage
    from millstream.kernels.streams.chain import ChainSpec, why_not_chained

    if not isinstance(node, Compute):
        return node
    below = with_last_columns(node.input)
    if not isinstance(below, Apply) or not is_exchange(below):
        return node
    stages = below.spec.stages if isinstance(below.spec, ChainSpec) else (below.spec,)
    chain = (*stages, ComputeStage(node.input.schema, node.predicate, node.columns))
    return node if why_not_chained(chain) is not None else Apply(node.schema, below.over, ChainSpec(chain))


def is_exchange(node: Physical) -> bool:
    """Whether an operator needs its rows brought together: kernels do, a union as such does not."""
    from millstream.kernels.streams.merge import MergeSpec

    return isinstance(node, Apply) and not isinstance(node.spec, MergeSpec)


def exchanges(node: Physical) -> int:
    """How many operators with state a streaming query of a plan has."""
    own = is_exchange(node) or (isinstance(node, Source) and node.side == "late")
    return own + sum(map(exchanges, node.inputs))


def computed(branch: Branch, node: Compute) -> Branch:
    """Filter, then project: where the rows are."""
    schema = node.input.schema
    if branch.opening is None and not all(map(in_spark_sql, node.expressions)):
        branch = in_workers(branch)
    if branch.opening is not None:
        from millstream.kernels.compute import ComputeStage

        if isinstance(branch.opening, ReadFiles) and isinstance(node.input, Source) and node.predicate is not None:
            branch = replace(branch, opening=branch.opening.where(node.predicate))
        return branch.after(Computed(ComputeStage(schema, node.predicate, node.columns)), node.schema)
    if node.predicate is not None:
        branch = branch.settled()
        branch = replace(branch, df=branch.df.where(spark_sql(node.predicate, schema)))
    if node.columns is None:
        return replace(branch, schema=node.schema)
    columns = [f"{spark_value(expr, schema)} AS c{i}" for i, (_, expr) in enumerate(node.columns)]
    return replace(branch, df=branch.df.selectExpr(TIME, SEQ, *columns), schema=node.schema)


def in_workers(branch: Branch) -> Branch:
    """The branch with its rows in the hands of Python workers."""
    if branch.opening is not None:
        return branch
    own = () if branch.source is None else (branch.source,)
    return replace(branch, opening=FromRows(branch.schema), steps=own, source=None)


def staged(branch: Branch, node: Staged) -> Branch:
    """Work on rows and their times; copies of a row are numbered apart while there are bits for that."""
    branch = in_workers(branch)
    spread = (node.stage.most - 1).bit_length()
    if branch.bits + spread >= ORDER_BITS:
        spread = 0
    stage = node.stage.numbered(spread) if spread else node.stage
    return replace(branch.after(StageStep(stage), node.schema), bits=branch.bits + spread)


def needs_watermark(node: Physical, in_spark: Callable[[Physical], bool], above: bool = False) -> bool:
    """Whether rows of a streaming query reach a kernel through work of Spark SQL that may drop some of them."""
    if above and isinstance(node, TableJoin):
        return True
    if above and isinstance(node, Compute) and node.predicate is not None and in_spark(node.input):
        return True
    above = above or is_exchange(node)
    return any(needs_watermark(child, in_spark, above) for child in node.inputs)


def table_joined(branch: Branch, node: TableJoin, table: SparkTable) -> Branch:
    """Each row with its matches; the table goes to every task."""
    from pyspark.sql import functions as F

    compared = [expr for pair in node.pairs for expr in pair]
    compared += [] if node.residual is None else [node.residual]
    if not all(map(in_spark_sql, compared)):
        rows = collected(table.df.select(*(f"d{i}" for i in range(len(node.table.schema)))), node.table.schema)
        return in_workers(branch).after(TableStep(node, rows), node.schema)
    branch = branch.settled()
    if node.how in ("single", "mark", "gather"):
        return _looked_up(branch, node, table)
    ours, theirs = node.input.schema, node.table.schema
    conditions = [f"{spark_sql(mine, ours)} = {spark_sql(other, theirs, 'd')}" for mine, other in node.pairs]
    if node.residual is not None:
        conditions.append(f"({spark_sql(node.residual, node.both, 'c', len(ours))})")
    on = F.expr(" AND ".join(conditions) or "TRUE")
    how = {"semi": "left_semi", "anti": "left_anti"}.get(node.how, node.how)
    df = branch.df.join(F.broadcast(table.df), on, how)
    columns = [f"c{i}" for i in range(len(ours))]
    if node.how in ("semi", "anti"):
        return replace(branch, df=df.selectExpr(TIME, SEQ, *columns), schema=node.schema)
    number, bits = SEQ, branch.bits
    if branch.source is None and table.rows is not None and bits + table.rows.bit_length() < ORDER_BITS:
        # matches of one row come in the order of the table
        number = f"{SEQ} * {1 << table.rows.bit_length()} + coalesce(d_row, 0L) AS {SEQ}"
        bits += table.rows.bit_length()
    kept = [i for i, name in enumerate(theirs.names) if node.kept is None or name in node.kept]
    columns += [f"d{i} AS c{len(ours) + place}" for place, i in enumerate(kept)]
    return replace(branch, df=df.selectExpr(TIME, number, *columns), schema=node.schema, bits=bits)


def _looked_up(branch: Branch, node: TableJoin, table: SparkTable) -> Branch:
    """Each row once, with what is made of its matches: the rows of the table with equal keys come as one array."""
    from pyspark.sql import functions as F

    ours, theirs = node.input.schema, node.table.schema
    names = [f"d{i}" for i in range(len(theirs))]
    keys = [f"k{i}" for i in range(len(node.pairs))]
    keyed = [f"{spark_value(other, theirs, 'd')} AS {key}" for key, (_, other) in zip(keys, node.pairs, strict=True)]
    groups = table.df.selectExpr(*names, *keyed).groupBy(*keys).agg(F.collect_list(F.struct(*names)).alias("rows"))
    on = [f"{spark_sql(mine, ours)} = {key}" for key, (mine, _) in zip(keys, node.pairs, strict=True)]
    df = branch.df.join(F.broadcast(groups), F.expr(" AND ".join(on) or "TRUE"), "left")
    found = "coalesce(rows, array())"
    if node.residual is not None:
        found = f"filter({found}, m -> {spark_sql(node.residual, node.both, 'c', len(ours), within='m')})"
    if node.how == "mark":
        made = [f"size({found}) > 0 AS c{len(ours)}"]
    elif node.how == "gather":
        df = df.where(f"size({found}) > 0")
        kept = [name for name, other in zip(names, theirs.names, strict=True) if other in node.schema]
        made = [f"transform({found}, m -> m.{name}) AS c{len(ours) + i}" for i, name in enumerate(kept)]
    else:
        first = f"CASE WHEN size({found}) > 1 THEN raise_error('{SEVERAL_ROWS}') ELSE get({found}, 0) END"
        made = [f"({first}).{name} AS c{len(ours) + i}" for i, name in enumerate(names)]
    own = [f"c{i}" for i in range(len(ours))]
    return replace(branch, df=df.selectExpr(TIME, SEQ, *own, *made), schema=node.schema)
