-- Q1, currency conversion.
CREATE FUNCTION DolToEuro(x REAL) RETURNS REAL AS x * 0.9;

SELECT itemID, DolToEuro(bid_price), bidderID
FROM Bid;
