-- q20, bids with their auction, of one category.
ISTREAM (
    SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.date_time,
           A.item_name, A.description, A.initial_bid, A.reserve, A.expires, A.seller, A.category
    FROM bid [RANGE UNBOUNDED] AS B INNER JOIN auction [RANGE UNBOUNDED] AS A ON B.auction = A.id
    WHERE A.category = 10
);
