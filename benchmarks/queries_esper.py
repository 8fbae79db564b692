"""The same filters and patterns as standing statements in Esper, on one thread each: events/s by processor time.

    python benchmarks/queries_esper.py [--counts 1,10,100,1000,10000] [--events 200000]

Esper is fetched by Maven once, and a small program of ours is compiled against it. Both get the same constants and the
same quotes, and must find as many rows.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from queries import BATCH, batches, constants, session

VERSION = "8.9.0"
HERE = Path(__file__).parent
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>millstream</groupId><artifactId>esper</artifactId><version>1</version><packaging>pom</packaging><dependencies>
<dependency><groupId>com.espertech</groupId><artifactId>esper-runtime</artifactId><version>{0}</version></dependency>
<dependency><groupId>com.espertech</groupId><artifactId>esper-compiler</artifactId><version>{0}</version></dependency>
</dependencies></project>"""

SHAPES = {
    "filter": (
        "SELECT symbol, price FROM quotes WHERE symbol = $symbol AND price > $low",
        "select symbol, price from Quotes(symbol = ?:symbol:string, price > ?:low:double)",
    ),
    "pattern": (
        "SELECT p, price FROM (SELECT symbol AS s, price AS p FROM FILTER{symbol = $symbol AND price > $low}(quotes)) "
        "NEXT{$2.symbol = $1.s} quotes",
        "select a.price as p, b.price as price from pattern [every "
        "a=Quotes(symbol = ?:symbol:string, price > ?:low:double) -> b=Quotes(symbol = ?:symbol:string)]",
    ),
}


def classes() -> str:
    """The path of classes: Esper's, and our program's."""
    place = Path.home() / ".cache" / "millstream" / f"esper-{VERSION}"
    if not (place / "EsperQueries.class").exists():
        if shutil.which("mvn") is None or shutil.which("javac") is None:
            raise SystemExit("Esper needs mvn and javac")
        place.mkdir(parents=True, exist_ok=True)
        (place / "pom.xml").write_text(_POM.format(VERSION))
        fetch = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        subprocess.run(fetch, cwd=place, check=True)
        source = HERE / "esper" / "EsperQueries.java"
        subprocess.run(["javac", "-cp", "jars/*", "-d", ".", str(source)], cwd=place, check=True)
    return f"{place}:{place}/jars/*"


def by_esper(text: str, rows: pa.Table, data: list[pa.Table], warm: int) -> tuple[float, int]:
    """Events/s behind the first so many, and how many rows were found."""
    with tempfile.TemporaryDirectory() as scratch:
        wanted, events = Path(scratch, "constants"), Path(scratch, "events")
        wanted.write_text("".join(f"{row['symbol']},{row['low']}\n" for row in rows.to_pylist()))
        quotes = pa.concat_tables(data).to_pydict()
        pairs = zip(quotes["symbol"], quotes["price"], strict=True)
        events.write_text("".join(f"{symbol},{price}\n" for symbol, price in pairs))
        command = ["java", "-Xmx4g", "-cp", classes(), "EsperQueries", text, str(wanted), str(events), str(warm)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(told[0]), int(told[1])


def here(text: str, rows: pa.Table, data: list[pa.Table], warm: int) -> tuple[float, int]:
    db: Any = session()
    many = db.sql_many(text, rows, key="id")
    found, begun = 0, 0.0
    for place, batch in enumerate(data):
        if place * BATCH == warm:
            found, begun = 0, time.process_time()
        db.push("quotes", batch)
        found += many.fetch().num_rows
    spent = time.process_time() - begun
    db.close()
    return (len(data) * BATCH - warm) / spent, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="1,10,100,1000,10000")
    parser.add_argument("--events", type=int, default=200_000)
    given = parser.parse_args()
    for shape, (own, theirs) in SHAPES.items():
        print(f"{shape}: events/s by statements (wanted: 5 times Esper's at 1,000 and 10,000)")
        for count in map(int, given.counts.split(",")):
            draw = np.random.default_rng(count)
            rows, data = constants(count, draw), batches(count, given.events, draw)
            warm = len(data) // 2 * BATCH
            rate, found = here(own, rows, data, warm)
            other, as_many = by_esper(theirs, rows, data, warm)
            # the last events of a symbol are known here once time has passed them
            assert abs(found - as_many) <= count + 10, (found, as_many)
            print(f"{count:9,} {rate:12,.0f}  Esper {other:12,.0f}  {rate / other:7.1f}x", flush=True)


if __name__ == "__main__":
    main()
