-- How many of the last `width` bits were 1, by an exponential histogram: buckets of 1, 2, 4, … ones, of each size (but the
-- largest) k/2 or k/2 + 1. Two of a size that has too many become one of the next, with the time of the newer; the estimate
-- counts half of the oldest bucket, and is wrong by 1/k at most.
CREATE AGGREGATE ones_in_last(bit BIGINT, width BIGINT, k BIGINT) : DOUBLE {
  TABLE state(now BIGINT, total BIGINT, rising BIGINT), buckets(made BIGINT, size BIGINT);
  TABLE sizes(size BIGINT, n BIGINT), merged(made BIGINT);
  INITIALIZE: {
    INSERT INTO state VALUES (1, CASE WHEN bit = 1 THEN 1 ELSE 0 END, 1);
    INSERT INTO sizes VALUES (1, CASE WHEN bit = 1 THEN 1 ELSE 0 END), (2, 0);
    INSERT INTO buckets VALUES (1, 1) WHERE bit = 1;
    INSERT INTO RETURN SELECT total FROM state;
  }
  ITERATE: {
    UPDATE state SET now = now + 1;
    -- the oldest bucket leaves
    UPDATE sizes SET n = n - 1 WHERE size = (SELECT max(b.size) FROM buckets AS b, state WHERE b.made <= now - width);
    UPDATE state SET total = total - coalesce((SELECT max(b.size) FROM buckets AS b WHERE b.made <= now - width), 0);
    DELETE FROM buckets WHERE made <= (SELECT now - width FROM state);
    -- sizes below `rising` are full: a new 1 lets each of them pass a bucket on
    UPDATE state SET rising = CASE WHEN bit = 1 THEN (SELECT min(size) FROM sizes WHERE n <= (k + 1) // 2) ELSE 1 END;
    INSERT INTO buckets SELECT now, 1 FROM state WHERE bit = 1;
    UPDATE state SET total = total + 1 WHERE bit = 1;
    -- of each such size the oldest goes, and the next one becomes twice as large
    INSERT INTO merged SELECT b.made FROM state, buckets AS b
      WHERE b.size < rising AND NOT EXISTS (SELECT c.made FROM buckets AS c WHERE c.size = b.size AND c.made < b.made);
    DELETE FROM buckets WHERE made IN (SELECT made FROM merged);
    DELETE FROM merged;
    INSERT INTO merged SELECT b.made FROM state, buckets AS b
      WHERE b.size < rising AND NOT EXISTS (SELECT c.made FROM buckets AS c WHERE c.size = b.size AND c.made < b.made);
    UPDATE buckets SET size = size * 2 WHERE made IN (SELECT made FROM merged);
    DELETE FROM merged;
    UPDATE sizes SET n = CASE WHEN size < (SELECT rising FROM state) THEN (k + 1) // 2 ELSE n + 1 END
      WHERE size <= (SELECT rising FROM state) AND bit = 1;
    INSERT INTO sizes VALUES ((SELECT rising * 2 FROM state), 0)
      WHERE (SELECT max(size) FROM sizes) = (SELECT rising FROM state) AND bit = 1;
    INSERT INTO RETURN SELECT total - coalesce((SELECT (max(size) - 1) / 2 FROM buckets), 0) FROM state;
  }
};
