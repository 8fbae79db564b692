"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class EngineName(StrEnum):
    """Where queries run."""

    spark = "spark"
    embedded = "embedded"


Debug = Annotated[bool, typer.Option("--debug", help="Also show the Python traceback of an error.")]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Spark master; default: all cores of this machine.")
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="K=V", help="A Spark setting, or a Millstream setting as in SET. Repeatable."),
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--var", metavar="NAME=VALUE", help="Replace ${NAME} in the SQL. Repeatable."),
]


def pairs(values: list[str] | None, option: str) -> dict[str, str]:
    """The name=value texts of a repeated option."""
    found: dict[str, str] = {}
    for text in values or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{text!r} is not name=value", param_hint=option)
        found[name.strip()] = value
    return found
