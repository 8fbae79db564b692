"""`millstream generate`: data to try things on."""

from __future__ import annotations

from typing import Annotated

import typer


def generate() -> None:
    """later"""
