-- q1, currency conversion: prices from dollars to euros.
SELECT auction, bidder, 0.908 * price AS price, date_time, url FROM bid;
