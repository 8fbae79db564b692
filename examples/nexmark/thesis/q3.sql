-- Q3, short auctions: closed within five hours of their opening.
SELECT OpenAuction.*
FROM OpenAuction O WINDOW(RANGE 5 HOURS),
      ClosedAuction C
WHERE O.itemID = C.itemID;
