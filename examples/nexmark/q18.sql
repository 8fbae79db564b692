-- q18, last bid: the latest of each bidder on each auction, at every instant. A row is valid until the next replaces it.
SELECT auction, bidder, price, channel, url, date_time FROM bid WINDOW(PARTITION BY bidder, auction ROWS 1);
