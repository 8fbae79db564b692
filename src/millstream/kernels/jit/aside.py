"""Compiling aside: a second process compiles into the cache on disk, and a thread of this one loads what it made.

A thread alone would do, but the compiler, in Python for the greater part, would then take turns with the rows; and a
process cannot end in good order while it compiles.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import warnings
import weakref
from queue import Empty, Queue
from threading import Lock, Thread
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from millstream.kernels.jit import store

if TYPE_CHECKING:
    from millstream.kernels.jit.compiled import KernelModule

Kinds = tuple[Any, ...]
"""What arguments are, as far as the compiler tells them apart."""

_IDLE_SECONDS = 5.0
"""After so long without work the second process ends."""


def kinds_of(args: tuple[Any, ...]) -> Kinds:
    """What these arguments are, hashable and fit for travelling."""
    return tuple(_kind(arg) for arg in args)


def examples(kinds: Kinds) -> tuple[Any, ...]:
    """Arguments of these kinds."""
    return tuple(_example(kind) for kind in kinds)


def _kind(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        layout = "C" if value.flags.c_contiguous else "F" if value.flags.f_contiguous else "A"
        return value.dtype, value.ndim, layout, value.flags.writeable
    return ("tuple", *map(_kind, value)) if type(value) is tuple else type(value)


def _example(kind: Any) -> Any:
    if isinstance(kind, type):
        return kind()
    if kind[0] == "tuple":
        return tuple(map(_example, kind[1:]))
    dtype, dimensions, layout, writeable = kind
    array: Any = np.zeros((4,) * dimensions, dtype, order="F" if layout == "F" else "C")
    if layout == "A":
        array = array[(slice(None, None, 2),) * dimensions]
    array.flags.writeable = writeable
    return array


def _send(to: IO[bytes], value: Any) -> None:
    """A value as a line of JSON."""
    to.write(json.dumps(value).encode() + b"\n")
    to.flush()


def _written(kind: Any) -> Any:
    """Kinds as what JSON knows: a type by its name, an array by the form of its elements."""
    if isinstance(kind, type):
        return kind.__name__ if kind.__module__ == "builtins" else f"numpy.{np.dtype(kind).name}"
    if isinstance(kind, np.dtype):
        return {"elements": np.lib.format.dtype_to_descr(kind)}
    return [_written(part) for part in kind] if isinstance(kind, tuple) else {"is": kind}


def _read(kind: Any) -> Any:
    if isinstance(kind, str):
        found: type = np.dtype(kind[6:]).type if kind.startswith("numpy.") else _BUILT_IN[kind]
        return found
    if isinstance(kind, list):
        return tuple(map(_read, kind))
    return kind["is"] if "is" in kind else np.lib.format.descr_to_dtype(_fields(kind["elements"]))


def _fields(elements: Any) -> Any:
    """The form of elements that have fields, with the tuples that JSON turned into lists."""
    if isinstance(elements, str):
        return elements
    return [tuple(tuple(part) if isinstance(part, list) else part for part in field) for field in elements]


_BUILT_IN: dict[str, type] = {kind.__name__: kind for kind in (int, float, bool, str, bytes, complex, type(None))}


class _Helper:
    """The second process: it takes source, the name of a function and kinds, and says when the cache has the code."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def compile(self, source: str, name: str, kinds: Kinds) -> None:
        """Return when it is done, or cannot be done this way."""
        try:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            _send(process.stdin, [source, name, _written(kinds)])
            if not process.stdout.readline():
                self.end()
        except (OSError, ValueError):
            self.end()

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def kill(self) -> None:
        """From another thread: whoever waits for an answer gets none."""
        if self._process is not None:
            self._process.kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            path = os.pathsep.join(entry for entry in sys.path if entry)
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": path, "MILLSTREAM_CACHE": str(store.directory())},
            )
        return self._process


class Compiler:
    """Takes requests in turn, on a thread of its own."""

    def __init__(self) -> None:
        self._requests: Queue[tuple[weakref.ref[KernelModule], str, Kinds] | None] = Queue()
        self._helper = _Helper()
        self._ending = False
        self._thread = Thread(target=self._work, name="millstream-compiler", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def request(self, module: KernelModule, name: str, kinds: Kinds) -> None:
        self._requests.put((weakref.ref(module), name, kinds))

    def settle(self) -> None:
        """Wait until everything asked for has been done."""
        self._requests.join()

    def _work(self) -> None:
        while not self._ending:
            try:
                item = self._requests.get(timeout=_IDLE_SECONDS)
            except Empty:
                self._helper.end()
                continue
            if item is not None:
                self._load(*item)
            self._requests.task_done()
        self._helper.end()

    def _load(self, wanted: weakref.ref[KernelModule], name: str, kinds: Kinds) -> None:
        module = wanted()
        if module is None or self._ending:
            return
        try:
            if not store.is_compiled(module.path, name):
                self._helper.compile(module.source, name, kinds)
            if not self._ending:
                module.load(name, kinds)
        except Exception as error:
            warnings.warn(f"a kernel was not compiled and runs as Python: {error}", RuntimeWarning, stacklevel=2)

    def _end(self) -> None:
        """The process ends: what is being compiled is given up."""
        self._ending = True
        self._requests.put(None)
        self._helper.kill()
        self._thread.join(timeout=10)


_compiler: Compiler | None = None
_lock = Lock()


def compiler() -> Compiler:
    """The one of this process."""
    global _compiler
    with _lock:
        if _compiler is None:
            _compiler = Compiler()
        return _compiler


def _forget() -> None:
    global _compiler, _lock
    _compiler, _lock = None, Lock()


# A forked child has no threads but ours.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    from millstream.kernels.jit.compiled import kernel_module

    for line in requests:
        source, name, kinds = json.loads(line)
        done = True
        try:
            kernel_module(source).load(name, _read(kinds))
        except Exception:
            done = False
        _send(answers, done)


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
