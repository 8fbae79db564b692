"""RFID at a door: an alarm when an item leaves and no authorised person passes within five seconds before or after it.

The alarm is raised by time alone: the window lets a reading go after five seconds, whether or not others come.
"""

from datetime import datetime

import millstream as ms

db = ms.connect()
db.execute("""
    CREATE STREAM tag_readings (tagid VARCHAR, tagtype VARCHAR, tagtime TIMESTAMP) ORDER BY tagtime;

    CREATE WINDOW AGGREGATE item_alarm(tagid, tagtype, tagtime) : VARCHAR {
      TABLE inwindow(tid, ttype, ttime);
      INITIALIZE: ITERATE: {
        -- a person clears the items that wait, and an item that follows a person does not wait at all
        DELETE FROM inwindow WHERE tagtype = 'ap' AND ttype = 'item';
        DELETE FROM inwindow WHERE tagtype = 'item' AND ttype = 'item'
          AND EXISTS (SELECT tid FROM inwindow WHERE ttype = 'ap');
      }
      EXPIRE: {
        INSERT INTO RETURN VALUES ('larceny alarm')
          WHERE tagtype = 'item' AND NOT EXISTS (SELECT tid FROM inwindow WHERE ttype = 'ap');
      }
    };

    CREATE STREAM larceny AS
      SELECT tagid, tagtime, item_alarm(tagid, tagtype, tagtime)
        OVER (RANGE 5 SECONDS PRECEDING ACTIVE EXPIRATION) AS alarm
      FROM tag_readings;
""")
alarms = db.sql("SELECT * FROM larceny")
db.push(
    "tag_readings",
    [
        ("television", "item", "2026-01-05 09:00:00"),
        ("Ann", "ap", "2026-01-05 09:00:03"),
        ("camera", "item", "2026-01-05 09:00:20"),
    ],
)
print("so far:", alarms.fetch().num_rows, "alarms")
db.advance("tag_readings", datetime(2026, 1, 5, 9, 0, 26))
for row in alarms.fetch().to_pylist():
    print(f"{row['alarm']}: {row['tagid']}, seen at {row['tagtime']:%H:%M:%S}")
db.close()
