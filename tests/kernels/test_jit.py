"""The compiler policy: when kernels are compiled, where the result is kept, and that it changes nothing."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream.kernels import jit
from millstream.kernels.jit import store
from millstream.kernels.jit.compiled import KernelModule

SOURCE = """
def grow(values, factor):
    for i in range(len(values)):
        values[i] = values[i] * factor
    return len(values)
"""


def alone(cache: Path, **environment: str) -> dict[str, str]:
    """An environment with a cache of its own."""
    own = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return {**own, "HOME": str(cache), "MILLSTREAM_CACHE": str(cache), **environment}


def run_python(program: str, cache: Path, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=alone(cache, **environment),
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


def test_kept_code_is_used_at_once_if_other_code_was_loaded(tmp_path: Path) -> None:
    body = """
jit.make_ready()
shrink = jit.compile_kernel("def shrink(n):\\n    return n - 1\\n", "shrink")
shrink(1, 1)
print("numba" in sys.modules, shrink.is_compiled())
with jit.using("on"):
    shrink(1, 1)
grow = jit.compile_kernel(SOURCE, "grow")
grow(10, np.ones(10), 2.0)
print(grow.is_compiled())
if grow.is_compiled():
    print(sum(grow._compiled().stats.cache_hits.values()))
"""
    assert run_python(program(body), tmp_path).split() == ["True", "False", "False"]
    run_python(SMALL_THEN_LARGE, tmp_path)
    assert run_python(program(body), tmp_path).split() == ["True", "False", "True", "1"]


def test_many_processes_may_compile_the_same(tmp_path: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SMALL_THEN_LARGE],
            stdout=subprocess.PIPE,
            env=alone(tmp_path),
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


@pytest.mark.parametrize("wrong", [{"mode": "fast"}, {"threads": 0}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"), jit.using(**wrong):
        pass


def test_a_policy_holds_for_its_thread_and_its_tasks() -> None:
    with jit.using("off", threads=3):
        assert jit.run_all([jit.current] * 4) == [jit.current()] * 4
        with ThreadPoolExecutor() as elsewhere:
            assert elsewhere.submit(jit.current).result() != jit.current()


def test_source_that_nobody_uses_is_forgotten() -> None:
    grow = jit.compile_kernel(SOURCE + "# a text of its own\n", "grow")
    grow(10, np.ones(10), 2.0)
    with jit.using("on"):
        grow(10, np.ones(10), 2.0)
    module = weakref.ref(grow._module)
    name = grow._compiled().__module__
    assert name in sys.modules
    del grow
    gc.collect()
    assert module() is None
    assert name not in sys.modules


def test_the_end_of_a_module_leaves_another_of_the_same_source() -> None:
    source = SOURCE.replace("grow", "grow_twin")
    former, latter = KernelModule(source), KernelModule(source)
    former.compiled()
    name = latter.compiled().__name__
    del former
    gc.collect()
    assert sys.modules[name] is latter.compiled()
    del latter
    gc.collect()
    assert name not in sys.modules


def test_tasks_run_together_and_errors_come_out() -> None:
    def fail() -> int:
        raise KeyError("lost")

    with jit.using(threads=3):
        assert jit.run_all([lambda: 1, lambda: 2, lambda: 3, lambda: 4]) == [1, 2, 3, 4]
        with pytest.raises(KeyError, match="lost"):
            jit.run_all([lambda: 1, fail])


ASIDE = program(
    """
from millstream.kernels.jit import aside
grow = jit.compile_kernel(SOURCE, "grow")
with jit.using(aside=True):
    few, floats, ints = np.ones(10), np.ones(5000), np.ones(5000, dtype=np.int64)
    grow(10, few, 2.0)
    print("numba" in sys.modules, grow.is_compiled())
    grow(5000, floats, 2.0)
    print("numba" in sys.modules)
    aside.compiler().settle()
    print(grow.is_compiled(), sum(grow._compiled().stats.cache_hits.values()))
    grow(5000, floats, 2.0)
    # arguments of another kind: Python first, again
    print(grow(5000, ints, 2), len(grow._compiled().signatures))
    aside.compiler().settle()
    print(len(grow._compiled().signatures), floats[0], ints[0])
    # many rows are to come: they wait, also for arguments of another kind
    with jit.using(bulk=True):
        other = jit.compile_kernel(SOURCE.replace("* factor", "* factor * 1"), "grow")
        other(5000, floats, 2.0)
        print(other.is_compiled(), other(5000, ints, 2), len(other._compiled().signatures))
"""
)


def test_rows_do_not_wait_for_the_compiler(tmp_path: Path) -> None:
    lines = run_python(ASIDE, tmp_path).splitlines()
    assert lines == ["False False", "False", "True 1", "5000 1", "2 4.0 2", "True 5000 2"]


def test_a_process_may_end_while_it_compiles(tmp_path: Path) -> None:
    body = program(
        """
with jit.using(aside=True):
    jit.compile_kernel(SOURCE, "grow")(5000, np.ones(5000), 2.0)
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", body],
        capture_output=True,
        check=True,
        timeout=60,
        env=alone(tmp_path),
    )
    assert done.stderr == b""
