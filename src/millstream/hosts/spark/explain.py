"""How a program runs on Spark: our stages, then Spark's own plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

from millstream.hosts.spark.branches import Clockwork
from millstream.hosts.spark.build import is_exchange
from millstream.hosts.spark.feeds import whole_keys
from millstream.physical.nodes import Apply, NativeGroups, Partial, Physical, Source, StoredTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def explained(
    plan: Physical,
    clockwork: Clockwork,
    in_spark: Callable[[Physical], bool],
    partitioned_by: Callable[[Source], str | None],
    df: DataFrame,
) -> str:
    """The operators with where each runs, then the physical plan of Spark."""
    kind = "streaming query" if clockwork.streaming else "bounded run"
    numbers = stage_numbers(plan) if clockwork.streaming else {}
    lines = [f"on Spark, as a {kind}", *_tree(plan, clockwork, in_spark, partitioned_by, numbers, "")]
    if clockwork.watermarked:
        lines.append("time: Spark's watermark, because rows pass through Spark SQL before a kernel")
    return "\n".join([*lines, "", "Spark plan", _spark_plan(df)])


def stage_numbers(plan: Physical) -> dict[Physical, int]:
    """The numbers that stages with state have in the metrics of a streaming query."""
    numbers: dict[Physical, int] = {}

    def visit(node: Physical) -> None:
        for child in node.inputs:
            visit(child)
        if node not in numbers and (is_exchange(node) or (isinstance(node, Source) and node.side == "late")):
            numbers[node] = len(numbers) + 1

    visit(plan)
    return numbers


def _tree(
    node: Physical,
    clockwork: Clockwork,
    in_spark: Callable[[Physical], bool],
    partitioned_by: Callable[[Source], str | None],
    numbers: Mapping[Physical, int],
    indent: str,
) -> Iterator[str]:
    stage = f"stage {numbers[node]}: " if node in numbers else ""
    yield f"{indent}{node.label()}  [{stage}{where(node, clockwork, in_spark, partitioned_by)}]"
    for child in node.inputs:
        yield from _tree(child, clockwork, in_spark, partitioned_by, numbers, indent + "  ")


def where(
    node: Physical,
    clockwork: Clockwork,
    in_spark: Callable[[Physical], bool],
    partitioned_by: Callable[[Source], str | None] = lambda source: None,
) -> str:
    """How Spark runs an operator."""
    if isinstance(node, Source):
        return "rows of Spark's" if in_spark(node) else "read by Python workers"
    if isinstance(node, StoredTable):
        return "broadcast to every task"
    if isinstance(node, Partial):
        return "by the workers that have the rows, before the exchange"
    if isinstance(node, NativeGroups):
        return "Spark SQL"
    if not isinstance(node, Apply):
        return "Spark SQL" if in_spark(node) else "in the same workers"
    if not is_exchange(node):
        return "Spark union"
    source = whole_keys(node, partitioned_by)
    if source is not None and not clockwork.streaming:
        return f"where the rows are read, partitioned by {partitioned_by(source)}, kernel with all rows of a task"
    keys = ", ".join(node.spec.keys or ())
    exchange = f"packed exchange by {keys}" if keys else "packed exchange to one task"
    if source is not None:
        # a job has state beside its source; a DataFrame, whose checkpoint is chosen later, behind an exchange
        exchange += f" (in a job: where the rows are read, partitioned by {partitioned_by(source)})"
    return f"{exchange}, kernel with {'bucketed state' if clockwork.streaming else 'all rows of a task'}"


def _spark_plan(df: DataFrame) -> str:
    text = StringIO()
    with redirect_stdout(text):
        df.explain(mode="formatted")
    return text.getvalue().strip()
