"""The table of scalar functions and operators: one entry says all that any layer needs to know of a function."""

from __future__ import annotations

from collections.abc import Callable

from millstream.expressions.functions.casts import coerce
from millstream.expressions.nodes import Call, Expr, Literal
from millstream.records import dataclass
from millstream.types import SqlType, common_type

Rule = Callable[[tuple[Expr, ...]], Expr | None]
"""The typed expression a call means, arguments converted as needed; None if the function does not take such arguments.
Raises BindError where the reason is worth telling."""

Spelling = Callable[[Call, tuple[str, ...]], str]
"""A call in the SQL of some engine, given its arguments in that SQL."""


def never(call: Call) -> bool:
    return False


def always(call: Call) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function or operator: `Call.fn` is its name."""

    name: str
    usage: str
    arity: tuple[int, int | None]
    rule: Rule
    duckdb: Spelling
    spark: Spelling
    fails: Callable[[Call], bool] = never
    """Whether a call can fail on some input, arguments apart; conditions that guard such a call are honoured."""
    kernel: bool = False
    """Whether a call has a form in kernel source, for the types kernels know."""


FUNCTIONS: dict[str, Function] = {}
ALIASES: dict[str, str] = {}
REFUSED: dict[str, tuple[str, str]] = {}
"""Functions that have no meaning in a continuous query: the reason and what to do instead."""


def define(
    usage: str,
    rule: Rule,
    *,
    name: str | None = None,
    duckdb: Spelling | str | None = None,
    spark: Spelling | str | None = None,
    fails: Callable[[Call], bool] = never,
    kernel: bool = False,
    aliases: tuple[str, ...] = (),
) -> None:
    """Enter a function; `usage` gives its name and, between parentheses, its arguments: optional ones in brackets."""
    name = name or usage.partition("(")[0]
    FUNCTIONS[name] = Function(
        name, usage, _arity(usage), rule, _spelling(duckdb or name), _spelling(spark or duckdb or name), fails, kernel
    )
    ALIASES.update(dict.fromkeys(aliases, name))


def lookup(name: str) -> Function | None:
    """The function of that name or alias."""
    name = name.lower()
    return FUNCTIONS.get(ALIASES.get(name, name))


def known_names() -> list[str]:
    """Every name a query may use without asking DuckDB, for suggestions and completion."""
    return sorted(name for name in (*FUNCTIONS, *ALIASES) if name.isidentifier())


def overloads(name: str, *options: tuple[tuple[SqlType, ...], SqlType]) -> Rule:
    """A rule from signatures: the first that fits exactly, else the first that fits after conversions."""

    def rule(args: tuple[Expr, ...]) -> Expr | None:
        given = tuple(arg.type for arg in args)
        for params, result in options:
            if params == given:
                return Call(result, name, args)
        for params, result in options:
            if len(params) == len(args):
                converted = [coerce(arg, param) for arg, param in zip(args, params, strict=True)]
                if all(part is not None for part in converted):
                    return Call(result, name, tuple(part for part in converted if part is not None))
        return None

    return rule


def unify(args: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """The arguments converted to the one type all of them have in common.

    Text constants take the type of the rest, so that `ts > '2024-01-01'` compares times.
    """
    from millstream.expressions.functions.casts import cast
    from millstream.expressions.functions.literals import literal

    texts = [arg for arg in args if isinstance(arg, Literal) and arg.type.is_text and arg.value is not None]
    rest = [arg for arg in args if not any(arg is text for text in texts)] or list(args)
    target: SqlType | None = rest[0].type
    for arg in rest[1:]:
        if target is not None:
            target = common_type(target, arg.type)
    if target is None:
        return None
    if target.name == "NULL" and texts:
        target = texts[0].type
    is_text = [any(arg is text for text in texts) for arg in args]
    return tuple(
        literal(str(arg.value), target) if text and isinstance(arg, Literal) else cast(arg, target)
        for arg, text in zip(args, is_text, strict=True)
    )


def comparable(args: tuple[Expr, ...], *, ordered: bool = True) -> tuple[Expr, ...] | None:
    """Arguments that are compared, converted to their common type. Arrays, structs and maps are compared as the bytes
    that they become."""
    if not any(arg.type.is_nested for arg in args):
        return unify(args)
    from millstream.expressions.nested_codes import code_of, order_of

    same = unify(args)
    return None if same is None else tuple(map(order_of if ordered else code_of, same))


def constant(expr: Expr) -> object:
    """The value of a constant argument, or None."""
    return expr.value if isinstance(expr, Literal) else None


def spark_trunc(text: str) -> str:
    """A DOUBLE without its fraction, in Spark SQL, where only integers come out of rounding; large ones have none."""
    return f"CASE WHEN abs({text}) < 9007199254740992D THEN CAST(CAST({text} AS BIGINT) AS DOUBLE) ELSE {text} END"


def _arity(usage: str) -> tuple[int, int | None]:
    inside = usage.partition("(")[2].removesuffix(")")
    required = [part for part in inside.partition("[")[0].split(",") if part.strip()]
    optional = [part for part in inside.partition("[")[2].split(",") if part.strip()]
    if inside.endswith("...]"):
        return len(required), None
    return len(required), len(required) + len(optional)


def _spelling(text: Spelling | str) -> Spelling:
    """A spelling from a template with `{0}`, `{1}`, … for the arguments, or from a function's bare name."""
    if not isinstance(text, str):
        return text
    if "{" in text or "(" in text:
        return lambda call, args: text.format(*args)
    return lambda call, args: f"{text}({', '.join(args)})"
