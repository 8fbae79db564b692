"""Passes over kernel source change what they mean to change, and nothing else of the text."""

from __future__ import annotations

import ast
import gc
import time
from concurrent.futures import ThreadPoolExecutor

from millstream.kernels.source.passes import decorated, imports_of, lean, parsed, renamed, untroubled
from millstream.kernels.source.writer import Writer, block, indented

HELPER = """\
def k_twice(a):
    if a > 4611686018427387903:
        raise OverflowError("the result does not fit BIGINT")
    return a + a
"""


def is_array(name: str) -> bool:
    return name in ("c0", "order0")


def test_helpers_note_trouble_wherever_they_are_called() -> None:
    own = "def arrive(meta, x):\n    y = k_twice((x + 1)) + k_twice(k_twice(x))  # k_twice(x) in words\n    return y\n"
    text = untroubled(HELPER + own, "meta", "TROUBLE")
    assert "def k_twice(meta, a):" in text
    assert "        meta[TROUBLE] = OVERFLOW\n        return 0\n" in text and "raise" not in text
    assert "y = k_twice(meta, (x + 1)) + k_twice(meta, k_twice(meta, x))  # k_twice(x) in words" in text


def test_bounds_are_gathered_and_indexes_are_places() -> None:
    own = """\
def arrive(trouble, c0, order0, other, i):
    v_a = k_in_range((c0[order0[i & 3]] + 1), -2147483648, 2147483647)
    v_b = k_in_range(other[i], -128, 127) + 1
    return v_a + v_b
"""
    helper = (
        "def k_in_range(a, low, high):\n    if a < low or a > high:\n        raise OverflowError(1)\n    return a\n"
    )
    made = lean(helper + own, "trouble", "0", is_array)
    assert "    v_a = c0[place(order0[place(i & 3)])] + 1\n    wrong |= (v_a + 2147483648) >> 32\n" in made
    assert "    v_b = k_in_range(trouble, other[i], -128, 127) + 1\n" in made


def test_names_are_those_of_variables_alone() -> None:
    text = "if cells[c] == fcells[c]:\n    cells_left = 'cells'  # cells\n    return cells\n"
    expected = "if came[c] == fcame[c]:\n    cells_left = 'cells'  # cells\n    return came\n"
    assert renamed(text, {"cells": "came", "fcells": "fcame"}) == expected
    assert imports_of("some.module", ("ONE", "TWO", "three", "c"), "TWO = 1\nONE + TWO + f(three)\n") == (
        "from some.module import ONE, three",
    )
    assert imports_of("some.module", ("ONE",), "TWO = 1\n") == ()


def test_functions_are_decorated_and_modules_replaced() -> None:
    text = "from a.b import (\n    c,\n    d,\n)\n\n\ndef one():\n    def inner():\n        pass\n\n\ndef two(): pass\n"
    made = decorated(text, "@fast\n", lambda name: f"x_{name}")
    assert made.startswith("from x_a.b import (\n") and made.count("@fast\ndef ") == 2


def test_what_is_written_stands_under_its_heads() -> None:
    write = Writer(0)
    with write.block("while True:"):
        write("a = 1", *block("if a:", "break"))
        with write.when("True"):
            write(f"{write.fresh('b')} = 2")
        with write.block("else:"):
            pass
    assert write.text == "while True:\n    a = 1\n    if a:\n        break\n    b1 = 2\n    else:\n        pass\n"
    assert indented(["x"], 2) == ["        x"]


class Garbage:
    """What lets other threads run when it is collected."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(0.0001)


def test_threads_may_read_source_at_once() -> None:
    text = "def f(x):\n" + "".join(f"    y{i} = (((x + {i}) * 2) - {i}) if x > {i} else [x]\n" for i in range(200))

    def read(_: int) -> int:
        for _ in range(20):
            Garbage()
        return len(ast.dump(parsed(text)))

    thresholds = gc.get_threshold()
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert len(set(threads.map(read, range(40)))) == 1
    finally:
        gc.set_threshold(*thresholds)
