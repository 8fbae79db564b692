"""The one requirement on the installed sqlglot: its classes can be subclassed."""

from __future__ import annotations

from sqlglot import exp, generator, parser

from millstream.errors import EngineError


def require_pure_sqlglot(*bases: type) -> None:
    """Raise EngineError if the classes our dialect extends are compiled and therefore closed."""
    for base in bases or (exp.Expression, parser.Parser, generator.Generator):
        try:
            type("Probe", (base,), {})
        except TypeError as error:
            raise EngineError(
                "the installed sqlglot is compiled and its dialects cannot be extended",
                detail=str(error),
                hint="use plain sqlglot: pip uninstall sqlglotc, then pip install --force-reinstall sqlglot",
            ) from None
