"""`millstream explain`: how the queries of a pipeline would run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.failures import explained
from millstream.cli.options import Conf, Debug, EngineName, Master, Variables, pairs

if TYPE_CHECKING:
    from millstream.session.database import Database
    from millstream.sql import Statement


def explain(
    source: Annotated[str, typer.Argument(metavar="FILE.SQL|SQL|-", help="A file, SQL text, or - for standard input.")],
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the plan after every rule.")] = False,
    rules: Annotated[
        bool, typer.Option("--rules", help="List all rules, why they exist, and which were applied.")
    ] = False,
    engine: Annotated[
        EngineName, typer.Option("--engine", "-e", help="Engine whose stages to show.")
    ] = EngineName.embedded,
    master: Master = None,
    conf: Conf = None,
    var: Variables = None,
    debug: Debug = False,
) -> None:
    """Show the plans of all queries in a pipeline: logical, after the rules, and the stages that run.

    Streams, tables and sinks are declared, but no source is read and no sink is written.

    **Examples**

        millstream explain examples/auctions/pipeline.sql
        millstream explain --rules "CREATE STREAM s (a INT); SELECT a + 1 FROM s WHERE a > 2"
        millstream explain pipeline.sql --engine spark
    """
    if verbose and rules:
        raise typer.BadParameter("choose one of --verbose and --rules")
    with explained(debug):
        from millstream.cli.pipeline import each_statement, fill_in
        from millstream.cli.sessions import Wish, session

        text = fill_in(_text(source), pairs(var, "--var"))
        mode = "VERBOSE" if verbose else "RULES" if rules else ""
        with session(Wish(engine, master=master, conf=pairs(conf, "--conf"))) as opened:
            each_statement(text, lambda statement: _explain_or_declare(opened.database, statement, mode))


def _text(source: str) -> str:
    from pathlib import Path

    from millstream.cli.pipeline import read_text

    looks_like_sql = len(source.split()) > 1 and not (len(source) < 256 and Path(source).exists())
    return source if looks_like_sql else read_text(source)


def _explain_or_declare(database: Database, statement: Statement, mode: str) -> None:
    from millstream.session.query import Result

    if _is_query(database, statement):
        typer.echo(_heading(statement.text) + "\n\n" + database.explain(statement.text, mode) + "\n")
        return
    result = database.execute(statement.text)
    if isinstance(result, Result) and "plan" in result.schema.names:
        typer.echo("\n".join(result.fetch()["plan"].to_pylist()) + "\n")


def _is_query(database: Database, statement: Statement) -> bool:
    from sqlglot import exp

    from millstream.catalog import SinkDef, TableDef
    from millstream.sql.nodes import CreateSink

    node = statement.ast
    if isinstance(node, CreateSink):
        return node.query is not None
    if isinstance(node, exp.Insert):
        target = node.this.this if isinstance(node.this, exp.Schema) else node.this
        return isinstance(database.catalog.find(target.name), SinkDef)
    if not isinstance(node, exp.Query):
        return False
    names = {table.name for table in node.find_all(exp.Table)}
    return not all(isinstance(database.catalog.find(name), TableDef) for name in names)


def _heading(text: str) -> str:
    return "\n".join(f"-- {line.rstrip()}" for line in text.splitlines())
