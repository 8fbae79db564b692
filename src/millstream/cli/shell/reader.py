"""Where the shell's lines come from: prompt_toolkit, readline or plain input on a terminal, or a pipe."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PROMPT = "millstream> "
MORE = "       ...> "
Ask = Callable[[str], str]
Names = Callable[[], list[str]]


def history_path() -> Path:
    """The file that keeps what was typed in earlier sessions."""
    base = os.environ.get("XDG_CACHE_HOME")
    path = (Path(base) if base else Path.home() / ".cache") / "millstream" / "history"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def asker(names: Names) -> Ask:
    """A function that asks for a line, with history, and completion of `names` where the terminal allows it."""
    try:
        return _prompt_toolkit(names)
    except ImportError:
        pass
    with contextlib.suppress(ImportError):
        _set_up_readline()
    return input


def piped_lines() -> Iterator[str]:
    """The lines of standard input."""
    for line in sys.stdin:
        yield line.rstrip("\n")


def _prompt_toolkit(names: Names) -> Ask:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped,unused-ignore]

    session: Any = PromptSession(
        history=FileHistory(str(history_path())),
        lexer=PygmentsLexer(SqlLexer),
        completer=WordCompleter(names, ignore_case=True),
        complete_while_typing=False,
        auto_suggest=AutoSuggestFromHistory(),
    )

    def ask(prompt: str) -> str:
        return str(session.prompt(prompt))

    return ask


def _set_up_readline() -> None:
    import atexit
    import readline

    path = str(history_path())
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(10_000)
    atexit.register(readline.write_history_file, path)
