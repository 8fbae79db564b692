-- q4, average price for a category: of the highest bids so far on all its auctions, at every instant.
SELECT Q.category, avg(Q.final) AS average
FROM (
    SELECT max(B.price) AS final, A.category
    FROM auction [RANGE UNBOUNDED] AS A, bid [RANGE UNBOUNDED] AS B
    WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
    GROUP BY A.id, A.category
) AS Q
GROUP BY Q.category;
