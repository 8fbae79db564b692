-- Rows from a TCP port, one JSON object per line, until the feeder disconnects.
--
--   millstream run examples/ports/pipeline.sql --engine embedded &
--   python examples/ports/feed.py
--
-- The port is 4445 unless --var port=… says otherwise.

CREATE STREAM bids (item INT, bidder VARCHAR, price DOUBLE, bid_time TIMESTAMP)
    ORDER BY bid_time SLACK 2 SECONDS
    WITH (connector = 'port', port = ${port:-4445}, format = 'json', until = 'disconnect');

CREATE SINK high_bids WITH (connector = 'file', path = '${out:-out/ports}/high_bids', format = 'jsonl', overwrite = true);

-- each bid with the highest price of its item in the last minute
CREATE STREAM rated AS
    SELECT item, bidder, price, bid_time,
           max(price) OVER (PARTITION BY item RANGE 1 MINUTE PRECEDING) AS highest
    FROM bids;

INSERT INTO high_bids SELECT item, bidder, price, bid_time FROM rated WHERE price >= highest;

SELECT item, bidder, price, highest FROM rated;
