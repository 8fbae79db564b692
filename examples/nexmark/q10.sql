-- q10, log to files, with columns for day and minute to partition them by.
CREATE SINK bid_log WITH (connector = 'file', path = '${out:-out/nexmark/bid_log}', overwrite = true);
INSERT INTO bid_log
SELECT auction, bidder, price, date_time, strftime(date_time, '%Y-%m-%d') AS day, strftime(date_time, '%H:%M') AS minute
FROM bid;
