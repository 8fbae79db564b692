-- q9, winning bids: the highest bids on an auction when it closes (all of them, if several are equal).
CREATE STREAM final_price AS ISTREAM (
    SELECT A.id, max(B.price) AS final
    FROM closed [NOW] AS C, auction [RANGE 1 MINUTE] AS A, bid [RANGE 1 MINUTE] AS B
    WHERE C.id = A.id AND A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
    GROUP BY A.id
);
ISTREAM (
    SELECT A.id, A.item_name, A.seller, A.category, B.bidder, B.price, B.date_time
    FROM final_price [NOW] AS F, auction [RANGE 1 MINUTE] AS A, bid [RANGE 1 MINUTE] AS B
    WHERE F.id = A.id AND F.id = B.auction AND F.final = B.price
);
