"""SQL in notebooks: `%load_ext millstream.magic`, then cells that begin with `%%millstream`."""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import time
from typing import Any

import pyarrow as pa

import millstream
from millstream.errors import BindError
from millstream.session.display import SHOWN, as_html
from millstream.session.query import Result

_PARAMETER = re.compile(r"(?<!\$)\$([A-Za-z_]\w*)")
_LOOK_SECONDS = 0.25


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise BindError(f"%%millstream: {message}", hint="%%millstream [name] [--live [SECONDS]]")


_OPTIONS = _Options(add_help=False)
_OPTIONS.add_argument("name", nargs="?")
_OPTIONS.add_argument("--live", type=float, metavar="SECONDS", nargs="?", const=math.inf)


class Magic:
    """`%millstream` chooses a session, `%%millstream` runs SQL in it. The first one is in memory."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._session: Any = None

    def __call__(self, line: str, cell: str | None = None) -> Any:
        if cell is not None:
            return self._run(cell, _OPTIONS.parse_args(shlex.split(line)))
        return self._use(line.strip()) if line.strip() else self.session

    @property
    def session(self) -> Any:
        if self._session is None:
            self._session = millstream.connect()
        return self._session

    def _use(self, target: str) -> Any:
        """A session in a variable, at an address (the token is MILLSTREAM_TOKEN), or in a directory."""
        known = self._shell.user_ns.get(target)
        if known is not None:
            if not hasattr(known, "execute"):
                raise BindError(f"{target} is not a session", hint=f"{target} = millstream.connect(…)")
            self._session = known
        elif target.startswith(("http://", "https://")):
            self._session = millstream.connect(target, token=os.environ.get("MILLSTREAM_TOKEN"))
        else:
            self._session = millstream.connect(target)
        return self._session

    def _run(self, text: str, options: argparse.Namespace) -> Any:
        """Run a cell. Variables are its parameters: `$low` is the value of low."""
        names = {name: self._shell.user_ns[name] for name in _PARAMETER.findall(text) if name in self._shell.user_ns}
        if options.name is None:
            made = self.session.execute(text, names or None)
        else:
            # a cell that is run again starts its query anew
            if options.name.lower() in (query.name.lower() for query in self.session.queries()):
                self.session.stop(options.name)
            made = self.session.sql(text, name=options.name, params=names or None)
        if options.live is not None and made is not None and not isinstance(made, Result):
            return _show_live(made, options.live)
        return made


def _show_live(query: Any, seconds: float) -> Any:
    """Show the latest rows of a query as they come, for so long: in a table that goes on while other cells run, or
    without anywidget in this cell, until it is interrupted."""
    try:
        from millstream.live_table import LiveTable
    except ModuleNotFoundError:
        _show_here(query, seconds)
        return query
    return LiveTable(query, None if math.isinf(seconds) else seconds)


def _show_here(query: Any, seconds: float) -> None:
    from IPython.display import HTML, DisplayHandle

    rows = query.schema.empty_table()
    shown = DisplayHandle()
    shown.display(HTML("<p>waiting for rows</p>"))
    until = time.monotonic() + seconds
    with query.subscribe(since=0, when_full="drop") as reader:
        try:
            while not reader.ended and (left := until - time.monotonic()) > 0:
                batch = reader.next(min(left, _LOOK_SECONDS))
                if batch is not None:
                    rows = pa.concat_tables([rows, pa.Table.from_batches([batch])])
                    rows = rows.slice(max(0, rows.num_rows - SHOWN))
                    shown.update(HTML(as_html(rows, SHOWN)))
        except KeyboardInterrupt:
            pass


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext millstream.magic` calls."""
    shell.register_magic_function(Magic(shell), "line_cell", "millstream")
