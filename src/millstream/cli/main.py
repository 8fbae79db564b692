"""The console script `millstream`."""

from __future__ import annotations

import sys
import warnings

import typer

from millstream.cli.commands.account import app as account
from millstream.cli.commands.bench import bench
from millstream.cli.commands.explain import explain
from millstream.cli.commands.generate import generate
from millstream.cli.commands.repair import repair
from millstream.cli.commands.run import run
from millstream.cli.commands.serve import serve
from millstream.cli.commands.shell import shell
from millstream.cli.commands.version import show_version, version

HELP = """Continuous SQL over event streams, in this process or on Spark.

A pipeline is a file of SQL: streams with their sources, tables, queries, and sinks for their rows.

**Try it**

    millstream generate nexmark --rows 200000 --seed 42 --out out/auctions
    millstream run examples/auctions/pipeline.sql
    millstream shell
"""
EPILOG = "Exit codes: 0 done, 1 error in SQL or data, 2 wrong usage, 3 engine missing, 130 and 143 interrupted."

app = typer.Typer(
    name="millstream",
    help=HELP,
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(show_version)
for command in (run, shell, serve, explain, generate, bench, repair, version):
    app.command()(command)
app.add_typer(account, name="account")


def main() -> None:
    """Run the command line and exit with its code."""
    if not sys.warnoptions:
        # warnings of libraries are for developers, who can ask for them with -W or PYTHONWARNINGS
        warnings.simplefilter("ignore")
    app(prog_name="millstream")
