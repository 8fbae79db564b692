-- Every statement here must survive text -> AST -> text -> AST unchanged.

-- Streams: the forms of the papers, as printed
CREATE STREAM OpenAuction (itemID int, sellerID char(10), price real, start_time timestamp)
    ORDER BY start_time; SOURCE 'port4445';
CREATE STREAM ClosedAuction (itemID int, buyerID char(10), price real, current_time timestamp)
    ORDER BY current_time SOURCE 'port4446';
CREATE STREAM Bid (itemID int, price real, bidderID char(10), bid_time timestamp) SOURCE 'port4447';
CREATE STREAM OpenAuction(itemID INT, sellerID INT, start_price REAL, timestamp TIMESTAMP)
    SOURCE establishConnection('port34100','converter') ORDERED BY timestamp;
STREAM Sessions(SessNo, ClickTime, PageNo int, PageType) ORDER BY ClickTime;
STREAM speed(stationId, speed, speedTime);
TABLE stations(stationId, location varchar);
CREATE STREAM expensiveItems AS SELECT itemID, sellerID, price, start_time FROM OpenAuction WHERE price > 1000;

-- Streams: clauses
CREATE STREAM s (x int, ts timestamp) ORDER BY ts SLACK 5 SECONDS;
CREATE STREAM s (x int, ts timestamp) SLACK INTERVAL '5' SECOND ORDER BY ts;
CREATE STREAM s (x int, ts timestamp) SLACK 1 MINUTE ORDER BY ts SOURCE 'port1' WITH (connector = 'file');
CREATE STREAM s (x int, ts timestamp) WITH (connector='file', path='/data/a.csv', "max.rows"=100, header=true, rate=-0.5,
    kafka.topic='bids', missing=null, every=10 seconds) ORDERED BY ts SLACK 0.5 SECONDS;
CREATE OR REPLACE STREAM s (x int) SOURCE f();
CREATE STREAM IF NOT EXISTS s (x int NOT NULL, y varchar DEFAULT 'none');
CREATE STREAM names (timestamp timestamp, time time, date date, price double, type int, name text, source int, slack int,
    current_time timestamp, next int, window int, slide int, stream int, "end" int, rows int, range int, "two words" int,
    "größe" int, größe2 int, first int, last int, query int, row int, value int, key int, user int, start int, interval int);
CREATE STREAM every_type (a boolean, b tinyint, c smallint, d int, e bigint, f real, g float, h double, i double precision,
    j decimal, k decimal(10, 2), l numeric(5), m char, n char(3), o varchar(20), p text, q string, r blob, s timestamp,
    t timestamp with time zone, u timestamptz, v date, w time, x interval, y integer, z character varying(7), aa binary,
    bb timestamp_ntz, cc timestamp(6), dd timestamp_ltz, ee mytype);
CREATE STREAM s ORDER BY ts AS SELECT x, ts FROM a UNION ALL SELECT x, ts FROM b;

-- Tables, views, functions, sinks
CREATE TABLE sellers (sellerID char(10), city varchar);
CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY, name varchar NOT NULL UNIQUE, x double DEFAULT 1.5 CHECK (x > 0));
CREATE TABLE t (a int, b int, PRIMARY KEY (a, b));
CREATE TABLE t (a int, b int) WITH (connector = 'parquet', path = 'x.parquet');
CREATE OR REPLACE TABLE t AS SELECT a, count(*) AS n FROM u GROUP BY a;
CREATE VIEW v AS SELECT a FROM t;
CREATE OR REPLACE VIEW IF NOT EXISTS "my view" (a, "b c") AS SELECT a, b FROM s [ROWS 5];
CREATE FUNCTION discount(price DOUBLE, rate DOUBLE) RETURNS DOUBLE AS price * (1 - rate);
CREATE OR REPLACE FUNCTION f(x int) RETURNS varchar RETURN CASE WHEN x > 0 THEN 'up' ELSE 'down' END;
CREATE FUNCTION one() AS 1;
CREATE SINK out WITH (connector='file', path='out', format='parquet');
CREATE SINK IF NOT EXISTS out WITH (connector='terminal') AS SELECT * FROM s;

-- Aggregates
CREATE AGGREGATE avg(Next Real) : Real {
    TABLE state(tsum Real, cnt Int);
    INITIALIZE: { INSERT INTO state VALUES (Next, 1); }
    ITERATE: { UPDATE state SET tsum = tsum + Next, cnt = cnt + 1; }
    TERMINATE: { INSERT INTO RETURN SELECT tsum / cnt FROM state; } };
