-- q5, hot items: every two seconds, the auctions with the most bids in the ten seconds before.
WITH counts AS (
    SELECT auction, count(*) AS num, window_start, window_end
    FROM HOP(bid, date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND)
    GROUP BY auction, window_start, window_end
)
SELECT auction, num, window_start, window_end
FROM (
    -- the rows of a window are emitted at its end, all with the same time
    SELECT auction, num, window_start, window_end, max(num) OVER (RANGE CURRENT ROW) AS most FROM counts
) AS ranked
WHERE num = most;
