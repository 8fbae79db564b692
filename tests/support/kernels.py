"""Golden loops: `.kernel` files with the source that is generated for a query over a stream `s (k, v, t)`.

A file has statements, of which the last, behind an empty line, is the query; a line `----`; and all source that its
kernels made for some rows. `python -m tests.support.kernels [--complete] FILE…` checks files, or rewrites what
they expect.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import unified_diff
from pathlib import Path
from unittest.mock import patch

import millstream as ms
from millstream.kernels.jit import compiled, source_of
from millstream.kernels.source.objects import Module

_DIVIDER = "\n----\n"
_STREAM = "CREATE STREAM s (k VARCHAR, v DOUBLE, t INT) ORDER BY t"
_ROWS = [("a", 1.0, 0), ("b", 3.0, 1), ("a", 2.0, 2)]


def difference(path: Path) -> str:
    """Where the source that is generated differs from what a file expects."""
    statements, _, expected = path.read_text(encoding="utf-8").partition(_DIVIDER)
    return "\n".join(unified_diff(expected.splitlines(), source_for(statements).splitlines(), lineterm=""))


def complete(path: Path) -> bool:
    """Rewrite what a file expects by what comes out; true if that changed it."""
    before = path.read_text(encoding="utf-8")
    statements, _, _ = before.partition(_DIVIDER)
    after = f"{statements.rstrip()}{_DIVIDER}{source_for(statements)}"
    path.write_text(after, encoding="utf-8")
    return after != before


def source_for(statements: str) -> str:
    """The source that is generated for the last of some statements."""
    setup, _, query = statements.rpartition(";\n\n")
    with ms.connect(jit="off") as database:
        database.execute(f"{_STREAM};\n{setup}")
        with _recorded() as made:
            database.sql(query)
            database.push("s", _ROWS)
            database.finish()
    return "\n\n".join(text.strip() for text in made) + "\n"


@contextmanager
def _recorded() -> Iterator[list[str]]:
    """The source that is made meanwhile, without modules that are source as they stand in their files."""
    made: list[str] = []
    make, run = compiled.kernel_module, Module.run

    def kernel_module(source: str) -> compiled.KernelModule:
        written = {source_of(module) for name, module in list(sys.modules.items()) if name.startswith(_KERNELS)}
        if source not in written and source not in made:
            made.append(source)
        return make(source)

    def run_objects(module: Module) -> dict[str, object]:
        made.append(module.text)
        return run(module)

    with patch.object(compiled, "kernel_module", kernel_module), patch.object(Module, "run", run_objects):
        yield made


_KERNELS = "millstream.kernels."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.kernels", description="Golden loops.")
    parser.add_argument("--complete", action="store_true", help="rewrite the expected source by what comes out")
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="a .kernel file")
    options = parser.parse_args()
    failed = 0
    for path in options.paths:
        if options.complete:
            print(f"{'rewritten' if complete(path) else 'unchanged'}  {path}")
        elif found := difference(path):
            failed += 1
            print(f"{path}\n{found}", file=sys.stderr)
        else:
            print(f"ok  {path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
