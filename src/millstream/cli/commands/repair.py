"""`millstream repair`: make a damaged session directory open again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.failures import explained
from millstream.cli.options import Debug


def repair(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a session.")],
    debug: Debug = False,
) -> None:
    """Check every checksum of a session's directory, keep what is whole, and report what is lost.

    Damaged files are moved to DIR/damaged, not deleted. The notes of the journal before the damage are kept. A query
    whose saved state is damaged is removed, and its SQL printed.
    """
    with explained(debug):
        from millstream.session.repair import repair as repaired

        for line in repaired(directory):
            typer.echo(line)
