"""What Spark sees of a stage that keeps state: the names of its state, and work that is loaded when rows come.

At each start of a streaming query Spark begins a Python process on the driver for every such stage, only to learn
which state it keeps. Loading the kernel there would take longer than all else that this process does.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

Declared = tuple[str, tuple[str, ...]]
"""A call that declares a state variable: which kind, and its name and schemas."""


_TYPES = {"INT": IntegerType, "BIGINT": LongType, "STRING": StringType, "BINARY": BinaryType}


def _columns(schema: str) -> StructType:
    """The columns of a state variable. Given as text, Spark's Java side would be asked about them in every task."""
    named = (column.split() for column in schema.split(", "))
    return StructType([StructField(name, _TYPES[type_]()) for name, type_ in named])


class StageProcessor(StatefulProcessor):  # type: ignore[misc]
    """Stands for another processor, which it carries as bytes until there is something to do."""

    def __init__(self, processor: StatefulProcessor) -> None:
        self._bytes: bytes = cloudpickle.dumps(processor)
        notes = Declarations()
        processor.init(notes)
        self._declared = tuple(notes.calls)

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._variables = {
            call: getattr(handle, call[0])(call[1][0], *map(_columns, call[1][1:])) for call in self._declared
        }

    @cached_property
    def _processor(self) -> Any:
        processor = pickle.loads(self._bytes)
        processor.init(Declarations(self._variables, self._handle))
        return processor

    def handleInputRows(self, key: Any, rows: Iterable[Any], timerValues: Any) -> Iterator[Any]:
        return self._processor.handleInputRows(key, rows, timerValues)  # type: ignore[no-any-return]

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        return self._processor.handleExpiredTimer(key, timerValues, expiredTimerInfo)  # type: ignore[no-any-return]

    def close(self) -> None:
        if "_processor" in self.__dict__:
            self._processor.close()


class Declarations:
    """The handle that the other processor is given: it notes which state is declared, or has it ready."""

    def __init__(self, variables: dict[Declared, Any] | None = None, handle: Any = None) -> None:
        self.calls: list[Declared] = []
        self._variables, self._handle = variables or {}, handle

    def getValueState(self, *schemas: str) -> Any:
        return self._declare("getValueState", schemas)

    def getMapState(self, *schemas: str) -> Any:
        return self._declare("getMapState", schemas)

    def registerTimer(self, at: int) -> None:
        self._handle.registerTimer(at)

    def deleteTimer(self, at: int) -> None:
        self._handle.deleteTimer(at)

    def _declare(self, kind: str, schemas: tuple[str, ...]) -> Any:
        self.calls.append((kind, schemas))
        return self._variables.get((kind, schemas))
