-- The main job: auctions and bids from files, a derived stream, a join with a table, sliding aggregates per seller
-- and per item; results in the terminal and as Parquet. `make run` does these two:
--
--   millstream generate nexmark --rows 200000 --seed 42 --out out/auctions
--   millstream run examples/auctions/pipeline.sql
--
-- It runs on local Spark, or in this process with --engine embedded; both emit the same rows.
-- Choose other directories with --var data=DIR and --var out=DIR.

CREATE STREAM OpenAuction (
    id BIGINT, item_name VARCHAR, initial_bid DOUBLE, reserve DOUBLE, date_time TIMESTAMP, seller BIGINT, category BIGINT
) ORDER BY date_time WITH (connector = 'file', path = '${data:-out/auctions}/auction.parquet');

CREATE STREAM Bid (auction BIGINT, bidder BIGINT, price DOUBLE, channel VARCHAR, date_time TIMESTAMP)
    ORDER BY date_time WITH (connector = 'file', path = '${data:-out/auctions}/bid.parquet');

CREATE TABLE categories (id BIGINT, name VARCHAR, fee DOUBLE);
INSERT INTO categories VALUES
    (10, 'antiques', 0.05), (11, 'electronics', 0.02), (12, 'furniture', 0.03), (13, 'music', 0.04), (14, 'maps', 0.06);

-- a derived stream: its name stands for its query
CREATE STREAM expensiveItems AS
    SELECT id, item_name, initial_bid AS price, seller, category, date_time FROM OpenAuction WHERE initial_bid > 1000;

-- a stream joined with a table
CREATE STREAM listings AS
    SELECT e.id, e.item_name, c.name AS category, e.seller, e.price, e.price * c.fee AS fee, e.date_time
    FROM expensiveItems AS e JOIN categories AS c ON e.category = c.id;

CREATE SINK seller_activity WITH (connector = 'file', path = '${out:-out/auctions/results}/seller_activity', overwrite = true);
CREATE SINK item_prices WITH (connector = 'file', path = '${out:-out/auctions/results}/item_prices', overwrite = true);

-- every expensive listing with what its seller listed in the minute before it
INSERT INTO seller_activity
    SELECT seller, id, category, price, date_time,
           count(*)   OVER (PARTITION BY seller RANGE 1 MINUTE PRECEDING) AS listed,
           sum(price) OVER (PARTITION BY seller RANGE 1 MINUTE PRECEDING) AS worth,
           sum(fee)   OVER (PARTITION BY seller RANGE 1 MINUTE PRECEDING) AS fees
    FROM listings;

-- every bid with the last ten bids on the same item
INSERT INTO item_prices
    SELECT auction, bidder, price, date_time,
           avg(price) OVER (PARTITION BY auction ROWS 9 PRECEDING) AS average,
           max(price) OVER (PARTITION BY auction ROWS 9 PRECEDING) AS highest
    FROM Bid;

-- shown in the terminal: sellers with the most expensive item of the whole last minute
SELECT date_time, seller, item_name, category, price, highest
FROM (
    SELECT date_time, seller, item_name, category, price,
           max(price) OVER (RANGE 1 MINUTE PRECEDING) AS highest
    FROM listings
) AS recent
WHERE price = highest;
