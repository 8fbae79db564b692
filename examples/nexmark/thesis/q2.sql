-- Q2, selection.
SELECT Bid.*
FROM Bid
WHERE itemID = 1007 OR itemID = 1020
      OR itemID = 2001 OR itemID = 2019
      OR itemID = 1087;
