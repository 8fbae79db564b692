"""Kernel source that runs as plain Python first and as machine code once that pays."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.kernels.jit import policy, store
from millstream.kernels.source.passes import decorated

_HEADER = "from __future__ import annotations\nfrom numba import njit\n"
_DECORATOR = '@njit(nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True)\n'
_FUTURE = "from __future__ import annotations\n"
_PRIMITIVES, _INTRINSICS = (f"millstream.kernels.jit.{name}" for name in ("primitives", "intrinsics"))


class _Module:
    """One source text in both of its forms; all functions of it change form together."""

    def __init__(self, source: str) -> None:
        self.source = source.replace(_FUTURE, "")
        self.rows = 0
        self._lock = threading.Lock()
        self._python: dict[str, Any] | None = None
        self._compiled: ModuleType | None = None
        self._ready: dict[str, bool] = {}

    def python(self) -> dict[str, Any]:
        if self._python is None:
            namespace: dict[str, Any] = {}
            text = _FUTURE + self.source
            exec(compile(text, "<kernel source>", "exec"), namespace)
            self._python = namespace
        return self._python

    def compiled(self) -> ModuleType:
        with self._lock:
            if self._compiled is None:
                name = f"millstream_kernel_{self._path.stem}"
                spec = importlib.util.spec_from_file_location(name, self._path)
                assert spec is not None and spec.loader is not None
                module = importlib.util.module_from_spec(spec)
                sys.modules[name] = module
                spec.loader.exec_module(module)
                self._compiled = module
        return self._compiled

    def wants_compiled(self, function: str, rows: int) -> bool:
        if self._compiled is not None:
            return True
        self.rows += rows
        if self.rows >= policy.current().threshold:
            return True
        # Code that lies ready costs only its loading, provided that someone else paid for the compiler's import.
        if "numba" not in sys.modules:
            return False
        if function not in self._ready:
            self._ready[function] = store.is_compiled(self._path, function)
        return self._ready[function]

    @cached_property
    def _path(self) -> Path:
        text = _HEADER + decorated(self.source, _DECORATOR, _compiled_module)
        return store.put(f"k{store.fingerprint(text)}.py", text)


def _compiled_module(name: str) -> str:
    """What compiled source imports from instead: the compiled form of a module that is kernel source too."""
    if not name.startswith("millstream.kernels."):
        return name
    return _INTRINSICS if name == _PRIMITIVES else _module(source_of(importlib.import_module(name))).compiled().__name__


class Compiled:
    """A function of kernel source; calling it picks the form to run by the policy in force."""

    def __init__(self, module: _Module, name: str) -> None:
        self._module = module
        self.name = name

    @property
    def source(self) -> str:
        return self._module.source

    def __call__(self, rows: int, *args: Any) -> Any:
        """Run over `args`; `rows` is how many rows that means, which is what compiling is weighed against."""
        return self.form(rows)(*args)

    def form(self, rows: int) -> Callable[..., Any]:
        """The form that the policy picks for `rows` more rows, for callers that call it from several threads."""
        mode = policy.current().mode
        if mode == "on" or (mode == "auto" and self._module.wants_compiled(self.name, rows)):
            return self._compiled()
        return self._python()

    def is_compiled(self) -> bool:
        """Whether the next call runs as machine code if it adds no rows."""
        mode = policy.current().mode
        return mode == "on" or (mode == "auto" and self._module._compiled is not None)

    def _compiled(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(self._module.compiled(), self.name)
        return function

    def _python(self) -> Callable[..., Any]:
        function = self._module.python()[self.name]

        def run(*args: Any) -> Any:
            # Machine code wraps and yields NaN silently; so must its Python form.
            with np.errstate(all="ignore"):
                return function(*args)

        return run


_modules: dict[str, _Module] = {}
_modules_lock = threading.Lock()


def compile_kernel(source: str, name: str) -> Compiled:
    """The function `name` of kernel source: a module of plain functions over NumPy arrays.

    Equal sources share one module, so that a kernel built twice is compiled once.
    """
    return Compiled(_module(source), name)


def _module(source: str) -> _Module:
    with _modules_lock:
        return _modules.setdefault(source, _Module(source))


def source_of(module: ModuleType) -> str:
    """The text of a module that is written to be kernel source."""
    return inspect.getsource(module)


def as_input(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same values, contiguous and read-only: the compiler makes one version per kind of array it meets."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
