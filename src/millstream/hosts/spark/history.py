"""The past of streams on Spark, and what cannot be changed there while it runs.

Rows that were pushed stay on the driver until the end, so a query that starts with history is one that sees them all.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millstream.catalog import StreamDef
from millstream.errors import UnsupportedError
from millstream.hosts.contract import Coverage, ReadyQuery
from millstream.hosts.spark.declared import DeclaredInputs, pushed_to
from millstream.hosts.spark.runs import StartedQuery
from millstream.physical import nodes as physical


class SparkHistory(DeclaredInputs):
    """The part of the Spark host that knows the past of its streams."""

    _queries: dict[str, StartedQuery]

    def begins(self, program: ReadyQuery) -> int:
        """From which arrival on a query that starts now reads pushed rows."""
        if program.history is None:
            return self._arrivals
        if program.history.since is not None:
            raise UnsupportedError(
                "SINCE is not supported on Spark", hint="use WITH HISTORY, and a condition on the time in WHERE"
            )
        kept = [self._find(name).stream.keep is not None for name in physical.streams_of(program.plan)]
        if len(set(kept)) > 1:
            raise UnsupportedError(
                "some streams of this query keep their history, others do not",
                hint="declare all of them with KEEP, or none",
            )
        return 0 if kept and kept[0] else self._arrivals

    def history(self, stream: str) -> Any:
        """The rows that were pushed to a stream, in order of arrival."""
        pushed = pushed_to(self._find(stream))
        if pushed is None:
            raise UnsupportedError(
                f"the history of {stream} is in its source",
                detail="on Spark, KEEP is for streams that rows are pushed to",
                hint="read the source's files or topic with Spark",
            )
        batches = [rows for _, rows, _ in pushed.chunks]
        return pa.Table.from_batches(batches, schema=self._find(stream).stream.schema.arrow)

    def keep(self, stream: StreamDef) -> None:
        raise _only_in_process(
            "ALTER STREAM", "declare the stream with KEEP before rows come: CREATE OR REPLACE STREAM … KEEP …"
        )

    def prepare(self, program: ReadyQuery) -> None:
        """Nothing runs yet that could go on meanwhile."""

    def alter(self, program: ReadyQuery) -> None:
        raise _only_in_process(
            "ALTER QUERY", "stop the job, give the query anew under its name, and start it with the same checkpoint"
        )

    def explain_alteration(self, program: ReadyQuery) -> list[str]:
        raise _only_in_process("ALTER QUERY", "start the changed query with the same checkpoint")

    def pause(self, name: str) -> None:
        raise _only_in_process("PAUSE", "stop the job; when it is started again, it continues from its checkpoint")

    def go_on(self, name: str) -> None:
        raise _only_in_process("RESUME", "start the job again with its checkpoint")

    def state(self, name: str) -> str:
        query = self._queries[name.lower()]
        return "failed" if query.error is not None else "ended" if query.ended else "running"

    def coverage(self, name: str) -> Coverage:
        """A query that sees pushed rows from the first one on is complete; of others it is not known."""
        return Coverage(None, None, self._queries[name.lower()].since == 0)

    def sources_of_history(self, program: ReadyQuery) -> list[str]:
        return [
            f"{self._find(name).stream.name}: "
            + ("the rows that were pushed" if self._find(name).stream.keep is not None else "nothing is kept")
            for name in physical.streams_of(program.plan)
        ]


def _only_in_process(what: str, hint: str) -> UnsupportedError:
    return UnsupportedError(f"{what} works in-process only", hint=hint)
