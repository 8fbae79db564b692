"""Kernel source that runs as plain Python first and as machine code once that pays."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import threading
import weakref
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from millstream.kernels.jit import policy, store
from millstream.kernels.source.passes import decorated

if TYPE_CHECKING:
    from millstream.kernels.jit.aside import Kinds

_HEADER = "from __future__ import annotations\nfrom numba import njit\n"
_DECORATOR = '@njit(nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True)\n'
_FUTURE = "from __future__ import annotations\n"
_PRIMITIVES, _INTRINSICS = (f"millstream.kernels.jit.{name}" for name in ("primitives", "intrinsics"))


_loads = False
"""Whether this process has loaded machine code. Its first one takes longest, also if the compiler is imported."""

BULK_ROWS = 100_000
"""With so many rows at once, waiting for the compiler takes less time than running the Python body."""


class KernelModule:
    """One source text in both of its forms."""

    def __init__(self, source: str) -> None:
        self.source = source.replace(_FUTURE, "")
        self.rows = 0
        self._lock = threading.Lock()
        self._python: dict[str, Any] | None = None
        self._compiled: ModuleType | None = None
        self._kept: dict[str, bool] = {}
        self._uses: list[KernelModule] = []
        self._requested: set[tuple[str, Kinds]] = set()

    def python(self, function: str) -> Callable[..., Any]:
        """A function as plain Python."""
        if self._python is None:
            namespace: dict[str, Any] = {}
            text = _FUTURE + self.source
            exec(compile(text, "<kernel source>", "exec"), namespace)
            self._python = namespace
        own = self._python[function]

        def run(*args: Any) -> Any:
            # Machine code wraps and yields NaN silently; so must its Python form.
            with np.errstate(all="ignore"):
                return own(*args)

        return run

    def compiled(self) -> ModuleType:
        if self._compiled is None:
            with self._lock:
                self._compiled = self._compiled or self._imported()
        return self._compiled

    @property
    def is_loaded(self) -> bool:
        return self._compiled is not None

    def load(self, function: str, kinds: Kinds) -> None:
        """Have the machine code of a function for such arguments, from the cache if it is there."""
        from numba import typeof

        from millstream.kernels.jit.aside import examples

        with self._lock:
            # until the first function is ready, all run as Python
            module = self._compiled or self._imported()
            getattr(module, function).compile(tuple(map(typeof, examples(kinds))))
            self._compiled = module

    def request(self, function: str, args: tuple[Any, ...]) -> None:
        """Let a function be compiled aside for such arguments."""
        from millstream.kernels.jit.aside import compiler, kinds_of

        wanted = function, kinds_of(args)
        if wanted not in self._requested:
            self._requested.add(wanted)
            compiler().request(self, *wanted)
        if policy.current().bulk:
            compiler().settle()

    def wants_compiled(self, function: str, rows: int) -> bool:
        if self._compiled is not None:
            return True
        self.rows += rows
        if self.rows >= policy.current().threshold:
            return True
        # Code that lies ready costs only its loading, provided that someone else paid for what comes before the first.
        if not _loads:
            return False
        if function not in self._kept:
            self._kept[function] = store.is_compiled(self.path, function)
        return self._kept[function]

    @cached_property
    def path(self) -> Path:
        """The file of the compiled form, which may be imported once those that it uses are."""
        text = _HEADER + decorated(self.source, _DECORATOR, self._compiled_module)
        return store.put(f"k{store.fingerprint(text)}.py", text)

    @property
    def _name(self) -> str:
        return f"millstream_kernel_{self.path.stem}"

    def _compiled_module(self, name: str) -> str:
        """What compiled source imports from instead: the compiled form of a module that is kernel source too."""
        if not name.startswith("millstream.kernels."):
            return name
        if name == _PRIMITIVES:
            return _INTRINSICS
        used = kernel_module(source_of(importlib.import_module(name)))
        self._uses.append(used)
        return used._name

    def _imported(self) -> ModuleType:
        global _loads
        name, _loads = self._name, True
        for used in self._uses:
            used.compiled()
        spec = importlib.util.spec_from_file_location(name, self.path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        weakref.finalize(self, _forget, name, module)
        spec.loader.exec_module(module)
        for function, made in list(vars(module).items()):
            if getattr(getattr(made, "py_func", None), "__module__", "") == name:
                self._watch(made, function)
        return module

    def _watch(self, dispatcher: Any, function: str) -> None:
        """Arguments of a new kind are no reason to wait either, where sessions do not wait for the compiler: what is
        asked of a dispatcher then is the function to call."""
        compile_now, own = dispatcher._compile_for_args, weakref.ref(self)

        def compile_for(*args: Any) -> Any:
            module, chosen = own(), policy.current()
            if module is None or chosen.mode != "auto" or not chosen.aside:
                return compile_now(*args)
            module.request(function, args)
            return compile_now(*args) if chosen.bulk else module.python(function)

        dispatcher._compile_for_args = compile_for


def _forget(name: str, module: ModuleType) -> None:
    """A module that nobody uses goes; one of the same source that has come meanwhile has the same name, and stays."""
    if sys.modules.get(name) is module:
        del sys.modules[name]


class Compiled:
    """A function of kernel source; calling it picks the form to run by the policy in force."""

    def __init__(self, module: KernelModule, name: str) -> None:
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
        chosen, module = policy.current(), self._module
        if chosen.mode == "on" or (chosen.mode == "auto" and module.wants_compiled(self.name, rows)):
            if chosen.mode == "auto" and chosen.aside and not module.is_loaded and rows < BULK_ROWS:
                return self._meanwhile
            return self._compiled()
        return self._python()

    def is_compiled(self) -> bool:
        """Whether the next call runs as machine code if it adds no rows."""
        mode = policy.current().mode
        return mode == "on" or (mode == "auto" and self._module.is_loaded)

    def _compiled(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(self._module.compiled(), self.name)
        return function

    def _python(self) -> Callable[..., Any]:
        return self._module.python(self.name)

    def _meanwhile(self, *args: Any) -> Any:
        self._module.request(self.name, args)
        waited = policy.current().bulk and self._module.is_loaded
        return (self._compiled() if waited else self._python())(*args)


_modules: weakref.WeakValueDictionary[str, KernelModule] = weakref.WeakValueDictionary()
_modules_lock = threading.Lock()


def compile_kernel(source: str, name: str) -> Compiled:
    """The function `name` of kernel source: a module of plain functions over NumPy arrays.

    Equal sources share one module while somebody uses it, so that a kernel built twice is compiled once.
    """
    return Compiled(kernel_module(source), name)


def kernel_module(source: str) -> KernelModule:
    """The module of this source."""
    with _modules_lock:
        known = _modules.get(source)
        if known is None:
            known = _modules[source] = KernelModule(source)
        return known


def source_of(module: ModuleType) -> str:
    """The text of a module that is written to be kernel source."""
    return inspect.getsource(module)


def as_input(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same values, contiguous and read-only: the compiler makes one version per kind of array it meets."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
