-- How often an item was seen, estimated by four tables of about a thousand counters: never too low. The tables hash by the
-- rest of a division by different primes, so that items that share one counter do not share the others; an item's estimate
-- is the least of its four counters.
CREATE AGGREGATE frequency(item BIGINT) : BIGINT {
  TABLE a(h BIGINT, n BIGINT), b(h BIGINT, n BIGINT), c(h BIGINT, n BIGINT), d(h BIGINT, n BIGINT);
  INITIALIZE: ITERATE: {
    UPDATE a SET n = n + 1 WHERE h = item % 1021;
    INSERT INTO a VALUES (item % 1021, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    UPDATE b SET n = n + 1 WHERE h = item % 1019;
    INSERT INTO b VALUES (item % 1019, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    UPDATE c SET n = n + 1 WHERE h = item % 1013;
    INSERT INTO c VALUES (item % 1013, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    UPDATE d SET n = n + 1 WHERE h = item % 1009;
    INSERT INTO d VALUES (item % 1009, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    INSERT INTO RETURN SELECT least(
      (SELECT max(n) FROM a WHERE h = item % 1021),
      (SELECT max(n) FROM b WHERE h = item % 1019),
      (SELECT max(n) FROM c WHERE h = item % 1013),
      (SELECT max(n) FROM d WHERE h = item % 1009));
  }
};
CREATE WINDOW AGGREGATE frequency(item BIGINT) : BIGINT {
  TABLE a(h BIGINT, n BIGINT), b(h BIGINT, n BIGINT), c(h BIGINT, n BIGINT), d(h BIGINT, n BIGINT), inwindow(w BIGINT);
  INITIALIZE: ITERATE: {
    UPDATE a SET n = n + 1 WHERE h = item % 1021;
    INSERT INTO a VALUES (item % 1021, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    UPDATE b SET n = n + 1 WHERE h = item % 1019;
    INSERT INTO b VALUES (item % 1019, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    UPDATE c SET n = n + 1 WHERE h = item % 1013;
    INSERT INTO c VALUES (item % 1013, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    UPDATE d SET n = n + 1 WHERE h = item % 1009;
    INSERT INTO d VALUES (item % 1009, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    INSERT INTO RETURN SELECT least(
      (SELECT max(n) FROM a WHERE h = item % 1021),
      (SELECT max(n) FROM b WHERE h = item % 1019),
      (SELECT max(n) FROM c WHERE h = item % 1013),
      (SELECT max(n) FROM d WHERE h = item % 1009));
  }
  EXPIRE: {
    UPDATE a SET n = n - 1 WHERE h = item % 1021;
    UPDATE b SET n = n - 1 WHERE h = item % 1019;
    UPDATE c SET n = n - 1 WHERE h = item % 1013;
    UPDATE d SET n = n - 1 WHERE h = item % 1009;
  }
};
