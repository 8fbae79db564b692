"""`python -m millstream.testing.slt [--complete] FILE…`: check golden files, or rewrite what they expect."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path

from millstream.testing.slt.records import SltError, parse
from millstream.testing.slt.runner import complete, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m millstream.testing.slt", description=__doc__)
    parser.add_argument("--complete", action="store_true", help="rewrite the expected rows by what comes out")
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="a .slt file, or a directory of them")
    options = parser.parse_args()
    files = [file for path in options.paths for file in (sorted(path.rglob("*.slt")) if path.is_dir() else [path])]
    failed = 0
    for file in files:
        try:
            if options.complete:
                changed = complete(file)
                print(f"{'rewritten' if changed else 'unchanged'}  {file}")
            else:
                run(parse(file))
                print(f"ok  {file}")
        except Exception as error:
            failed += 1
            if not isinstance(error, SltError | AssertionError):
                traceback.print_exc()
            print(f"FAILED  {file}\n{error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
