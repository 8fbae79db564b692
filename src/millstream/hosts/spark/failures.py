"""Errors inside Spark, raised as our own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from millstream import errors
from millstream.errors import DataError, EngineError, MillstreamError, StateError

_RAISED = re.compile(r"millstream\.errors\.(\w+): (.+?)(?=\n\s*\n|\n SQLSTATE|\n\tat |\Z)", re.DOTALL)
_CONDITION = re.compile(r"\[([A-Z_]+)(?:\.[A-Z_]+)?\] (.+)")
_OTHER_QUERY = re.compile(
    r"STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA|STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"
    r"|STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|sources in the checkpoint offsets"
)
"""How Spark says that the checkpoint does not fit the query."""
_DATA_STATES = ("22",)
"""SQLSTATE classes that blame the data: overflow, division by zero, a text that is not a number."""


def translated(error: BaseException) -> MillstreamError:
    """What went wrong, without the stack traces that Spark adds."""
    if isinstance(error, MillstreamError):
        return error
    text = str(error)
    raised = _RAISED.search(text)
    kind = getattr(errors, raised[1], None) if raised else None
    if raised is not None and isinstance(kind, type) and issubclass(kind, MillstreamError):
        message, detail, hint = _parts(raised[2])
        return kind(message, detail=detail, hint=hint)
    if _OTHER_QUERY.search(text):
        return StateError(
            "the checkpoint belongs to another query",
            detail="its stages or its inputs changed since the state was saved",
            hint="start with a new checkpoint directory",
        )
    condition = _CONDITION.search(text)
    message = condition[2].split(" SQLSTATE")[0].strip() if condition else text.splitlines()[0]
    if re.search(rf"SQLSTATE: ({'|'.join(_DATA_STATES)})", text):
        return DataError(_plain(message))
    return EngineError(f"Spark: {_plain(message)}", detail=_last_python_line(text))


@contextmanager
def telling() -> Iterator[None]:
    """Run something on Spark; failures come out as our own errors."""
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        if not _from_spark(error):
            raise
        raise translated(error) from None


@contextmanager
def inside_a_micro_batch() -> Iterator[None]:
    """Work in the driver while a micro-batch runs: failures reach Spark in few words.

    When a query is stopped, Spark looks in the text of what its function raised for an interruption, with a pattern
    that overflows the stack on a text as long as a Java trace.
    """
    try:
        yield
    except MillstreamError as error:
        raise error.with_traceback(None) from None
    except Exception as error:
        if not _from_spark(error):
            raise
        if _STOPPED.search(str(error)):
            raise Interrupted(_INTERRUPTION) from None
        raise translated(error) from None


class Interrupted(Exception):
    """A micro-batch was given up because its query is stopped."""


_STOPPED = re.compile(r"InterruptedException|ClosedByInterrupt|InterruptedIO|cancelled")
_INTERRUPTION = "py4j.protocol.Py4JJavaError: An error occurred while calling it: java.lang.InterruptedException"
"""What Spark recognises as the end of a query that is stopped."""


def _from_spark(error: BaseException) -> bool:
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")


def _parts(text: str) -> tuple[str, str | None, str | None]:
    """Message, reason and hint of an error that was printed in a worker."""
    lines = [line.strip() for line in text.strip().splitlines()]
    detail = next((line.removeprefix("why: ") for line in lines if line.startswith("why: ")), None)
    hint = next((line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")), None)
    return lines[0], detail, hint


def _plain(message: str) -> str:
    message = message.rstrip(".")
    return message[:1].lower() + message[1:]


def _last_python_line(text: str) -> str | None:
    """The error that a Python worker died of, if that was it."""
    found = re.findall(r"^(\w[\w.]*(?:Error|Exception|Interrupt)): (.*)$", text, re.MULTILINE)
    found = [(kind, said) for kind, said in found if not kind.startswith(("org.", "java.", "pyspark.", "py4j."))]
    return f"{found[-1][0]}: {found[-1][1]}" if found else None
