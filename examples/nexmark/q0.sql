-- q0, pass through: what reading and delivering costs.
SELECT auction, bidder, price, date_time, url FROM bid;
