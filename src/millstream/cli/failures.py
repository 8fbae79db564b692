"""How a command ends when something is wrong: a message on standard error and an exit code, never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from millstream.errors import EngineError, MillstreamError, underline

USER_ERROR = 1
ENGINE_MISSING = 3


class EngineMissing(EngineError):
    """The chosen engine cannot be started on this machine."""


@contextmanager
def explained(debug: bool) -> Iterator[None]:
    """Turn errors into a message and an exit code; with `debug`, print the traceback before the message."""
    try:
        yield
    except MillstreamError as error:
        if debug:
            _print_traceback()
        show_error(error)
        raise typer.Exit(ENGINE_MISSING if isinstance(error, EngineMissing) else USER_ERROR) from None
    except (typer.Exit, typer.Abort, KeyboardInterrupt):
        raise
    except BrokenPipeError:
        _stop_writing()
        raise typer.Exit(USER_ERROR) from None
    except Exception as error:
        # usage errors are typer's to print; anything else that arrives here is a defect of ours
        if hasattr(error, "exit_code"):
            raise
        if debug:
            _print_traceback()
        show_error(unforeseen(error, debug))
        raise typer.Exit(USER_ERROR) from None


def unforeseen(error: Exception, debug: bool) -> MillstreamError:
    """An error that nobody foresaw, in the form of those that were."""
    return MillstreamError(
        f"{type(error).__name__}: {error}",
        detail="this is a bug in Millstream, not in your SQL",
        hint=None if debug else "--debug shows where it happened",
    )


def show_error(error: MillstreamError) -> None:
    """Print an error with its place in the SQL underlined, in colour on a terminal."""
    from rich.text import Text

    from millstream.cli.terminal import errors

    lines = [Text.assemble(("error: ", "bold red"), (error.message, "bold"))]
    if error.sql is not None and error.span is not None:
        quoted, carets = underline(error.sql, error.span)
        lines += [Text(quoted), Text(carets, style="red")]
    if error.detail:
        lines.append(Text.assemble(("why: ", "yellow"), error.detail))
    if error.hint:
        lines.append(Text.assemble(("hint: ", "cyan"), error.hint))
    console = errors()
    for line in lines:
        console.print(line, soft_wrap=True)


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()


def _stop_writing() -> None:
    """The reader of our output is gone: let the interpreter flush into nothing at exit."""
    import os
    import sys

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
