"""`millstream run`: a pipeline from its sources to their end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.failures import explained
from millstream.cli.options import Conf, Debug, EngineName, Master, Variables, pairs

SHOWN = 20
"""Rows of a query that a terminal shows unless told otherwise."""
_LIMIT = f"Rows shown of each query without a sink: {SHOWN} on a terminal, all in a pipe; 0 shows all."


def run(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE.SQL", help="The file to run; - is standard input.")],
    engine: Annotated[EngineName, typer.Option("--engine", "-e", help="Where the queries run.")] = EngineName.spark,
    master: Master = None,
    conf: Conf = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="Keep state here; the same command resumes where it stopped."),
    ] = None,
    streaming: Annotated[
        bool, typer.Option("--streaming", help="Spark: follow files as they arrive instead of reading them once.")
    ] = False,
    trigger: Annotated[
        str | None,
        typer.Option("--trigger", metavar="TIME", help="Spark, streaming: a batch every '10 seconds'; 'now' ends it."),
    ] = None,
    var: Variables = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=0, help=_LIMIT, show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary, only rows.")] = False,
    debug: Debug = False,
) -> None:
    """Run a pipeline: run its statements, then read its sources to their end.

    INSERT INTO writes rows to a sink; the rows of a bare SELECT are printed here. Progress goes to standard error.
    Ctrl-C (or SIGTERM) stops the run cleanly; a second one stops it at once.

    **Examples**

        millstream run examples/auctions/pipeline.sql
        millstream run pipeline.sql --engine embedded --checkpoint state/
        millstream run pipeline.sql --master spark://host:7077 --conf spark.executor.memory=4g
        millstream run pipeline.sql --var day=2026-01-31 --limit 5 --quiet
    """
    with explained(debug):
        from millstream.cli.job import Job
        from millstream.cli.sessions import Wish

        shown = limit if limit is not None else SHOWN if sys.stdout.isatty() else 0
        wish = Wish(engine, checkpoint, master, pairs(conf, "--conf"), streaming, trigger)
        code = Job(pipeline, pairs(var, "--var"), wish, shown or None, quiet).run()
    raise typer.Exit(code)
