"""What the server tells its operator: lines of text, or of JSON for programs that collect logs."""

from __future__ import annotations

import json
import logging
import time
from typing import Literal

Form = Literal["text", "json"]


class JsonLines(logging.Formatter):
    """A record as an object on a line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        told = {"time": moment, "level": record.levelname.lower(), "from": record.name, "message": record.getMessage()}
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def begin(form: Form) -> None:
    """Write warnings and errors of the whole process to its standard error."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else plain)
    logging.getLogger().addHandler(handler)
