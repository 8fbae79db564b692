"""Work for Spark's Python workers in a file: pickled as Spark pickles functions, and sealed with a key of the run.

The key travels with the functions that Spark sends to its workers, and lies in no file. A worker loads nothing that
was not sealed with it, so whoever can write to a checkpoint cannot make workers run code.
"""

from __future__ import annotations

import hmac
import pickle
import secrets
from typing import Any

from millstream.errors import StateError

_SIZE = 32


def new_key() -> bytes:
    return secrets.token_bytes(_SIZE)


def sealed(work: Any, key: bytes) -> bytes:
    from pyspark import cloudpickle

    content: bytes = cloudpickle.dumps(work)
    return hmac.digest(key, content, "sha256") + content


def opened(data: bytes, key: bytes) -> Any:
    seal, content = data[:_SIZE], data[_SIZE:]
    if not hmac.compare_digest(seal, hmac.digest(key, content, "sha256")):
        raise StateError(
            "a file of the checkpoint was changed by somebody else", hint="stop the job and start it again"
        )
    return pickle.loads(content)
