-- q22, parts of the address.
SELECT auction, bidder, price, channel, split_part(url, '/', 3) AS dir1, split_part(url, '/', 4) AS dir2,
       split_part(url, '/', 5) AS dir3
FROM bid;
