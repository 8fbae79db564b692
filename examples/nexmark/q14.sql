-- q14, calculation: a conversion, a condition, a CASE and a function.
CREATE FUNCTION count_char(s VARCHAR, c VARCHAR) RETURNS BIGINT AS length(s) - length(replace(s, c, ''));
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN hour(date_time) >= 8 AND hour(date_time) <= 18 THEN 'dayTime'
            WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bid_time_type,
       date_time, count_char(url, 'c') AS c_counts
FROM bid
WHERE 0.908 * price > 1000 AND 0.908 * price < 5000;
