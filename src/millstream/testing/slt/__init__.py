"""Golden queries: `.slt` files that push rows into continuous queries and say what comes out.

`tests/slt/README.md` describes the format. `python -m millstream.testing.slt [--complete] FILE…` checks files, or
rewrites what they expect.
"""

from millstream.testing.slt.configs import SltConfig, load_configs
from millstream.testing.slt.records import Record, Script, SltError, parse
from millstream.testing.slt.runner import Mismatch, complete, run

__all__ = ["SltConfig", "Mismatch", "Record", "Script", "SltError", "complete", "load_configs", "parse", "run"]
