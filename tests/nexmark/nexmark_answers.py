"""What DuckDB is asked for each NEXMark query: once for events, at every instant `$t` for relations."""

from __future__ import annotations

_RANKS = """
    count(*) FILTER (WHERE price < 100), count(*) FILTER (WHERE price >= 100 AND price < 1000),
    count(*) FILTER (WHERE price >= 1000)"""
_DISTINCT = ", ".join(
    f"""count(DISTINCT {name}), count(DISTINCT {name}) FILTER (WHERE price < 100),
    count(DISTINCT {name}) FILTER (WHERE price >= 100 AND price < 1000),
    count(DISTINCT {name}) FILTER (WHERE price >= 1000)"""
    for name in ("bidder", "auction")
)
_DAY = "strftime(date_trunc('day', date_time), '%Y-%m-%d')"
_FINAL = """
    SELECT A.seller, A.id, max(B.price) AS final, any_value(C.date_time) AS ended
    FROM closed AS C JOIN auction AS A USING (id) JOIN bid AS B ON A.id = B.auction
    WHERE A.date_time > C.date_time - INTERVAL 1 MINUTE AND B.date_time BETWEEN A.date_time AND A.expires
      AND B.date_time > C.date_time - INTERVAL 1 MINUTE AND B.date_time <= C.date_time
    GROUP BY A.id, A.seller"""

EVENTS = {
    "q0": "SELECT auction, bidder, price, date_time, url FROM bid",
    "q1": "SELECT auction, bidder, 0.908::DOUBLE * price, date_time, url FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT P.name, P.city, P.state, A.id FROM auction AS A JOIN person AS P ON A.seller = P.id
             WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')""",
    "q5": """WITH counts AS (
                 SELECT auction, count(*) AS num, start FROM (
                     SELECT auction, unnest(range(time_bucket(INTERVAL 2 SECOND, date_time) - INTERVAL 8 SECOND,
                                                  date_time + INTERVAL 1 MICROSECOND, INTERVAL 2 SECOND)) AS start
                     FROM bid) GROUP BY auction, start)
             SELECT auction, num, start, start + INTERVAL 10 SECOND FROM counts
             QUALIFY num = max(num) OVER (PARTITION BY start)""",
    "q6": f"""SELECT seller, id, avg(final) OVER (PARTITION BY seller ORDER BY ended ROWS 9 PRECEDING)
              FROM ({_FINAL})""",
    "q7": """SELECT B.auction, B.price, B.bidder, B.date_time FROM bid AS B JOIN (
                 SELECT max(price) AS highest, time_bucket(INTERVAL 10 SECOND, date_time) + INTERVAL 10 SECOND AS until
                 FROM bid GROUP BY until) AS M
             ON B.price = M.highest AND B.date_time BETWEEN M.until - INTERVAL 10 SECOND AND M.until""",
    "q8": """SELECT DISTINCT P.id, P.name, time_bucket(INTERVAL 10 SECOND, P.date_time) AS start
             FROM person AS P JOIN auction AS A ON P.id = A.seller
             AND time_bucket(INTERVAL 10 SECOND, A.date_time) = time_bucket(INTERVAL 10 SECOND, P.date_time)""",
    "q9": """SELECT A.id, A.item_name, A.seller, A.category, B.bidder, B.price, B.date_time
             FROM closed AS C JOIN auction AS A USING (id) JOIN bid AS B ON A.id = B.auction
             QUALIFY B.price = max(B.price) OVER (PARTITION BY A.id)""",
    "q10": """SELECT auction, bidder, price, date_time, strftime(date_time, '%Y-%m-%d'), strftime(date_time, '%H:%M')
              FROM bid""",
    "q11": """SELECT bidder, count(*), min(date_time), max(date_time) + INTERVAL 10 SECOND FROM (
                  SELECT bidder, date_time, sum(begins) OVER (PARTITION BY bidder ORDER BY date_time) AS session FROM (
                      SELECT bidder, date_time, CASE WHEN date_time - lag(date_time) OVER (
                          PARTITION BY bidder ORDER BY date_time) < INTERVAL 10 SECOND THEN 0 ELSE 1 END AS begins
                      FROM bid))
              GROUP BY bidder, session""",
    "q13": "SELECT auction, bidder, price, date_time, 'value ' || (auction % 10000) FROM bid WHERE auction % 2 = 0",
    "q14": """SELECT auction, bidder, 0.908::DOUBLE * price AS euros,
                     CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
                          WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END,
                     date_time, length(regexp_replace(url, '[^c]', '', 'g'))
              FROM bid WHERE euros > 1000 AND euros < 5000""",
    "q15": f"SELECT {_DAY}, count(*), {_RANKS}, {_DISTINCT} FROM bid GROUP BY 1",
    "q16": f"""SELECT channel, {_DAY}, max(strftime(date_time, '%H:%M')), count(*), {_RANKS}, {_DISTINCT}
               FROM bid GROUP BY 1, 2""",
    "q17": f"""SELECT auction, {_DAY}, count(*), {_RANKS}, min(price), max(price), avg(price), sum(price)
               FROM bid GROUP BY 1, 2""",
    "q20": """SELECT B.*, A.item_name, A.description, A.initial_bid, A.reserve, A.expires, A.seller, A.category
              FROM bid AS B JOIN auction AS A ON B.auction = A.id WHERE A.category = 10""",
    "q21": """SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
                  WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE lower(channel) END FROM bid""",
    "q22": """SELECT auction, bidder, price, channel, 'auction.example', lower(channel), 'item' FROM bid""",
    "thesis/q1": "SELECT itemID, bid_price * 0.9::DOUBLE, bidderID FROM Bid",
    "thesis/q2": "SELECT * FROM Bid WHERE itemID IN (1007, 1020, 2001, 2019, 1087)",
}

