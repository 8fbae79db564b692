"""Which files a path means, and which format a file name implies."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path

from millstream.errors import ConnectorError
from millstream.records import dataclass

FORMATS = ("csv", "jsonl", "json", "debezium", "parquet", "arrow")
_BY_SUFFIX = {
    ".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet",
    ".pq": "parquet", ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}


@dataclass(frozen=True, slots=True)
class FileKind:
    """A format (csv, json, debezium, parquet or arrow), a compression around it, the delimiter the name suggests."""

    format: str
    compression: str | None = None
    delimiter: str = ","

    @property
    def is_text(self) -> bool:
        return self.format not in ("parquet", "arrow")


def canonical(form: str) -> str:
    return "json" if form in ("jsonl", "ndjson") else form


def kind_of(path: Path, form: str | None) -> FileKind | None:
    """The kind of a file by its name, or by `form` where that is given; None if neither tells."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = _COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    if compression is not None:
        suffixes.pop()
    named = _BY_SUFFIX.get(suffixes[-1]) if suffixes else None
    chosen = canonical(form) if form is not None else named
    if chosen is None:
        return None
    if compression is not None and chosen in ("parquet", "arrow"):
        raise ConnectorError(f"{path.name}: a compressed {chosen} file is not supported", hint="decompress it first")
    return FileKind(chosen, compression, "\t" if suffixes and suffixes[-1] == ".tsv" else ",")


def list_files(path: str, form: str | None) -> list[Path]:
    """The files that a file, directory or glob means, sorted by name.

    Of a directory and of a glob, hidden files are left out, and so are files whose format nothing tells. Of the
    directories in a directory, those named `column=value` are searched too.
    """
    base = Path(path).expanduser()
    if base.is_dir():
        found = list(_files_in(base))
    elif base.is_file():
        if kind_of(base, form) is None:
            raise ConnectorError(
                f"the format of {path} cannot be inferred from its name",
                hint=f"set format to one of {', '.join(FORMATS)}",
            )
        return [base]
    else:
        # Path.glob takes no absolute pattern.
        names = glob.glob(str(base), recursive=True)  # noqa: PTH207
        found = [Path(name) for name in names if Path(name).is_file()]
    visible = (entry for entry in found if not entry.name.startswith((".", "_")))
    return sorted((entry for entry in visible if kind_of(entry, form) is not None), key=str)


def fixed_part(path: str) -> Path:
    """The directory below which a path means files: itself, or what comes before the pattern of a glob.

    >>> str(fixed_part("data/x=*/a.csv")), str(fixed_part("data/a.csv"))
    ('data', 'data')
    """
    base = Path(path).expanduser()
    if base.is_dir():
        return base
    if not base.is_file():
        for place, part in enumerate(base.parts):
            if glob.has_magic(part):
                return Path(*base.parts[:place])
    return base.parent


def confined(path: Path, within: str | None) -> Path:
    """The path, if what it leads to lies in `within`: a link must not lead out of a location."""
    if within is not None and not path.resolve().is_relative_to(Path(within).resolve()):
        raise ConnectorError(f"{path} leads out of its location", detail="it is a symbolic link, or its path has one")
    return path


def _files_in(directory: Path) -> Iterator[Path]:
    for entry in directory.iterdir():
        if entry.is_file():
            yield entry
        elif "=" in entry.name and not entry.name.startswith(".") and entry.is_dir():
            yield from _files_in(entry)
