-- q17, auction statistics of a day.
SELECT auction, strftime(window_start, '%Y-%m-%d') AS day,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 100) AS rank1_bids,
       count(*) FILTER (WHERE price >= 100 AND price < 1000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000) AS rank3_bids,
       min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM TUMBLE(bid, date_time, INTERVAL '1' DAY)
GROUP BY auction, window_start, window_end;
