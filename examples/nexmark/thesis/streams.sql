-- The streams of the thesis, generated. At this rate an auction is open for about five hours, some for less.
--
--   --var bids=5520 --var auctions=360 --var closings=259 --var persons=120     other numbers of rows

CREATE STREAM OpenAuction (itemID INT, sellerID INT, start_price REAL, timestamp TIMESTAMP)
    ORDERED BY timestamp
    WITH (connector = 'nexmark', table = 'auction', rows = ${auctions:-720}, rate = ${rate:-0.093});

CREATE STREAM ClosedAuction (itemID INT, buyerID INT, timestamp TIMESTAMP)
    ORDERED BY timestamp
    WITH (connector = 'nexmark', table = 'closed', rows = ${closings:-620}, rate = ${rate:-0.093});

CREATE STREAM Bid (itemID INT, bid_price REAL, bidderID INT, timestamp TIMESTAMP)
    ORDERED BY timestamp
    WITH (connector = 'nexmark', table = 'bid', rows = ${bids:-11040}, rate = ${rate:-0.093});

CREATE STREAM PersonEvents (id INT, name VARCHAR, timestamp TIMESTAMP)
    ORDERED BY timestamp
    WITH (connector = 'nexmark', table = 'person', rows = ${persons:-240}, rate = ${rate:-0.093});