CREATE OR REPLACE ALGEBRAIC WINDOW AGGREGATE IF NOT EXISTS "my max"(a, b double) : (c, d double) {
    TABLE inwindow(x, y double); TABLE memo(n int);
    INITIALIZE: { INSERT INTO memo (n) VALUES (1), (2) WHERE a > 0; }
    ITERATE: { DELETE FROM inwindow WHERE x ≤ a AND NOT EXISTS (SELECT n FROM memo AS m WHERE m.n ≠ x OR n ≥ 2); }
    EXPIRE: { INSERT INTO RETURN VALUES (oldest().x, oldest().y); DELETE FROM memo; }
    TERMINATE: { } };
AGGREGATE seen(id, at, minutes) RETURNS int {
    TABLE ids(i, t);
    INITIALIZE: { INSERT INTO ids VALUES (id, at); }
    ITERATE: { DELETE FROM ids WHERE at > t + minutes minutes OR i IN (SELECT max(i) FROM ids) OR at - t > 90 seconds;
               INSERT INTO RETURN SELECT count(i) FROM ids WHERE sqlcode = 0 } };

-- Changes
INSERT INTO sellers VALUES ('s1', 'Ulm'), ('s2', 'Köln');
INSERT INTO t (a, b) VALUES (1, NULL), (-2, 3.5);
INSERT INTO out SELECT a, b FROM s WHERE a > 0;
INSERT INTO out (a, "b c") SELECT a, b FROM s UNION ALL SELECT a, b FROM u;
INSERT INTO t (SELECT 1);
DELETE FROM t;
DELETE FROM t WHERE a IN (1, 2, 3);
UPDATE t SET a = a + 1;
UPDATE t SET a = 1, "b c" = DEFAULT_OF(b) WHERE a IS NULL;
DROP STREAM s;
DROP TABLE IF EXISTS t CASCADE;
DROP SINK out RESTRICT;
DROP FUNCTION f;
DROP AGGREGATE IF EXISTS a;
DROP QUERY dips;
DROP VIEW v;
DROP VIEW IF EXISTS "my view";

-- Control
EXPLAIN SELECT a FROM s;
EXPLAIN VERBOSE SELECT a FROM s;
EXPLAIN RULES CREATE STREAM x AS SELECT a FROM s;
EXPLAIN COST INSERT INTO out SELECT a FROM s;
SHOW STREAMS;
SHOW TABLES;
SHOW VIEWS;
SHOW QUERIES;
SHOW SINKS;
SHOW FUNCTIONS;
SHOW AGGREGATES;
DESCRIBE s;
DESC s;
STOP dips;
SET batch_rows = 1000;
SET spark.sql.shuffle.partitions TO 8;
SET mode = fast;
SET path = 'a/b';
SET verbose = true;
SET timeout = 5 minutes;
RESET batch_rows;

