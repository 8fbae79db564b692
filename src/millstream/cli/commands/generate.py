"""`millstream generate`: data to try things on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.failures import explained
from millstream.cli.options import Debug


class DataKind(StrEnum):
    """What is generated."""

    nexmark = "nexmark"
    quotes = "quotes"
    clicks = "clicks"


class Format(StrEnum):
    """Kinds of files."""

    parquet = "parquet"
    csv = "csv"
    jsonl = "jsonl"
    arrow = "arrow"


def generate(
    kind: Annotated[DataKind, typer.Argument(help="nexmark: auctions; quotes: stock prices; clicks: web sessions.")],
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, help="Rows (events of all tables, for nexmark).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A file, or a directory for all tables of nexmark.")],
    format: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="Default: from the file's extension; Parquet in a directory."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same rows.")] = 0,
    table: Annotated[
        str | None, typer.Option("--table", "-t", help="Only one table of nexmark: person, auction, bid or closed.")
    ] = None,
    rate: Annotated[float, typer.Option("--rate", min=0.001, help="Events per second of event time.")] = 1000.0,
    disorder: Annotated[
        str | None, typer.Option("--disorder", metavar="TIME", help="How far out of order rows are: '2 seconds'.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
    debug: Debug = False,
) -> None:
    """Write generated events to files.

    **nexmark** has auctions: of 50 events, one is a new person, three are new auctions and 46 are bids. Some sellers,
    bidders and items are much busier than others. A fourth table has the auctions that closed.

    **Examples**

        millstream generate nexmark --rows 200000 --seed 42 --out out/auctions
        millstream generate nexmark --table bid --rows 1000000 --out bids.parquet
        millstream generate quotes --rows 50000 --out quotes.csv --disorder "2 seconds"
    """
    with explained(debug):
        from millstream.connectors.generators.write import write_generated

        with _progress(quiet) as report:
            options: dict[str, str | int | float | bool] = {"rate": rate}
            if disorder is not None:
                options["disorder"] = disorder
            files = write_generated(
                kind.value, table, rows, out, None if format is None else format.value,
                seed=seed, options=options, progress=report,
            )  # fmt: skip
        for file, count in files.items() if not quiet else ():
            typer.echo(f"{file}: {count:,} rows")


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A function that shows rows written and rows to come, on a terminal only."""
    from millstream.cli.terminal import errors

    console = errors()
    if quiet or not console.is_terminal:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("rows"), BarColumn(), TaskProgressColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("rows", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
