"""The same kind of query on Spark: a DataFrame in, a DataFrame out."""

import datetime as dt

from millstream.hosts.spark.session import get_session
from millstream.spark import Millstream

spark = get_session()
start = dt.datetime(2026, 1, 5, 9)
rows = [(f"S{i % 3}", float(i % 7), start + dt.timedelta(seconds=i)) for i in range(1000)]
quotes = spark.createDataFrame(rows, "symbol STRING, price DOUBLE, ts TIMESTAMP_NTZ")

millstream = Millstream(spark)
millstream.register("quotes", quotes, time="ts")
averages = millstream.sql("""
    SELECT symbol, ts, avg(price) OVER (PARTITION BY symbol RANGE 10 SECONDS PRECEDING) AS average
    FROM quotes
""")
averages.groupBy("symbol").agg({"average": "max", "*": "count"}).orderBy("symbol").show()
spark.stop()
