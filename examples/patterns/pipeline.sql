-- A shop's clicks: who bought what they looked at, who left with something in the cart, and which advertisements worked.
--
--   millstream generate clicks --rows 100000 --rate 10 --seed 5 --out out/clicks/clicks.parquet
--   millstream run examples/patterns/pipeline.sql
--
-- It runs on local Spark, or in this process with --engine embedded; both emit the same rows.
-- Choose other directories with --var data=DIR and --var out=DIR.

CREATE STREAM Sessions (SessNo BIGINT, user_id BIGINT, ClickTime TIMESTAMP, PageNo BIGINT, PageType VARCHAR)
    ORDER BY ClickTime WITH (connector = 'file', path = '${data:-out/clicks}/clicks.parquet');

-- a description, the cart and the purchase, with any clicks in between, within a minute; visits that time out are
-- emitted too, with what they have so far
CREATE STREAM visits AS
    SELECT * FROM Sessions MATCH_RECOGNIZE (
        PARTITION BY SessNo ORDER BY ClickTime
        MEASURES SEEN.PageNo AS page, SEEN.ClickTime AS seen, CART.ClickTime AS carted, PAID.ClickTime AS paid,
                 count(*) AS clicks, TIMED_OUT() AS given_up
        ONE ROW PER MATCH
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (SEEN OTHER*? CART OTHER*? PAID) WITHIN 1 MINUTE WITH TIMEOUTS
        DEFINE SEEN AS PageType = 'd', CART AS PageType = 'c', PAID AS PageType = 'p');

CREATE SINK purchases WITH (connector = 'file', path = '${out:-out/clicks/results}/purchases', overwrite = true);
CREATE SINK abandoned WITH (connector = 'file', path = '${out:-out/clicks/results}/abandoned', overwrite = true);

INSERT INTO purchases SELECT SessNo, page, seen, carted, paid, clicks FROM visits WHERE NOT given_up;
INSERT INTO abandoned SELECT SessNo, page, seen, carted, clicks FROM visits WHERE given_up AND carted IS NOT NULL;

-- shown in the terminal: an advertisement, a description and a purchase, one right after the other
SELECT X.SessNo, X.PageNo AS advertisement, Y.PageNo AS description, Z.ClickTime AS bought
FROM Sessions PARTITION BY SessNo AS (X, Y, Z)
WHERE X.PageType = 'a' AND Y.PageType = 'd' AND Z.PageType = 'p';
