"""The state of aggregates written in Python is saved as plain values: reading it runs nothing."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millstream as ms
from millstream.kernels.programs import plain_values

PLAIN: list[Any] = [
    None, True, 0, -(10**30), 1.5, float("inf"), float("-inf"), "é\0", b"\x00\xff", bytearray(b"x"), 1j, [], [1, [2]],
    Decimal("1.10"), Fraction(1, 3), (1, (2,)), {1: "a", (1, 2): [3], "$": "float"}, {1, 2}, frozenset((1,)),
    dt.datetime(2026, 1, 2, 3, 4, 5, 6), dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.date(2026, 1, 2), dt.time(1, 2, 3),
    dt.timedelta(days=-1, microseconds=7), deque([1, 2], 5), Counter("aab"), OrderedDict([(2, 1), (1, 2)]),
    defaultdict(list, {1: [2]}), np.int32(5), np.float64(0.1), np.datetime64("2026-01-02", "us"),
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_are_saved_as_they_are(value: Any) -> None:
    again = plain_values.loads(plain_values.dumps({"held": value}))["held"]
    assert again == value and type(again) is type(value)
    assert getattr(again, "maxlen", None) == getattr(value, "maxlen", None)


def test_arrays_and_arrow_are_saved_as_they_are() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    again = plain_values.loads(plain_values.dumps(array))
    assert again.dtype == array.dtype and again.shape == (2, 3) and (again == array).all() and again.flags.writeable
    for held in (
        pa.array(["a", None]),
        pa.table({"a": [1, 2]}),
        pa.record_batch({"a": [1.5]}),
        pa.array([], pa.int8()),
    ):
        assert plain_values.loads(plain_values.dumps(held)).equals(held)
    assert math.isnan(plain_values.loads(plain_values.dumps(float("nan"))))


def test_what_is_held_twice_or_is_no_plain_value_is_not_saved() -> None:
    shared: list[int] = []
    cycle: list[Any] = []
    cycle.append(cycle)
    for held in ([shared, shared], cycle, object(), len, defaultdict(lambda: 1), np.array([object()]), ms):
        with pytest.raises(TypeError):
            plain_values.dumps(held)


def test_nothing_runs_when_state_is_read() -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return pytest.fail, ("it ran",)

    for saved in (pickle.dumps(Evil()), b"plain1:" + pickle.dumps(Evil()), b"", b'plain1:{"$":"os.system"}'):
        with pytest.raises(ValueError):
            plain_values.loads(saved)
    with pytest.raises(ValueError, match="plain type"):
        plain_values.loads(b'plain1:{"$":"array","type":"|O","shape":[1],"base64":"AAAAAAAAAAA="}')


def test_no_module_of_ours_reads_or_writes_pickles() -> None:
    """Spark's own way of sending functions to its workers is Spark's: we register modules with it, and one processor
    travels inside of what Spark pickles, so as to be loaded by workers only. Neither is stored. The work of an open job
    lies in files while it runs, sealed with a key that is in no file."""
    package = Path(ms.__file__).parent
    for path in package.rglob("*.py"):
        text, place = path.read_text(encoding="utf-8"), path.relative_to(package).as_posix()
        if place not in ("hosts/spark/processor.py", "hosts/spark/job/sealed.py"):
            assert "import pickle" not in text and "pickle.load" not in text, path
            assert "cloudpickle" not in text or place == "hosts/spark/session.py", path


def test_work_of_spark_jobs_is_loaded_only_with_the_seal_of_its_run() -> None:
    pytest.importorskip("pyspark")
    from millstream.hosts.spark.job.sealed import new_key, opened, sealed

    key = new_key()
    assert opened(sealed({"scan": 1}, key), key) == {"scan": 1}
    for data, other in ((sealed(1, new_key()), key), (b"\0" * 32 + pickle.dumps(1), key), (b"", key)):
        with pytest.raises(ms.StateError, match="changed by somebody else"):
            opened(data, other)
