"""The source text of the loops that search for a chain, made for its elements and where it goes on after failures."""

from __future__ import annotations

from millstream.expressions.kernel.helpers import helper_source
from millstream.kernels.accumulators import imports
from millstream.kernels.patterns.chain_dispatch import Dispatch
from millstream.kernels.patterns.chain_plan import Plan
from millstream.kernels.patterns.conditions import Constants
from millstream.kernels.source.passes import untroubled
from millstream.kernels.source.writer import Writer
from millstream.records import dataclass

FOUND, TROUBLE, EVALUATIONS, META = 0, 1, 2, 3
"""Lanes of `meta`: how many output rows there are, what went wrong, how often conditions were asked; their number."""
OVERFLOW, NO_ROW, FIRST_ROW = 1, 2, 3
"""What may go wrong: a value does not fit its type; the row to go on at is not there, or is the match's first."""

_HEADER = f"""\
import numpy as np
from millstream.kernels.jit.primitives import COMPILED, place, prefetch

FOUND, TROUBLE, EVALUATIONS = {FOUND}, {TROUBLE}, {EVALUATIONS}
OVERFLOW, NO_ROW, FIRST_ROW = {OVERFLOW}, {NO_ROW}, {FIRST_ROW}
FOREVER = 9223372036854775807
END = FOREVER - 1
AHEAD = 16
"""
_PASSED = "while state != 0 and record[s + DEADLINE] < {}:"


@dataclass
class ChainLoops:
    """Modules with the loops `step`, over rows, and `settle`, over partitions when time has come so far; apart, since
    the second may never do enough to be compiled."""

    step: str
    settle: str
    constants: Constants
    asked: frozenset[str]
    flagged: tuple[bool, ...]
    """which output columns have an array for their validity"""


def generate(plan: Plan, nulls: bool, counted: bool = False) -> ChainLoops:
    """The loops; without `nulls`, such that no column may ever have been NULL."""
    asked: frozenset[str] = frozenset()
    while True:
        source = _Source(plan, nulls, asked, counted)
        generated = source.generated()
        if generated.asked <= asked:
            return generated
        # What is asked for has to be kept, and what it is kept from, too.
        asked |= generated.asked


