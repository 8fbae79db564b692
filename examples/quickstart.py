"""A continuous query in this process: each quote with the average price of its symbol over the last ten seconds."""

import millstream as ms

db = ms.connect()
db.execute("CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts")
query = db.sql("""
    SELECT symbol, price, avg(price) OVER (PARTITION BY symbol RANGE 10 SECONDS PRECEDING) AS average, ts
    FROM quotes
""")
db.push(
    "quotes",
    [
        ("MILL", 10.0, "2026-01-05 09:00:00"),
        ("MILL", 14.0, "2026-01-05 09:00:04"),
        {"symbol": "WEIR", "price": 7.5, "ts": "2026-01-05 09:00:05"},
        ("MILL", 11.0, "2026-01-05 09:00:12"),
    ],
)
print(query.fetch().to_pandas())  # the last row waits: its instant is not over yet
db.finish()
print(query.fetch().to_pandas())
