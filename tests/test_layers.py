"""The structure of the package: folders import only from those below them, and names of classes tell them apart."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import millstream

PACKAGE = Path(millstream.__file__).parent

LAYERS = (
    # what everything rests on
    "records", "errors", "arrays", "types", "schema", "limits", "durable", "spans", "sealed_duckdb", "wire",
    "sql",  # text ↔ trees
    "expressions",  # scalar expressions: what they are, their functions, how each engine computes them
    "plan",  # what a query means, and what can be proved of it
    "catalog", "library",  # what has been declared, and what comes with the engine
    "connectors",  # rows from and to the world
    "bind",  # trees → plans
    "rules",  # plans → better plans
    "kernels",  # what runs
    "physical",  # plans → kernels
    "plan_form",  # plans as data
    "config", "hosts",  # where kernels run
    "session", "spark", "remote", "__init__", "dbapi", "live_table", "magic",  # what users hold
    "server", "cli", "testing", "__main__",  # what is made with it
)  # fmt: skip
"""Folders and files of the package, the lowest first: each imports only from those before it, even inside functions."""

ONLY_IN = {
    "numba": ("kernels/jit/",),
    "pyspark": ("hosts/spark/", "spark.py", "cli/spark_session.py"),
    "confluent_kafka": ("connectors/kafka/",),
    "starlette": ("server/",),
    "uvicorn": ("server/",),
    "pgpq": ("server/",),
    "IPython": ("magic.py",),
    "anywidget": ("live_table.py",),
    "hypothesis": (),
    "pytest": (),
}
"""Packages that few places may import."""


class SourceFile(NamedTuple):
    """What the rules look at in a file of the package."""

    path: str
    length: int
    imported: list[tuple[int, str]]
    classes: list[tuple[int, str]]


@cache
def sources() -> list[SourceFile]:
    """Every file of the package by its path in it."""
    return [source_file(path) for path in sorted(PACKAGE.rglob("*.py"))]


def source_file(path: Path) -> SourceFile:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    classes = [(node.lineno, node.name) for node in tree.body if isinstance(node, ast.ClassDef)]
    return SourceFile(path.relative_to(PACKAGE).as_posix(), len(text.splitlines()), list(imported(tree)), classes)


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What a file imports anywhere, inside functions and for type checks too; `a.b` for `from a import b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)


def layer_of(path: str) -> str:
    return path.partition("/")[0].removesuffix(".py")


def layer_meant(name: str) -> str:
    """The layer that an imported name of the package belongs to."""
    parts = name.split(".")
    if len(parts) > 1 and ((PACKAGE / parts[1]).is_dir() or (PACKAGE / f"{parts[1]}.py").is_file()):
        return parts[1]
    return "__init__"


def test_every_folder_and_file_has_a_layer() -> None:
    assert {layer_of(file.path) for file in sources()} == set(LAYERS)


def test_folders_import_only_from_lower_ones() -> None:
    wrong = [
        f"{path}:{line} imports {name}"
        for path, _, imports, _ in sources()
        for line, name in imports
        if name.split(".")[0] == "millstream" and LAYERS.index(layer_meant(name)) > LAYERS.index(layer_of(path))
    ]
    assert not wrong, "\n".join(("from a higher layer:", *wrong))


def test_few_places_import_what_is_not_always_there() -> None:
    wrong = [
        f"{path}:{line} imports {name}"
        for path, _, imports, _ in sources()
        for line, name in imports
        if not path.startswith(ONLY_IN.get(name.split(".")[0], ("",)))
    ]
    assert not wrong, "\n".join(wrong)


def test_no_public_class_name_stands_twice() -> None:
    """But for the dialect's, which is the name that sqlglot knows it by."""
    places = defaultdict(list)
    for path, _, _, classes in sources():
        for line, name in classes:
            if not name.startswith("_") and path != "sql/dialect.py":
                places[name].append(f"{path}:{line}")
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice, "\n".join(f"{name}: {', '.join(where)}" for name, where in sorted(twice.items()))


def test_dataclasses_are_those_of_records() -> None:
    """The standard decorator refuses to derive a frozen class from one of `millstream.records`."""
    wrong = [
        f"{path}:{line}: use millstream.records.dataclass"
        for path, _, imports, _ in sources()
        for line, name in imports
        if name == "dataclasses.dataclass" and path != "records.py"
    ]
    assert not wrong, "\n".join(wrong)


def test_files_are_concepts_and_folders_are_rooms() -> None:
    """A file has at most 500 lines, a folder at most 45 files: beyond that it holds several things."""
    long = [file.path for file in sources() if file.length > 500]
    assert not long
    full = [str(folder) for folder in PACKAGE.rglob("*") if folder.is_dir() and len(list(folder.glob("*.py"))) > 45]
    assert not full
