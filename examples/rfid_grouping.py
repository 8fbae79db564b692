"""RFID: products that pass a reader within two seconds of each other are packed into the same case."""

import millstream as ms

db = ms.connect()
db.execute("""
    CREATE STREAM readings (reader INT, tagid VARCHAR, tagtime TIMESTAMP) ORDER BY tagtime;

    CREATE AGGREGATE packed(tag, seen) : (tagid, tagtime, casenumber INT) {
      TABLE last(ltime, lcase INT);
      INITIALIZE: {
        INSERT INTO last VALUES (seen, 1);
        INSERT INTO RETURN SELECT tag, seen, lcase FROM last;
      }
      ITERATE: {
        UPDATE last SET lcase = lcase + 1 WHERE seen - ltime > 2 SECONDS;
        UPDATE last SET ltime = seen;
        INSERT INTO RETURN SELECT tag, seen, lcase FROM last;
      }
    }
""")
cases = db.sql("SELECT reader, packed(tagid, tagtime) FROM readings GROUP BY reader")
db.push(
    "readings",
    [
        (1, "soap", "2026-01-05 09:00:00"),
        (1, "comb", "2026-01-05 09:00:01"),
        (2, "lamp", "2026-01-05 09:00:02"),
        (1, "milk", "2026-01-05 09:00:06"),
        (2, "bulb", "2026-01-05 09:00:09"),
    ],
)
for row in cases.fetch().to_pylist():
    print(f"reader {row['reader']}, case {row['casenumber']}: {row['tagid']}")
db.close()
