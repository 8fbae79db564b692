-- q7, highest bid: the highest bids of every ten seconds.
SELECT B.auction, B.price, B.bidder, B.date_time
FROM bid AS B
JOIN (
    SELECT max(price) AS highest, window_end AS until
    FROM TUMBLE(bid, date_time, INTERVAL '10' SECOND)
    GROUP BY window_start, window_end
) AS M
ON B.price = M.highest AND B.date_time BETWEEN M.until - INTERVAL '10' SECOND AND M.until;
