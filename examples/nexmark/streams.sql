-- The streams of the suite, generated: of 50 events one is a new person, three are new auctions, 46 are bids. An auction
-- is open for about 1,700 events; `closed` has a row when it ends.
--
--   --var rate=100      events per second of event time
--   --var bids=4600 --var auctions=300 --var persons=100 --var closings=200    fewer rows

CREATE STREAM person (
    id BIGINT, name VARCHAR, email VARCHAR, credit_card VARCHAR, city VARCHAR, state VARCHAR, date_time TIMESTAMP
) ORDER BY date_time WITH (connector = 'nexmark', table = 'person', rows = ${persons:-1000}, rate = ${rate:-1000});

CREATE STREAM auction (
    id BIGINT, item_name VARCHAR, description VARCHAR, initial_bid DOUBLE, reserve DOUBLE, date_time TIMESTAMP,
    expires TIMESTAMP, seller BIGINT, category BIGINT
) ORDER BY date_time WITH (connector = 'nexmark', table = 'auction', rows = ${auctions:-3000}, rate = ${rate:-1000});

CREATE STREAM bid (
    auction BIGINT, bidder BIGINT, price DOUBLE, channel VARCHAR, url VARCHAR, date_time TIMESTAMP
) ORDER BY date_time WITH (connector = 'nexmark', table = 'bid', rows = ${bids:-46000}, rate = ${rate:-1000});

CREATE STREAM closed (id BIGINT, date_time TIMESTAMP)
    ORDER BY date_time WITH (connector = 'nexmark', table = 'closed', rows = ${closings:-2900}, rate = ${rate:-1000});