-- Windowed aggregates
SELECT itemID, sellerID, price, min(price) OVER (PARTITION BY sellerID RANGE UNBOUNDED PRECEDING) AS Price FROM OpenAuction;
SELECT sum(x) OVER (PARTITION BY k, l ORDER BY ts ROWS 49 PRECEDING) FROM s;
SELECT avg(x) OVER (RANGE 10 SECONDS PRECEDING) AS m FROM s;
SELECT avg(x) OVER (RANGE INTERVAL '10' SECOND PRECEDING) FROM s;
SELECT avg(x) OVER (RANGE INTERVAL 10 SECONDS PRECEDING) FROM s;
SELECT avg(x) OVER (RANGE INTERVAL '10 seconds' PRECEDING) FROM s;
SELECT avg(x) OVER (RANGE INTERVAL '1 day 2 hours' PRECEDING) FROM s;
SELECT avg(x) OVER (RANGE INTERVAL '01:30:00' PRECEDING) FROM s;
SELECT avg(x) OVER (RANGE 0.5 SECONDS PRECEDING) FROM s;
SELECT avg(x) OVER (RANGE 10 PRECEDING) FROM s;
SELECT max(x) OVER (RANGE BETWEEN 5 MINUTES PRECEDING AND CURRENT ROW) FROM s;
SELECT max(x) OVER (RANGE BETWEEN 5 MICROSECOND PRECEDING AND 1 MILLISECOND PRECEDING) FROM s;
SELECT max(x) OVER (RANGE BETWEEN 1 WEEK PRECEDING AND 2 HOURS FOLLOWING) FROM s;
SELECT max(x) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM s;
SELECT max(x) OVER (ROWS CURRENT ROW) FROM s;
SELECT count(*) OVER (), count(DISTINCT x) OVER (RANGE 1 DAY PRECEDING) FROM s;
SELECT sum(x) OVER w, avg(x) OVER (w ROWS 3 PRECEDING) FROM s WINDOW w AS (PARTITION BY k), v AS (ORDER BY ts DESC);
SELECT sum(x) OVER w FROM s WINDOW w AS (ROWS 3 PRECEDING);
SELECT first_value(x) IGNORE NULLS OVER (ROWS 3 PRECEDING), lag(x, 1, 0) OVER (ORDER BY ts) FROM s;
SELECT sum(x) FILTER (WHERE x > 0) OVER (ROWS 3 PRECEDING) FROM s;
SELECT decay_online_avg(price) OVER (PARTITION BY itemID ROWS 9 PRECEDING) FROM Bid;
SELECT sum(x) OVER (RANGE INTERVAL n SECONDS PRECEDING), sum(x) OVER (ROWS n + 1 PRECEDING) FROM s;
SELECT stddev(x) OVER w, variance(x) OVER w, last_value(x) OVER w, row_number() OVER w FROM s WINDOW w AS (ORDER BY ts);
SELECT itemID, sum(bid.price) OVER(PARTITION BY itemID ROWS 49 PRECEDING SLIDE 10) FROM Bid;
SELECT sum(x) OVER (RANGE 1 MINUTE PRECEDING SLIDE 10 SECONDS) FROM s;
SELECT item_alarm(tagid, tagtype, tagtime) OVER (RANGE 5 SECONDS PRECEDING ACTIVE EXPIRATION) FROM tag_readings;
SELECT rank() OVER (ORDER BY x), dense_rank() OVER w, lead(x) OVER w, nth_value(x, 2) OVER w FROM s WINDOW w AS (ORDER BY ts);
SELECT a FROM TUMBLE(s, ts, INTERVAL '5' MINUTE);
SELECT a FROM TUMBLE(s, ts, 5 MINUTES, INTERVAL '-1' MINUTE) AS w;
SELECT a FROM HOP(s, s.ts, 1 MINUTE, 5 MINUTES) w JOIN t ON w.a = t.a;
SELECT a FROM CUMULATE((SELECT a, ts FROM s WHERE a > 1), ts, 1 HOUR, 1 DAY, 5 MINUTES);
SELECT a FROM SESSION(s PARTITION BY (a, b), ts, 10 SECONDS) AS w, TUMBLE("my stream", "my time", 1 DAY) AS v;

-- Relations: windows in FROM, joins of them, and the way back to streams
SELECT a FROM s WINDOW(RANGE 5 HOURS);
SELECT a FROM s WINDOW(RANGE 5 HOURS SLIDE INTERVAL '1' HOUR) AS x, t [ROWS 10 SLIDE 5] y, u [Now], v [Range Unbounded];
SELECT a FROM s WINDOW(PARTITION BY a, s.b ROWS 10) GRANULARITY(1 MINUTE) x (a, b) WHERE a > 1;
SELECT a FROM s WINDOW(ROWS MIN 50, MAX 200) GRANULARITY(COARSEST 2 HOURS, FINEST 10 SECONDS);
SELECT a FROM s GRANULARITY(5) x, t WINDOW(RANGE 50);
SELECT a FROM (SELECT a FROM s) x [ROWS 1] JOIN (t WINDOW(NOW) CROSS JOIN u) ON x.a = t.a;
SELECT a FROM s [NOW] SEMI JOIN t [NOW] ON s.a = t.a ANTI JOIN u [NOW] USING (a) FULL OUTER JOIN v [NOW] ON TRUE;
SELECT sum(x) OVER w FROM s WINDOW(ROWS 9) WINDOW w AS (ROWS 3 PRECEDING);
SELECT ISTREAM(a, b AS c) FROM s [ROWS 5] WHERE a > 1;
SELECT DISTINCT DSTREAM(*) FROM s [ROWS 5];
SELECT RSTREAM a, b * 2 FROM s WINDOW(NOW) GROUP BY a;
ISTREAM(SELECT a FROM s [ROWS 5] EXCEPT ALL SELECT b FROM t [ROWS 5]);
DSTREAM(SELECT a FROM s UNION SELECT b FROM t) UNION ALL RSTREAM(SELECT a FROM s LIMIT 1);
CREATE STREAM n AS SELECT P.id FROM Istream(Person) P, DSTREAM(SELECT a FROM t INTERSECT ALL SELECT a FROM u) [ROWS 5] D;
SELECT DISTINCT (P.id, P.name) FROM SELECT P.id FROM p WINDOW(RANGE 12 HOURS) P, o WHERE P.id = o.id;
SELECT a FROM s [ROWS 5] WHERE x = SOME (SELECT y FROM t [ROWS 1]) OR NOT EXISTS (SELECT 1 FROM t [NOW]);
SELECT istream, dstream * 2 AS now, s.rstream, granularity AS view, semi FROM istream AS range JOIN semi AS anti ON TRUE;

