-- q6, average selling price by seller: of the last ten auctions that closed, whenever one closes. The suite's text needs
-- retractions; here `closed` says when a price is final.
CREATE STREAM final_price AS ISTREAM (
    SELECT A.seller, A.id, max(B.price) AS final
    FROM closed [NOW] AS C, auction [RANGE 1 MINUTE] AS A, bid [RANGE 1 MINUTE] AS B
    WHERE C.id = A.id AND A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
    GROUP BY A.id, A.seller
);
SELECT seller, id, avg(final) OVER (PARTITION BY seller ROWS 9 PRECEDING) AS average FROM final_price;
