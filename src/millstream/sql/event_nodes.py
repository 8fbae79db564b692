"""AST nodes of the event algebra: FILTER{…}, NEXT{…}, FOLD{…} and AGGREGATE{…} in FROM.

Any exp.Query may have args["publish"], the Identifier of the stream that its events become. Inside of braces, a Column
may have `$1`, `$2` or `$` as its table.
"""

from __future__ import annotations

from typing import ClassVar, cast

from sqlglot import exp

from millstream.sql.arguments import Arg, Args

DECORATORS = ("$", "$1", "$2")
"""what tells the inputs of an operator apart: the last iteration, the first input, the second one"""

_UNARY: dict[str, bool] = {"this": True, "condition": False, "expressions": False, "alias": False, "joins": False}
_BINARY: dict[str, bool] = {**_UNARY, "expression": True}


class EventExpression(exp.Expression):
    """An operator over streams of events in FROM; `this` is its first input."""

    arg_types: ClassVar[dict[str, bool]] = _UNARY

    @property
    def name(self) -> str:
        return ""

    condition = Arg[exp.Expr | None]()


class EventFilter(EventExpression):
    """FILTER{condition} input"""


class EventNext(EventExpression):
    """this NEXT{condition} expression; without a condition the next event of all"""

    arg_types: ClassVar[dict[str, bool]] = _BINARY


class EventFold(EventExpression):
    """this FOLD{condition, continues, expressions} expression; what is left out is true, or nothing"""

    arg_types: ClassVar[dict[str, bool]] = {**_BINARY, "continues": False}

    continues = Arg[exp.Expr | None]()


class EventAggregate(EventExpression):
    """AGGREGATE{expressions [BY keys]} input: one event for all that end at the same time"""

    arg_types: ClassVar[dict[str, bool]] = {**_UNARY, "keys": False}

    keys = Args[exp.Column]()


def second_input(node: EventExpression) -> exp.Expr:
    return cast(exp.Expr, node.args["expression"])