-- Queries
SELECT 1;
SELECT * FROM s;
SELECT Bid.*, s.x FROM Bid, s;
SELECT DISTINCT a, b FROM s;
SELECT ALL a FROM s;
SELECT a x, b AS y, c AS "two words", d AS date FROM s AS t;
SELECT a, FROM s, WHERE a > 1;
SELECT a, b, FROM s, u, GROUP BY a, b,;
SELECT a FROM s,;
SELECT t.current_time, current_time FROM s t WHERE current_time > TIMESTAMP '2020-01-01 00:00:00';
SELECT timestamp, time, date, price, type, name, source, slack, next, window, slide, stream, rows, range, interval, value,
    start, "end", first, last FROM s;
SELECT s.timestamp, s.date, s.window, s.next FROM s WHERE timestamp > date AND window = 1;
SELECT window FROM s GROUP BY window ORDER BY window;
SELECT a FROM s UNION ALL SELECT b FROM t;
SELECT a FROM s UNION SELECT b FROM t UNION SELECT c FROM u;
SELECT a FROM s EXCEPT SELECT b FROM t;
SELECT a FROM s INTERSECT SELECT b FROM t;
SELECT a FROM s UNION ALL SELECT b FROM t INTERSECT SELECT c FROM u;
(SELECT a FROM s) UNION ALL (SELECT b FROM t LIMIT 1);
SELECT a FROM s JOIN t ON s.id = t.id;
SELECT a FROM s LEFT JOIN t ON s.id = t.id AND t.x > 0;
SELECT a FROM s LEFT OUTER JOIN t USING (id, k);
SELECT a FROM s INNER JOIN t USING (id) RIGHT JOIN u ON t.x = u.x FULL JOIN v ON v.x = u.x;
SELECT a FROM s CROSS JOIN t;
SELECT a FROM s ASOF JOIN t ON s.k = t.k AND s.ts >= t.ts;
SELECT a FROM s AS x ASOF LEFT JOIN t WINDOW(RANGE 5 SECONDS) AS y ON x.ts < y.ts JOIN u USING (k);
SELECT asof, s.asof FROM asof AS s JOIN t AS asof ON s.asof = asof.a;
SELECT a FROM s LEFT JOIN t FOR SYSTEM_TIME AS OF PROCTIME() AS v ON s.a = v.a;
SELECT a FROM s NATURAL JOIN t;
SELECT a FROM s, t AS u, (SELECT b FROM v) WHERE s.id = u.id;
SELECT a FROM (SELECT b AS a FROM s);
SELECT a FROM (SELECT b FROM s) AS x (a);
SELECT a FROM (s JOIN t ON s.id = t.id);
SELECT x FROM LATE(s);
SELECT e.x, l.x FROM ERRORS(s) AS e JOIN late("my stream") l ON e.x = l.x;
SELECT x FROM generate_things(10, 'a') AS g;
SELECT x FROM my_schema.t;
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v (x, y);
VALUES (1, 2), (3, 4);
WITH a AS (SELECT x FROM s), b AS (SELECT x FROM a) SELECT x FROM b;
WITH a (y) AS (SELECT x FROM s) SELECT y FROM a UNION ALL SELECT z FROM c;
SELECT sellerID, avg(price) AS p FROM OpenAuction GROUP BY sellerID HAVING count(*) > 3 ORDER BY p DESC, sellerID LIMIT 10 OFFSET 5;
SELECT a, b, count(*) FROM s GROUP BY ALL;
SELECT a FROM s ORDER BY a ASC NULLS FIRST, b DESC NULLS LAST;
SELECT a FROM s QUALIFY row_number() OVER (ORDER BY a) = 1;
SELECT a FROM s WHERE x >= ALL (SELECT y FROM t) OR x = ANY (SELECT y FROM t) OR EXISTS (SELECT 1 FROM t WHERE t.a = s.a);
SELECT a FROM s WHERE x NOT IN (SELECT y FROM t) AND (SELECT max(y) FROM t) > x;
SELECT * FROM s WHERE (a, b) IN ((1, 2), (3, 4));
SELECT * EXCLUDE (a) FROM s;

