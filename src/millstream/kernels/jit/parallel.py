"""Running parts of one step at the same time; compiled loops release the interpreter, so threads are enough."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

from millstream.kernels.jit import policy

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Result = TypeVar("Result")

_pool: ThreadPoolExecutor | None = None
_workers = 0


def run_all(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of all tasks, in their order; the calling thread does its share."""
    if len(tasks) == 1 or policy.threads() == 1:
        return [task() for task in tasks]
    # each in a copy of what holds for this thread, the policy above all
    futures = [_executor().submit(copy_context().run, task) for task in tasks[1:]]
    try:
        first = tasks[0]()
    finally:
        others = [future.exception() for future in futures]
    for error in others:
        if error is not None:
            raise error
    return [first, *(future.result() for future in futures)]


def _executor() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    global _pool, _workers
    if _pool is None or _workers < policy.threads() - 1:
        _workers = max(1, policy.threads() - 1)
        _pool = ThreadPoolExecutor(_workers, thread_name_prefix="millstream-kernel")
    return _pool


def _forget_pool() -> None:
    global _pool
    _pool = None


# A forked child has no threads but ours: a pool inherited from the parent would never answer.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
