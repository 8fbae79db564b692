"""Generated data written to files, for benchmarks, examples and the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from millstream.connectors.generators.catalog import KINDS, TABLES, choose_table
from millstream.connectors.generators.source import GeneratorSource
from millstream.connectors.generators.table import GeneratedRows, schema_of
from millstream.connectors.options import Options, OptionValue, closest
from millstream.connectors.sinks.writers import FORMATS, SUFFIXES, open_writer, suffix_format
from millstream.errors import ConnectorError

Progress = Callable[[int, int], None]
"""Called with the rows written so far and the rows there will be."""

_BATCH = 131_072


def write_generated(
    kind: str,
    table: str | None,
    rows: int,
    path: str | Path,
    format: str | None = None,
    *,
    seed: int = 0,
    options: Mapping[str, OptionValue] | None = None,
    progress: Progress | None = None,
) -> dict[Path, int]:
    """Write `rows` rows of a table to a file, or `rows` events of all tables of the kind to files in a directory.

    Returns the files with their row counts. The format is told by the file's extension unless it is given; in a
    directory it is Parquet.
    """
    tables = TABLES[_known(kind)]
    target = Path(path).expanduser()
    if table is not None or len(tables) == 1:
        form = _format(format, suffix_format(target), target)
        jobs = [(choose_table(kind, table, ""), target, rows)]
    else:
        form = _format(format, "parquet", target)
        jobs = [
            (chosen, target / f"{name}{SUFFIXES[form]}", chosen.rows_of_events(rows)) for name, chosen in tables.items()
        ]
    total = sum(count for _, _, count in jobs)
    done = 0
    written = {}
    for chosen, file, count in jobs:
        _write(kind, chosen, file, form, count, {"seed": seed, **(options or {})}, done, total, progress)
        written[file] = count
        done += count
    return written


def _write(
    kind: str, table: type[GeneratedRows], target: Path, form: str, rows: int, options: Mapping[str, OptionValue],
    before: int, total: int, progress: Progress | None,
) -> None:  # fmt: skip
    """One file, which appears under its name when it is complete."""
    schema = schema_of(table)
    name = next(name for name, known in TABLES[kind].items() if known is table)
    source = GeneratorSource.from_options(
        Options(f"generator {kind}", {**options, "table": name, "rows": rows}), kind, schema, ""
    )
    partial = target.with_name(f".{target.name}.inprogress")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            writer = open_writer(form, file, schema)
            for chunk in source.read({}, lambda: False, _BATCH):
                writer.write(chunk.rows)
                if progress is not None:
                    progress(before + int(chunk.offset["row"]), total)
            writer.finish()
        partial.rename(target)
    except OSError as error:
        raise ConnectorError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise ConnectorError(f"no generator {kind}", hint=f"available: {', '.join(KINDS)}{closest(kind, KINDS)}")
    return kind


def _format(given: str | None, default: str | None, target: Path) -> str:
    form = {"json": "jsonl"}.get(given or "", given or default)
    if form not in FORMATS:
        what = f"format {given} is not known" if given else f"the format of {target} cannot be inferred from its name"
        raise ConnectorError(what, hint=f"use one of {', '.join(FORMATS)}")
    return str(form)
