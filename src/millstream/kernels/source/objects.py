"""Source over Python objects, run as it is: functions inside functions, and constants by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from millstream.expressions.kernel.helpers import HELPERS
from millstream.expressions.nodes import Column, Expr
from millstream.expressions.objects import Objects
from millstream.kernels.source.writer import Writer, indented


class Module:
    """Source of functions inside functions, and the constants that it names."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {"np": np, **HELPERS}
        self.write = Writer(0)
        self._inner: list[list[str]] = [[]]
        """the functions inside each function that is being written, which stand at its beginning"""

    def constant(self, value: Any) -> str:
        name = self.write.fresh("const")
        self.constants[name] = value
        return name

    def fresh(self, stem: str) -> str:
        return self.write.fresh(stem)

    def define(self, head: str, body: Callable[[], None], depth: int | None = None) -> None:
        """A function inside the one that is being written, or inside one of those around it: 0 is the module."""
        outer = self.write
        self.write = outer.inner()
        self._inner.append([])
        body()
        lines = [*self._inner.pop(), *self.write.lines] or ["pass"]
        self.write = outer
        self._inner[-1 if depth is None else depth] += [head, *indented(lines)]

    def function(self, text: str) -> str:
        """A function inside the one that is being written, which gives what a text does where it is called."""
        name = self.fresh("part")
        self.define(f"def {name}():", lambda: self.write(f"return {text}"))
        return name

    def note(self, line: str, depth: int) -> None:
        """A line at the beginning of one of the functions that are being written."""
        self._inner[depth].append(line)

    def run(self) -> dict[str, Any]:
        """The functions by name."""
        exec(compile("\n".join(self._inner[0]), "<program>", "exec"), self.constants)
        return self.constants

    @property
    def text(self) -> str:
        return "\n".join(self._inner[0]) + "\n"


def compile_objects(expr: Expr, column: Callable[[Module, Column], str]) -> Callable[[Any], Any]:
    """A scalar expression as a function of what `column` writes its columns of, by the name `row`."""
    module = Module()

    def other(part: Expr) -> str:
        raise TypeError(f"{type(part).__name__} is not a scalar expression")

    objects = Objects(module, lambda part: column(module, part), other)
    module.define("def evaluate(row):", lambda: module.write(f"return {objects(expr)}"))
    evaluate: Callable[[Any], Any] = module.run()["evaluate"]
    return evaluate
