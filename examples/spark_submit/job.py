"""A pipeline as a job of a cluster.

spark-submit --master 'local[2]' examples/spark_submit/job.py IN OUT CHECKPOINT

IN is a directory of Parquet files of quotes (symbol, price, ts); files that appear later are read too, until the job is
stopped. With `--once` as a last argument it reads what is there and ends; the next run resumes.
"""

import sys

from pyspark.sql import SparkSession

from millstream.spark import Millstream


def main(source: str, target: str, checkpoint: str, *options: str) -> None:
    # as many tasks as there are buckets; the default of Spark is 200
    spark = SparkSession.builder.appName("quotes").config("spark.sql.shuffle.partitions", "8").getOrCreate()
    m = Millstream(spark)
    m.execute(f"""
        CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts SLACK 5 SECONDS
            WITH (connector = 'file', path = '{source}', format = 'parquet', follow = true);
        CREATE SINK means WITH (connector = 'file', path = '{target}/means');
        CREATE SINK jumps WITH (connector = 'file', path = '{target}/jumps');
        INSERT INTO means
            SELECT symbol, ts, avg(price) OVER (PARTITION BY symbol RANGE 1 MINUTE PRECEDING) AS mean FROM quotes;
        INSERT INTO jumps
            SELECT symbol, ts, price, before FROM (
                SELECT symbol, ts, price, lag(price) OVER (PARTITION BY symbol) AS before FROM quotes
            ) AS q WHERE price > 1.1 * before;
    """)
    trigger = {"availableNow": True} if "--once" in options else {"processingTime": "10 seconds"}
    m.start(checkpoint=checkpoint, trigger=trigger, name="quotes").wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
