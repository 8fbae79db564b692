"""Make the checkpoints of this version's formats anew: `python tests/compat/make_checkpoints.py`.

Run it once when a format gets a new number. Folders of earlier formats stay as they are: they must open for ever, or
until a release says that they no longer do.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from compat_cases import CURRENT, HERE, make_embedded, pack, put, run_on_spark


def main() -> None:
    from millstream.hosts.spark.session import get_session

    home = HERE / CURRENT
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        make_embedded(Path(scratch) / "embedded", Path(scratch) / "session")
        pack(Path(scratch) / "embedded", home / "embedded.zip", Path(scratch) / "in")
        spark = get_session("local[1]", {"spark.sql.shuffle.partitions": "1"})
        put(Path(scratch) / "in", "1", 1, 20)
        delivered = run_on_spark(spark, Path(scratch) / "in", Path(scratch) / "checkpoint")
        spark.stop()
        pack(Path(scratch) / "checkpoint", home / "spark.zip", Path(scratch) / "in")
    (home / "delivered.json").write_text(json.dumps(len(delivered)))
    for path in sorted(home.iterdir()):
        print(f"{path.relative_to(HERE.parent.parent)}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
