"""What the Java process writes to its standard error: banners kept back, everything else passed on."""

from __future__ import annotations

import os
import sys
from collections import deque
from threading import Event, Thread

NOISE = (
    "Starting Streaming TransformWithStateInPandas Python worker",
    "Streaming TransformWithStateInPandas Python worker",
    "Starting Streaming TransformWithStateInPySpark Python worker",
    "Streaming TransformWithStateInPySpark Python worker",
)
"""Lines that Spark's own Python workers print at every micro-batch."""


class StartupOutput:
    """A pipe for the Java process: until `started` it is kept, for the message if the start fails."""

    def __init__(self) -> None:
        self._outlet, self.inlet = os.pipe()
        self._said: deque[str] = deque(maxlen=20)
        self._running = Event()
        Thread(target=self._pass_on, name="spark-stderr", daemon=True).start()

    def started(self) -> None:
        """From now on lines go to our standard error."""
        self._running.set()
        os.close(self.inlet)

    def give_up(self) -> str:
        """The last lines that were kept back."""
        os.close(self.inlet)
        return "\n".join(self._said)

    def _pass_on(self) -> None:
        skipped = False
        with os.fdopen(self._outlet, errors="replace") as lines:
            for line in lines:
                if not self._running.is_set():
                    self._said.append(line.rstrip())
                    continue
                # each noisy line is followed by an empty one
                noisy = line.startswith(NOISE) or (skipped and not line.strip())
                if not noisy and sys.stderr is not None:
                    sys.stderr.write(line)
                skipped = line.startswith(NOISE)
