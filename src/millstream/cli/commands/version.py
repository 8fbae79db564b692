"""`millstream version`: what is installed here."""

from __future__ import annotations

from typing import Annotated

import typer

PARTS = ("pyarrow", "numpy", "numba", "duckdb", "sqlglot", "pyspark")


def _print_version(wanted: bool) -> None:
    if wanted:
        import millstream

        typer.echo(f"millstream {millstream.__version__}")
        raise typer.Exit


def show_version(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def version() -> None:
    """Show the version of Millstream, Python, Java and the libraries below."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    import millstream

    typer.echo(f"millstream {millstream.__version__}")
    typer.echo(f"python     {platform.python_version()}")
    for part in PARTS:
        try:
            found = installed(part)
        except PackageNotFoundError:
            found = "not installed"
        typer.echo(f"{part:<10} {found}")
    typer.echo(f"java       {_java()}")


def _java() -> str:
    import os
    import shutil
    import subprocess
    from pathlib import Path

    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return "not found (the Spark engine needs it, the embedded engine does not)"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    return said.splitlines()[0] if said else java
