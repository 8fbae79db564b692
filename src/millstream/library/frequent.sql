-- How often an item was seen, estimated by four tables of about a thousand counters: never too low. The tables hash by the
-- rest of a division by different primes, so that items that share one counter do not share the others; an item's estimate
-- is the least of its four counters.
CREATE AGGREGATE frequency(item BIGINT) : BIGINT {
  TABLE counts(t INT, h BIGINT, n BIGINT);
  INITIALIZE: ITERATE: {
    UPDATE counts SET n = n + 1 WHERE h = item % 1021 AND t = 0;
    INSERT INTO counts VALUES (0, item % 1021, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    UPDATE counts SET n = n + 1 WHERE h = item % 1019 AND t = 1;
    INSERT INTO counts VALUES (1, item % 1019, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    UPDATE counts SET n = n + 1 WHERE h = item % 1013 AND t = 2;
    INSERT INTO counts VALUES (2, item % 1013, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    UPDATE counts SET n = n + 1 WHERE h = item % 1009 AND t = 3;
    INSERT INTO counts VALUES (3, item % 1009, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    INSERT INTO RETURN SELECT least(
      (SELECT max(n) FROM counts WHERE h = item % 1021 AND t = 0),
      (SELECT max(n) FROM counts WHERE h = item % 1019 AND t = 1),
      (SELECT max(n) FROM counts WHERE h = item % 1013 AND t = 2),
      (SELECT max(n) FROM counts WHERE h = item % 1009 AND t = 3));
  }
};
CREATE WINDOW AGGREGATE frequency(item BIGINT) : BIGINT {
  TABLE counts(t INT, h BIGINT, n BIGINT), inwindow(w BIGINT);
  INITIALIZE: ITERATE: {
    UPDATE counts SET n = n + 1 WHERE h = item % 1021 AND t = 0;
    INSERT INTO counts VALUES (0, item % 1021, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    UPDATE counts SET n = n + 1 WHERE h = item % 1019 AND t = 1;
    INSERT INTO counts VALUES (1, item % 1019, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    UPDATE counts SET n = n + 1 WHERE h = item % 1013 AND t = 2;
    INSERT INTO counts VALUES (2, item % 1013, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    UPDATE counts SET n = n + 1 WHERE h = item % 1009 AND t = 3;
    INSERT INTO counts VALUES (3, item % 1009, 1) WHERE sqlcode > 0 AND item IS NOT NULL;
    INSERT INTO RETURN SELECT least(
      (SELECT max(n) FROM counts WHERE h = item % 1021 AND t = 0),
      (SELECT max(n) FROM counts WHERE h = item % 1019 AND t = 1),
      (SELECT max(n) FROM counts WHERE h = item % 1013 AND t = 2),
      (SELECT max(n) FROM counts WHERE h = item % 1009 AND t = 3));
  }
  EXPIRE: {
    UPDATE counts SET n = n - 1 WHERE h = item % 1021 AND t = 0;
    UPDATE counts SET n = n - 1 WHERE h = item % 1019 AND t = 1;
    UPDATE counts SET n = n - 1 WHERE h = item % 1013 AND t = 2;
    UPDATE counts SET n = n - 1 WHERE h = item % 1009 AND t = 3;
  }
};
