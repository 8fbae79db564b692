"""A PySpark program over a topic that Spark's own Kafka source reads, static and streaming; it prints rows as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from millstream.hosts.spark.session import get_session
from millstream.spark import Millstream

QUERY = "SELECT symbol, price, sum(price) OVER (PARTITION BY symbol RANGE 10 SECONDS PRECEDING) AS total FROM quotes"


def main(jars: str, brokers: str, topic: str, folder: str) -> None:
    spark: Any = get_session("local[2]", {"spark.jars": jars})
    options = {"kafka.bootstrap.servers": brokers, "subscribe": topic, "startingOffsets": "earliest"}

    def parsed(df: Any) -> Any:
        fields = "symbol STRING, price DOUBLE, ts TIMESTAMP_NTZ"
        return df.selectExpr(f"from_json(CAST(value AS STRING), '{fields}') AS row").select("row.*")

    m = Millstream(spark)
    m.register("quotes", parsed(spark.read.format("kafka").options(**options).load()), time="ts")
    static = [list(row) for row in m.sql(QUERY).collect()]

    live = spark.readStream.format("kafka").options(**options).option("maxOffsetsPerTrigger", 8).load()
    m = Millstream(spark)
    m.register("quotes", parsed(live), time="ts", slack="20 seconds")
    writer = m.sql(QUERY).writeStream.format("parquet").option("path", f"{folder}/out")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    streamed = [list(row) for row in spark.read.parquet(f"{folder}/out").collect()]
    print(json.dumps({"static": static, "streamed": streamed, "rounds": len(query.recentProgress)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
