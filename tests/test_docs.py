"""Every code block of the documentation runs.

A page's `python` blocks run one after the other in one namespace; a `text` block right after one is what it prints.
A page's `sql` blocks run in one session; a block marked `sql error` must be refused, and a `text` block right after an
`sql` block is the result of its last statement (or the error).
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import millstream as ms

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")])
BLOCK = re.compile(r"^```([a-z]+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str, str, str | None]]:
    """(language, info, code, expected text or None) of every python and sql block."""
    found = list(BLOCK.finditer(page.read_text()))
    result = []
    for i, match in enumerate(found):
        if match[1] not in ("python", "sql"):
            continue
        after = found[i + 1] if i + 1 < len(found) else None
        follows = after is not None and after[1] == "text" and not page.read_text()[match.end() : after.start()].strip()
        result.append((match[1], match[2].strip(), match[3], after[3] if after is not None and follows else None))
    return result


def needs_spark(page: Path) -> bool:
    return any(
        "spark" in info or "millstream.spark" in code or 'engine="spark"' in code for _, info, code, _ in blocks(page)
    )


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, id=p.name, marks=[pytest.mark.spark] if needs_spark(p) else []) for p in PAGES if blocks(p)],
)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "docs"}
    with ms.connect() as db:
        for language, info, code, expected in blocks(page):
            if info.startswith("norun"):
                continue
            if language == "python":
                printed = run_python(code, names, page)
            else:
                printed = run_sql(code, "error" in info, db)
            if expected is not None:
                assert clean(printed) == clean(expected), f"{page.name}:\n{code}"


def run_python(code: str, names: dict[str, object], page: Path) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(page), "exec"), names)
    return out.getvalue()


def run_sql(code: str, refused: bool, db: ms.Database) -> str:
    if refused:
        with pytest.raises(ms.MillstreamError) as caught:
            db.execute(code)
        return str(caught.value)
    result = db.execute(code)
    if isinstance(result, ms.Result):
        table = result.arrow()
        return "\n".join(" | ".join(str(v) for v in row.values()) for row in table.to_pylist())
    return ""


def clean(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
