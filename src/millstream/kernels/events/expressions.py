"""Conditions and values of automata as source; those that loops have no form for are asked for."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.expressions.kernel.coded_text import NotCompilable
from millstream.expressions.kernel.helpers import helper_source
from millstream.expressions.kernel.source import KernelExpr
from millstream.expressions.nodes import Column, Expr, may_fail, walk
from millstream.kernels.events import questions
from millstream.kernels.events.asking import Asked
from millstream.kernels.events.layout import AutomatonLayout
from millstream.kernels.patterns.conditions import Constants
from millstream.kernels.source.writer import Writer
from millstream.plan.events.algebra import DUR
from millstream.plan.events.automata import AGGREGATED, EVENT, INSTANCE

TABLE = ("asked", "asked_reals", "opened", "counts")
"""what loops that ask take besides everything else"""


class Expressions:
    """Writes expressions over an event of a stream (`port`) and an instance of a state (`source`; None: there is
    none)."""

    def __init__(self, layout: AutomatonLayout) -> None:
        self.layout = layout
        self.constants = Constants()
        self.asked: list[Asked] = []
        """what has no form in loops, with the columns that it reads"""
        self._numbers: dict[tuple[Expr, int, int | None], int] = {}
        self._helpers: set[str] = set()

    def asks(self, source: int | None) -> bool:
        """Whether anything was asked about instances of a state."""
        return any(state == source for _, _, state in self._numbers)

    def helpers(self) -> list[str]:
        """The source of functions that expressions call."""
        return [helper_source(self._helpers), *(self._question(number) for number in range(len(self.asked)))]

    def value(self, write: Writer, value: Expr, port: int, source: int | None, name: str) -> tuple[str, str]:
        """The text of a value that may be evaluated anywhere, and of whether it is NULL."""
        names = self._names(port, source)
        if isinstance(value, Column):
            own = names[value.name]
            return f"v_{own}", "False" if own == "d" else f"n_{own}"
        try:
            compiled = self._compiled(("value", value, port, source), value, names)
        except NotCompilable:
            return self.answer(write, value, port, source, name)
        if compiled.null == "False":
            write(f"{name} = {compiled.value}")
            return name, "False"
        write(f"{name}n = {compiled.null}")
        write(
            f"{name} = {'0.0' if value.type.kernel == 'float64' else 'False' if value.type.kernel == 'bool' else '0'}"
        )
        with write.block(f"if not {name}n:"):
            write(f"{name} = {compiled.value}")
        return name, f"{name}n"

    def answer(self, write: Writer, value: Expr, port: int, source: int | None, name: str) -> tuple[str, str]:
        """A value that is asked for, and whether it is NULL."""
        write(f"{name}a = {self._ask(value, port, source)}", f"{name}n = asked[{name}a, TOLD] != KNOWN")
        words = "asked_reals" if value.type.kernel == "float64" else "asked"
        write(f"{name} = {words}[{name}a, ANSWER]{' != 0' if value.type.kernel == 'bool' else ''}")
        return name, f"{name}n"

    def is_asked(self, value: Expr, port: int, source: int | None) -> bool:
        """Whether a value that was written is asked for."""
        return (value, port, source) in self._numbers

    def all(self, conditions: Sequence[Expr], port: int, source: int | None) -> str:
        """Whether all conditions hold. Python is asked last, about what the others leave; but if a condition may fail,
        one before it may be there to guard it."""
        tests = [self.condition(condition, port, source) for condition in conditions]
        if not any(map(may_fail, conditions)):
            tests.sort(key=lambda test: test.startswith("holds("))
        return " and ".join(tests) or "True"

    def condition(self, condition: Expr, port: int, source: int | None) -> str:
        names = self._names(port, source)
        if isinstance(condition, Column):
            return f"(not n_{names[condition.name]} and v_{names[condition.name]})"
        try:
            return self._compiled(("condition", condition, port, source), condition, names).holds
        except NotCompilable:
            return f"holds(asked, {self._ask(condition, port, source)})"

    def _ask(self, expr: Expr, port: int, source: int | None) -> str:
        """The text that gives the row of a question."""
        number = self._numbers.setdefault((expr, port, source), len(self.asked))
        if number == len(self.asked):
            self.asked.append((expr, tuple(dict.fromkeys(part for part in walk(expr) if isinstance(part, Column)))))
        names = self._names(port, source)
        given = []
        for column in self.asked[number][1]:
            given += [f"v_{names[column.name]}", "False" if column.name == DUR else f"n_{names[column.name]}"]
        return f"ask{number}({', '.join([*TABLE, *given])})"

    def _question(self, number: int) -> str:
        """A function that writes a question and looks it up."""
        write = Writer(0)
        types = [column.type.kernel for column in self.asked[number][1]]
        given = [f"{what}{k}" for k in range(len(types)) for what in ("v", "n")]
        with write.block(f"def ask{number}({', '.join([*TABLE, *given])}):"):
            write("last = asked.shape[0] - 1", f"asked[last, NUMBER] = {number}", "asked[last, TOLD] = OPEN")
            nulls = [f"({1 << k} if n{k} else 0)" for k in range(len(types))]
            write(f"asked[last, NULLS] = {' | '.join(nulls) or '0'}")
            with write.block("for word in range(ARGUMENTS, asked.shape[1]):"):
                write("asked[last, word] = 0")
            for k, kernel in enumerate(types):
                words = "asked_reals" if kernel == "float64" else "asked"
                with write.block(f"if not n{k}:"):
                    write(f"{words}[last, ARGUMENTS + {k}] = {f'1 if v{k} else 0' if kernel == 'bool' else f'v{k}'}")
            write("return place(asked, opened, counts)")
        return write.text

    def _compiled(self, place: tuple[object, ...], expr: Expr, names: dict[str, str]) -> KernelExpr:
        compiled = self.constants.compiled(place, expr, names, ("d",))
        self._helpers |= compiled.helpers
        return compiled

    def _names(self, port: int, source: int | None) -> dict[str, str]:
        names = {DUR: "d"}
        names |= {EVENT + name: f"e{port}_{k}" for k, name in enumerate(self.layout.looked_at[port])}
        if source is not None:
            own = self.layout.spec.states[source]
            names |= {INSTANCE + name: f"q{source}_{k}" for k, name in enumerate(own.columns.names)}
            names |= {AGGREGATED + each.name: f"t{source}_{k}" for k, each in enumerate(own.aggregates)}
        return names


QUESTIONS = tuple(name for name in vars(questions) if not name.startswith("_") and name not in ("annotations", "Any"))
