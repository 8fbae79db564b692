"""The compiler policy: when kernels are compiled, where the result is kept, and that it changes nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from millstream.kernels import jit
from millstream.kernels.jit import store

SOURCE = """
def grow(values, factor):
    for i in range(len(values)):
        values[i] = values[i] * factor
    return len(values)
"""


def run_python(program: str, cache: Path, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cache), "MILLSTREAM_CACHE": str(cache), **environment},
    )
    return done.stdout.strip()


def program(body: str) -> str:
    return f"import sys\nimport numpy as np\nfrom millstream.kernels import jit\nSOURCE = {SOURCE!r}\n{body}"


SMALL_THEN_LARGE = program(
    """
grow = jit.compile_kernel(SOURCE, "grow")
grow(10, np.ones(10), 2.0)
print("numba" in sys.modules, grow.is_compiled())
grow(5000, np.ones(5000), 2.0)
print("numba" in sys.modules, grow.is_compiled())
"""
)


def test_few_rows_do_not_import_the_compiler(tmp_path: Path) -> None:
    assert run_python(SMALL_THEN_LARGE, tmp_path).split() == ["False", "False", "True", "True"]


def test_off_never_compiles(tmp_path: Path) -> None:
    assert run_python(SMALL_THEN_LARGE, tmp_path, MILLSTREAM_JIT="off").split() == ["False"] * 4


def test_on_compiles_at_once(tmp_path: Path) -> None:
    assert run_python(SMALL_THEN_LARGE, tmp_path, MILLSTREAM_JIT="on").split() == ["True"] * 4


def test_kept_code_is_used_at_once_if_the_compiler_is_there(tmp_path: Path) -> None:
    body = """
import numba
grow = jit.compile_kernel(SOURCE, "grow")
grow(10, np.ones(10), 2.0)
print(grow.is_compiled())
if grow.is_compiled():
    print(sum(grow._compiled().stats.cache_hits.values()))
"""
    assert run_python(program(body), tmp_path) == "False"
    run_python(SMALL_THEN_LARGE, tmp_path)
    assert run_python(program(body), tmp_path).split() == ["True", "1"]


def test_many_processes_may_compile_the_same(tmp_path: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SMALL_THEN_LARGE],
            stdout=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MILLSTREAM_CACHE": str(tmp_path)},
        )
        for _ in range(3)
    ]
    assert [process.communicate()[0].split()[-1] for process in started] == [b"True"] * 3
    assert len(list(tmp_path.glob("k*.py"))) == 1
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".k")] == []


def test_a_damaged_source_file_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path))
    path = store.put("k1.py", "x = 1\n")
    stamp = path.stat().st_mtime_ns
    path.write_text("x = ")
    assert store.put("k1.py", "x = 1\n").read_text() == "x = 1\n"
    assert path.stat().st_mtime_ns == stamp


def test_an_unwritable_cache_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("MILLSTREAM_CACHE", str(blocked / "below"))
    assert store.put("k1.py", "x = 1\n").read_text() == "x = 1\n"


def test_python_form_is_silent_about_overflow() -> None:
    wrap = jit.compile_kernel(
        "def wrap(values):\n    values[0] = values[0] * values[0] + values[1] / values[2]\n", "wrap"
    )
    values = np.array([1e200, 1.0, 0.0])
    with jit.using("off"), np.errstate(all="raise"):
        wrap(1, values)
    assert values[0] == np.inf


def test_policy_is_restored() -> None:
    before = jit.current()
    with pytest.raises(RuntimeError), jit.using("off", threads=7, threshold=3):
        assert (jit.current().mode, jit.threads(), jit.current().threshold) == ("off", 7, 3)
        raise RuntimeError
    assert jit.current() == before


@pytest.mark.parametrize("wrong", [lambda: jit.set_mode("fast"), lambda: jit.set_threads(0)])  # type: ignore[arg-type]
def test_wrong_settings_are_refused(wrong: Callable[[], None]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        wrong()


def test_tasks_run_together_and_errors_come_out() -> None:
    def fail() -> int:
        raise KeyError("lost")

    with jit.using(threads=3):
        assert jit.run_all([lambda: 1, lambda: 2, lambda: 3, lambda: 4]) == [1, 2, 3, 4]
        with pytest.raises(KeyError, match="lost"):
            jit.run_all([lambda: 1, fail])