-- Expressions
SELECT a + b - c * d / e % f, a // b, -a, +a, - -a, a ** 2, (a + b) * c, a & b | c, a << 2, ~a FROM s;
SELECT a = b, a == b, a <> b, a != b, a < b, a <= b, a > b, a >= b, NOT a, NOT a = b AND c OR d FROM s;
SELECT a AND b OR c AND NOT d, (a OR b) AND c FROM s;
SELECT a || '-' || b, a BETWEEN 1 AND 2 + 3, a NOT BETWEEN b AND c FROM s;
SELECT a IN (1, 2), a NOT IN ('x'), a LIKE 'x%', a NOT LIKE 'x', a ILIKE '%y', a LIKE 'x!%' ESCAPE '!' FROM s;
SELECT a IS NULL, a IS NOT NULL, a IS TRUE, a IS NOT FALSE, a IS DISTINCT FROM b, a IS NOT DISTINCT FROM NULL FROM s;
SELECT a IS NULL = b, (a IS NULL) BETWEEN b AND c, a = b IS NULL, a < b = c FROM s;
SELECT CASE WHEN a > 1 THEN 'x' WHEN b THEN 'y' ELSE 'z' END, CASE a WHEN 1 THEN 2 END FROM s;
SELECT CASE WHEN a THEN CASE WHEN b THEN 1 END ELSE 2 END + 1 FROM s;
SELECT IF(a > b, 1, 2), IF(a, b), NULLIF(a, b), COALESCE(a, b, c), IFNULL(a, b), greatest(a, b, c), least(a, b) FROM s;
SELECT CAST(a AS int), CAST(a AS decimal(10, 2)), TRY_CAST(a AS timestamp), a::double, a::varchar(10)::int, (a + b)::bigint FROM s;
SELECT 'it''s', '', 'ünïcode ☃', 1, 1.5, .5, 1e10, 1.5E-3, 1_000, TRUE, false, NULL FROM s;
SELECT TIMESTAMP '2020-01-01 10:00:00', DATE '2020-01-01', TIME '10:00:00', INTERVAL '1' DAY, INTERVAL 2 HOURS FROM s;
SELECT ts + INTERVAL '5 minutes', ts - INTERVAL (a + 1) SECOND, ts - INTERVAL a DAYS, INTERVAL -3 SECONDS, INTERVAL '1' MONTH FROM s;
SELECT ts AT TIME ZONE 'UTC', CURRENT_DATE, CURRENT_TIMESTAMP FROM s;
SELECT abs(a), round(a, 2), floor(a), ceil(a), sqrt(a), power(a, 2), ln(a), log10(a), mod(a, b), sign(a), exp(a), pi() FROM s;
SELECT lower(a), UPPER(a), length(a), trim(a), trim(LEADING 'x' FROM a), ltrim(a), substring(a, 1, 2), substr(a, 2),
    substring(a FROM 1 FOR 2), position('x' IN a), replace(a, 'x', 'y'), concat(a, b, 'c'), concat_ws('-', a, b), left(a, 2),
    right(a, 2), split_part(a, ',', 1), reverse(a), starts_with(a, 'x'), contains(a, 'x'), strpos(a, 'x') FROM s;
SELECT regexp_matches(a, 'x+'), regexp_replace(a, 'x', 'y', 'g'), regexp_extract(a, '(x)', 1) FROM s;
SELECT year(ts), EXTRACT(hour FROM ts), date_trunc('minute', ts), date_diff('day', a, b), strftime(ts, '%Y'),
    strptime(a, '%Y-%m-%d'), epoch(ts), to_timestamp(a), dayofweek(ts), time_bucket(INTERVAL '5' MINUTE, ts) FROM s;