class _Source(Dispatch):
    @property
    def has_flags(self) -> bool:
        return any(map(self.values.keeps_flag, self.layout.flags))

    def generated(self) -> ChainLoops:
        step, settle = self._module(self._step()), self._module(self._settle())
        flagged = tuple(null != "False" for _, null in self.outputs)
        return ChainLoops(step, settle, self.values.constants, frozenset(self.values.asked), flagged)

    def _module(self, function: str) -> str:
        lanes = "".join(f"{name.upper()} = {lane}\n" for name, lane in self.layout.lanes.items())
        helpers = helper_source(self.values.helpers)
        parts = [_HEADER + imports(function) + lanes, *([helpers] if helpers else []), function]
        text = "\n\n".join(parts)
        # Looking through the syntax tree takes longer than all else here, and few searches compute what may not fit.
        return untroubled(text, "meta", "TROUBLE") if "OverflowError" in text else text

    # -- functions -------------------------------------------------------------------------------------------------

    def _parameters(self) -> list[str]:
        names = ["meta", "whole", "real", "labels", "within", "time", "seq"]
        if self.layout.logged:
            names += ["next", "prev", *(f"back{i}" for i, back in enumerate(self.layout.backs, 1) if back > 1)]
        names += [name for i in range(len(self.layout.columns)) for name in (f"col{i}", f"ok{i}")]
        names += ["record", "floats", "out_slot", "out_time", "out_seq"]
        for i, (_, null) in enumerate(self.outputs):
            names += [f"out{i}", f"valid{i}"] if null != "False" else [f"out{i}"]
        return names

    def _open(self, head: str) -> None:
        self.write = Writer(0)
        self.write(head)
        self.write = self._deeper()
        self.write("found = meta[FOUND]")
        if self.counted:
            self.write("evaluations = meta[EVALUATIONS]")

    def _deeper(self) -> Writer:
        deeper = Writer(1)
        deeper.lines = self.write.lines
        return deeper

    def _close(self) -> str:
        if self.counted:
            self.write("meta[EVALUATIONS] = evaluations")
        self.write("meta[FOUND] = found")
        lines = self.write.lines
        lines[1:1] = [f"    {line}" for line in self.values.constants.lines()]
        return "\n".join(lines) + "\n"

    def _load(self) -> None:
        self.write("state = record[s + STATE]")
        if self.has_flags:
            self.write("flags = record[s + FLAGS]")

    def _save(self) -> None:
        self.write("record[s + STATE] = state")
        if self.has_flags:
            self.write("record[s + FLAGS] = flags")

    def _step(self) -> str:
        self._open(f"def step(rows, at, count, {', '.join(self._parameters())}):")
        write, layout = self.write, self.layout
        with write.block("for x in range(count):"):
            write("i = rows[x]", "s = at[x]")
            with write.block("if COMPILED and x + AHEAD < count:"):
                write(*(f"prefetch(record, at[x + AHEAD] + {lane})" for lane in range(0, len(layout.lanes), 8)))
            self._load()
            if layout.logged:
                self._events()
            else:
                if layout.search.within is not None:
                    with write.block(_PASSED.format("time[i]")):
                        write("now = record[s + DEADLINE] + 1", "by = record[s + LAST_SEQ]")
                        self._end("late")
                write("now = time[i]", "by = seq[i]", "p = i")
                with write.block("while True:"):
                    self.dispatch(over="False", kind="failed")
                    self.outcome(again="break")
                write(*self.values.remember())
            write("record[s + LAST_SEQ] = seq[i]")
            self._save()
        return self._close()

    def _events(self) -> None:
        """A row, and before it, as events of their own, the deadlines that have passed."""
        write = self.write
        row = ("now = time[i]", "by = seq[i]", "q = np.int64(i)", "stop = next[i]")
        if self.layout.search.within is None:
            write(*row)
            self._scan()
            return
        write("is_new = True")
        with write.block("while True:"):
            with write.block(_PASSED.format("time[i]").replace("while", "if")):
                write("now = record[s + DEADLINE] + 1", "by = record[s + LAST_SEQ]", "stop = np.int64(i)", "q = stop")
                self._end("late")
            with write.block("elif is_new:"):
                write(*row, "is_new = False")
            with write.block("else:"):
                write("break")
            self._scan()

    def _settle(self) -> str:
        self._open(f"def settle(at, upto, {', '.join(self._parameters())}):")
        write, layout = self.write, self.layout
        with write.block("for x in range(len(at)):"):
            write("s = at[x]", "by = record[s + LAST_SEQ]")
            self._load()
            with write.block("while state != 0:"):
                if layout.logged:
                    write("stop = np.int64(-1)", "q = stop")
                if layout.search.within is not None:
                    with write.block("if record[s + DEADLINE] < upto:"):
                        write("now = record[s + DEADLINE] + 1")
                        self._end("late")
                with write.block("if upto == FOREVER:" if layout.search.within is None else "elif upto == FOREVER:"):
                    write("now = END")
                    self._end("ended")
                with write.block("else:"):
                    write("break")
                if layout.logged:
                    self._scan()
            self._save()
        return self._close()

    def _end(self, kind: str) -> None:
        """The attempt under way gets no more rows."""
        self.dispatch(over="True", kind=kind)
        self.outcome(again="pass")

    def _scan(self) -> None:
        """Rows of the partition from q on, until there are no more; a failed attempt may go back."""
        write, layout = self.write, self.layout
        late = layout.search.within is not None
        with write.block("while q != stop:"):
            self.look_at("q")
            if late:
                write("over = state != 0 and time[p] > record[s + DEADLINE]")
            self.dispatch(over="over" if late else "False", kind="late")
            self.outcome(again="q = next[p]")
