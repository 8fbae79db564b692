-- q15, bidding statistics of a day, emitted when the day ends.
SELECT strftime(window_start, '%Y-%m-%d') AS day,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 100) AS rank1_bids,
       count(*) FILTER (WHERE price >= 100 AND price < 1000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 100) AS rank1_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 100 AND price < 1000) AS rank2_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 1000) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (WHERE price < 100) AS rank1_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 100 AND price < 1000) AS rank2_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 1000) AS rank3_auctions
FROM TUMBLE(bid, date_time, INTERVAL '1' DAY)
GROUP BY window_start, window_end;
