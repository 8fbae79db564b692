-- q0, pass through: the cost of reading and emitting rows.
SELECT auction, bidder, price, date_time, url FROM bid;
