-- What the built-in aggregates are under ACTIVE EXPIRATION: they return when a tuple arrives and when one leaves.

CREATE WINDOW AGGREGATE active_count(x) : BIGINT {
  TABLE state(n BIGINT), inwindow(w);
  INITIALIZE: {
    INSERT INTO state VALUES (CASE WHEN x IS NULL THEN 0 ELSE 1 END);
    INSERT INTO RETURN SELECT n FROM state;
  }
  ITERATE: {
    UPDATE state SET n = n + CASE WHEN x IS NULL THEN 0 ELSE 1 END;
    INSERT INTO RETURN SELECT n FROM state;
  }
  EXPIRE: {
    UPDATE state SET n = n - CASE WHEN x IS NULL THEN 0 ELSE 1 END;
    INSERT INTO RETURN SELECT n FROM state;
  }
};

CREATE WINDOW AGGREGATE active_sum(x) : (total) {
  TABLE state(total, n BIGINT), inwindow(w);
  INITIALIZE: {
    INSERT INTO state VALUES (coalesce(x, 0), CASE WHEN x IS NULL THEN 0 ELSE 1 END);
    INSERT INTO RETURN SELECT CASE WHEN n > 0 THEN total END FROM state;
  }
  ITERATE: {
    UPDATE state SET total = total + x, n = n + 1 WHERE x IS NOT NULL;
    INSERT INTO RETURN SELECT CASE WHEN n > 0 THEN total END FROM state;
  }
  EXPIRE: {
    UPDATE state SET total = CASE WHEN n = 1 THEN total - total ELSE total - x END, n = n - 1 WHERE x IS NOT NULL;
    INSERT INTO RETURN SELECT CASE WHEN n > 0 THEN total END FROM state;
  }
};

CREATE WINDOW AGGREGATE active_avg(x DOUBLE) : DOUBLE {
  TABLE state(total DOUBLE, n BIGINT), inwindow(w DOUBLE);
  INITIALIZE: {
    INSERT INTO state VALUES (coalesce(x, 0), CASE WHEN x IS NULL THEN 0 ELSE 1 END);
    INSERT INTO RETURN SELECT CASE WHEN n > 0 THEN total / n END FROM state;
  }
  ITERATE: {
    UPDATE state SET total = total + x, n = n + 1 WHERE x IS NOT NULL;
    INSERT INTO RETURN SELECT CASE WHEN n > 0 THEN total / n END FROM state;
  }
  EXPIRE: {
    UPDATE state SET total = CASE WHEN n = 1 THEN 0 ELSE total - x END, n = n - 1 WHERE x IS NOT NULL;
    INSERT INTO RETURN SELECT CASE WHEN n > 0 THEN total / n END FROM state;
  }
};

CREATE WINDOW AGGREGATE active_min(x) : (least) {
  TABLE held(i BIGINT, v), number(oldest_i BIGINT, next_i BIGINT), inwindow(w);
  INITIALIZE: {
    INSERT INTO number VALUES (0, 1);
    INSERT INTO held VALUES (0, x);
    INSERT INTO RETURN VALUES (x);
  }
  ITERATE: {
    INSERT INTO held SELECT next_i, x FROM number;
    UPDATE number SET next_i = next_i + 1;
    INSERT INTO RETURN SELECT min(v) FROM held;
  }
  EXPIRE: {
    DELETE FROM held WHERE i = (SELECT oldest_i FROM number);
    UPDATE number SET oldest_i = oldest_i + 1;
    INSERT INTO RETURN SELECT min(v) FROM held;
  }
};
