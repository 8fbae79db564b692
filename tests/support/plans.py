"""Golden plans: `.plan` files that say what a rule makes of the plan of a query.

`python -m tests.support.plans [--complete] FILE…` checks files, or rewrites what they expect. Records are

    setup                       statements that all cases of the file start from
    measured                    what the cases after it know of streams, one a line: stream, distance, column=values …
    case [after RULE, …]        a query; after ---- its plan (once the named rules are done), ====, and what the file's
                                rule makes of it, or `unchanged`
    explain [VERBOSE|RULES]     a query; after ---- what EXPLAIN prints, without blank lines

The rule of a file is the one of its name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import millstream as ms
from millstream import sql
from millstream.bind.statements import StartQuery, bind
from millstream.kernels.programs.spec import why_slow
from millstream.plan.costs.statistics import UNKNOWN, Statistics, StreamStatistics
from millstream.plan.nodes import Node
from millstream.rules import OPTIMIZE, RuleStep, run_rules
from millstream.session.database import Database
from millstream.testing.slt.records import Record, Script, SltError, parse
from millstream.testing.slt.runner import Mismatch, difference

VERBS = ("setup", "measured", "case", "explain")
ARROW = "===="
UNCHANGED = "unchanged"


def read(path: Path) -> Script:
    """The records of a golden plan file."""
    return parse(path, VERBS, ("case", "explain"))


def play(script: Script) -> Iterator[tuple[Record, tuple[str, ...]]]:
    """Each record that expects something, with what it gives."""
    known = UNKNOWN
    with ms.connect() as database:
        for record in script.records:
            match record.verb:
                case "setup":
                    database.execute(record.text)
                case "measured":
                    known = _measured(record.text)
                case "case":
                    yield record, _case(script, record, database, known)
                case "explain":
                    text = database.explain(record.text, record.args)
                    yield record, tuple(line.rstrip() for line in text.splitlines() if line.strip())


def check(path: Path) -> None:
    """Raise `Mismatch` where a file does not come out as written."""
    script = read(path)
    for record, actual in play(script):
        if record.expected != actual:
            raise Mismatch(f"{path}:{record.line}: {difference(list(record.expected or ()), list(actual))}")


def complete(path: Path) -> bool:
    """Rewrite what a file expects by what comes out; true if that changed it."""
    script = read(path)
    text = script.replaced(dict(play(script)))
    changed = text != path.read_text(encoding="utf-8")
    if changed:
        path.write_text(text, encoding="utf-8")
    return changed


def plan_of(database: Database, text: str) -> Node:
    """The plan of a query as it is bound, before any rule."""
    action = bind(sql.parse(text)[0].ast, database.catalog, text)
    if not isinstance(action, StartQuery):
        raise SltError(f"{text} is not a query over streams")
    return action.bound.plan


def _measured(text: str) -> Statistics:
    streams = {}
    for line in text.splitlines():
        stream, distance, *columns = line.split()
        values = dict(column.split("=") for column in columns)
        streams[stream] = StreamStatistics(1000, float(distance), {name: float(n) for name, n in values.items()})
    return Statistics(streams)


def _case(script: Script, record: Record, database: Database, known: Statistics) -> tuple[str, ...]:
    before = plan_of(database, record.text)
    word, _, names = record.args.partition(" ")
    if word == "after":
        before, _ = run_rules(before, _steps(names))
    after, trace = run_rules(before, _steps(script.path.stem), known=known, why_slow=why_slow)
    result = str(after).splitlines() if trace.changes else [UNCHANGED]
    return (*str(before).splitlines(), ARROW, *result)


def _steps(names: str) -> list[RuleStep]:
    wanted = [name.strip() for name in names.split(",")]
    known = {step.name: step for step in OPTIMIZE}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise SltError(f"no rule {', '.join(unknown)}; there is {', '.join(known)}")
    return [step for step in OPTIMIZE if step.name in wanted]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.plans", description="Golden plans of rules.")
    parser.add_argument("--complete", action="store_true", help="rewrite the expected plans by what comes out")
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="a .plan file")
    options = parser.parse_args()
    failed = 0
    for path in options.paths:
        try:
            if options.complete:
                print(f"{'rewritten' if complete(path) else 'unchanged'}  {path}")
            else:
                check(path)
                print(f"ok  {path}")
        except (SltError, Mismatch, ms.MillstreamError) as error:
            failed += 1
            print(error, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
