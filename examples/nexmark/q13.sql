-- q13, bounded side input: bids joined with a table.
CREATE TABLE side_input AS SELECT key, 'value ' || key AS value FROM (SELECT unnest(range(0, 10000, 2)) AS key) AS even;
SELECT B.auction, B.bidder, B.price, B.date_time, S.value
FROM bid AS B JOIN side_input AS S ON mod(B.auction, 10000) = S.key;