_CLOSING = """
    SELECT C.itemID, O.sellerID, max(P.price) AS price, any_value(C.timestamp) AS ended
    FROM {closed} AS C JOIN (
        SELECT itemID, bid_price AS price, timestamp FROM Bid
        UNION ALL SELECT itemID, start_price, timestamp FROM OpenAuction) AS P USING (itemID)
    JOIN OpenAuction AS O USING (itemID)
    WHERE P.timestamp <= C.timestamp AND P.timestamp > C.timestamp - INTERVAL 2 DAYS
      AND O.timestamp <= C.timestamp AND O.timestamp > C.timestamp - INTERVAL 2 DAYS
    GROUP BY C.itemID, O.sellerID"""
_NOW = "(SELECT * FROM ClosedAuction WHERE timestamp = $t)"
_HELD = "Bid WHERE timestamp > $t - {} AND timestamp <= $t"
_TUMBLED = """Bid WHERE timestamp >= time_bucket(INTERVAL 10 MINUTE, $t + INTERVAL 1 MICROSECOND) - INTERVAL 10 MINUTE
              AND timestamp < time_bucket(INTERVAL 10 MINUTE, $t + INTERVAL 1 MICROSECOND)"""

RELATIONS = {
    "q4": """SELECT category, avg(final) FROM (
                 SELECT A.id, A.category, max(B.price) AS final
                 FROM auction AS A JOIN bid AS B ON A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
                 WHERE A.date_time <= $t AND B.date_time <= $t GROUP BY A.id, A.category)
             GROUP BY category""",
    "q18": """SELECT auction, bidder, price, channel, url, date_time FROM bid WHERE date_time <= $t
              QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) = 1""",
    "thesis/q3": f"""SELECT O.* FROM OpenAuction AS O JOIN {_NOW} AS C USING (itemID)
                     WHERE O.timestamp > $t - INTERVAL 5 HOURS AND O.timestamp <= $t""",
    "thesis/q4": f"""SELECT itemID, bid_price FROM {_HELD.format("INTERVAL 10 MINUTE")}
                     QUALIFY bid_price = max(bid_price) OVER ()""",
    "thesis/q5": f"SELECT itemID, sellerID, price FROM ({_CLOSING.format(closed=_NOW)})",
    "thesis/q6": f"""SELECT itemID FROM {_HELD.format("INTERVAL 60 MINUTE")} GROUP BY itemID
                     QUALIFY count(*) = max(count(*)) OVER ()""",
    "thesis/q7": f"SELECT itemID, bid_price FROM {_TUMBLED} QUALIFY bid_price = max(bid_price) OVER ()",
    "thesis/q8": """SELECT DISTINCT P.id, P.name FROM PersonEvents AS P JOIN OpenAuction AS O ON P.id = O.sellerID
                    WHERE O.timestamp = $t AND P.timestamp > $t - INTERVAL 12 HOURS AND P.timestamp <= $t""",
    "thesis/average_by_seller": f"""SELECT sellerID, avg(price) FROM (
                     SELECT sellerID, price FROM ({_CLOSING.format(closed="ClosedAuction")}) WHERE ended <= $t
                     QUALIFY row_number() OVER (PARTITION BY sellerID ORDER BY ended DESC) <= 10)
                 GROUP BY sellerID""",
}