SELECT count(*), count(a), count(DISTINCT a), sum(a), avg(a), min(a), max(a), median(a), arg_max(a, b), any_value(a) FROM s;
SELECT myFunc(a, 'b'), "My Func"(a), other_func(), named(size => 5, x => a), nested(f(g(a))) FROM s;
SELECT "quoted name", "with ""quotes""", "Ünïcode ☃", s."x y"."z" FROM s;
SELECT a /* a comment */, b -- another
FROM s;
SELECT m.id, m.val FROM t AS u MATCH_RECOGNIZE (PARTITION BY a, b ORDER BY ts DESC MEASURES MATCH_NUMBER() AS n, RUNNING LAST(v) AS val, FINAL count(A.*) AS c ALL ROWS PER MATCH OMIT EMPTY MATCHES AFTER MATCH SKIP PAST LAST ROW PATTERN (^ A B+? (C | D){2,3} {- E -} $) WITHIN 3 SECONDS WITH TIMEOUTS SUBSET w = (A, B) DEFINE B AS B.v < PREV(B.v), C AS C.v > 1) AS m;
SELECT * FROM (SELECT a FROM s) MATCH_RECOGNIZE (ONE ROW PER MATCH AFTER MATCH SKIP TO FIRST B PATTERN (PERMUTE(A, B C?) () D??) WITHIN 3 DEFINE A AS x > 1) m, s MATCH_RECOGNIZE (AFTER MATCH SKIP TO NEXT ROW PATTERN (A)) AS n (x, y) WHERE m.a = n.x;
SELECT * FROM s MATCH_RECOGNIZE (ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A$ | "b c"{,4} d{2,}));
SELECT SessNo, count(*A), LAST(*A).t, FIRST(B).t, avg(*A.previous.price) FROM stations AS st, Sessions PARTITION BY SessNo, x SEQUENCE BY d AS (*A, B), t AS v WHERE A.PageType <> 'd' AND A.x < A.previous.x AND ccount(A) <= 6;
SELECT id, val OVER w, 1 + label OVER w AS l, count(*) OVER w FROM t WINDOW w AS (PARTITION BY k ORDER BY id MEASURES RUNNING LAST(A.v) AS val, CLASSIFIER() AS label ROWS BETWEEN CURRENT ROW AND 5 FOLLOWING AFTER MATCH SKIP TO A SEEK PATTERN (A B*?) SUBSET u = (A, B) DEFINE B AS v < PREV(v));
SELECT val OVER (ORDER BY id MEASURES A.v AS val ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING PATTERN (A)) FROM t;
SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY lower(a) AS low, b % 10 ORDER BY t, abs(c) DESC NULLS FIRST MEASURES LAST(t) AS m PATTERN (A B) WITHIN INTERVAL '1:30' MINUTE TO SECOND);
SELECT low, X.t FROM s PARTITION BY lower(a) AS low, b % 10 SEQUENCE BY t, abs(c) DESC AS (X, *Y) WHERE b % 10 = 3;
CREATE STREAM numbered (a INT, n BIGINT) ORDER BY n SLACK 3;
CREATE STREAM numbered (a INT, n BIGINT) SLACK 3 SOURCE 'port4445' ORDER BY n;
SELECT INTERVAL '1-2' YEAR TO MONTH, INTERVAL '-1 2:03:04.5' DAY TO SECOND, INTERVAL -'1:30' HOUR TO MINUTE FROM s;
CREATE STREAM listed (a INT[], b VARCHAR(10)[], c DECIMAL(10, 2)[], ts TIMESTAMP) ORDER BY ts;
SELECT [1, 2], ARRAY['a', b], [], a[1], a[-1], s.a[b + 1], (a)[1], f(a)[2], a[1] + 1, CAST(a AS bigint[]), a::int[] FROM s;
SELECT id, tag FROM s, UNNEST(s.tags) AS u(tag) CROSS JOIN UNNEST([1, 2]) AS n;
CREATE STREAM nested (a STRUCT(x INT, "y z" VARCHAR(3)[]), b MAP(VARCHAR, STRUCT(q DOUBLE)), ts TIMESTAMP) ORDER BY ts;
CREATE STREAM nested (a ROW<x INT, y ROW(z INT)>, b MAP<INT, INT>, c STRUCT<x INT>[], ts TIMESTAMP) ORDER BY ts;
CREATE STREAM a (k INT, s INT, e INT) VALID FROM s TO e SLACK 5;
CREATE STREAM a (k INT, l INT, t INT, PRIMARY KEY (k, l) NOT ENFORCED) ORDER BY t;
SELECT {'a': 1, b: {'c d': x}}, MAP {'a': 1, x: 2}, struct_pack(a := 1, b => 2), ROW(1, 2), a.b.c.d.e, (a).b, f(a).b[1].c, {'a': 1}.a, CAST(a AS STRUCT(x INT)), a.*, t.a.* FROM t;
SELECT t.a FROM s, JSON_TABLE(s.doc, '$.items[*]' COLUMNS (a INT, "b c" VARCHAR PATH '$.x.y', d JSON PATH '$')) AS t;
