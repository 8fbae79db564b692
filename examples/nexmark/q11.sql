-- q11, user sessions: how many bids someone makes without a pause of ten seconds.
SELECT bidder, count(*) AS bids, window_start, window_end
FROM SESSION(bid PARTITION BY bidder, date_time, INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end;
