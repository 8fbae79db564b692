-- Quantiles, interpolated between the two nearest values. Each value knows how many lie below it.
CREATE AGGREGATE quantile(x DOUBLE, fraction DOUBLE) : DOUBLE {
  TABLE ordered(v DOUBLE, below BIGINT), state(n BIGINT, q DOUBLE);
  INITIALIZE: {
    INSERT INTO state VALUES (CASE WHEN x IS NULL THEN 0 ELSE 1 END, fraction);
    INSERT INTO ordered VALUES (x, 0) WHERE x IS NOT NULL;
  }
  ITERATE: {
    UPDATE ordered SET below = below + 1 WHERE v > x;
    INSERT INTO ordered VALUES (x, (SELECT count(*) FROM ordered WHERE v <= x)) WHERE x IS NOT NULL;
    UPDATE state SET n = n + 1 WHERE x IS NOT NULL;
  }
  TERMINATE: {
    INSERT INTO RETURN SELECT
      (1 - ((n - 1) * q - floor((n - 1) * q))) * (SELECT max(v) FROM ordered WHERE below = CAST(floor((n - 1) * q) AS BIGINT))
      + ((n - 1) * q - floor((n - 1) * q)) * (SELECT max(v) FROM ordered WHERE below = CAST(ceil((n - 1) * q) AS BIGINT))
    FROM state;
  }
};
CREATE WINDOW AGGREGATE quantile(x DOUBLE, fraction DOUBLE) : DOUBLE {
  TABLE ordered(v DOUBLE, below BIGINT), state(n BIGINT, q DOUBLE), gone(place BIGINT), inwindow(w, wf);
  INITIALIZE: {
    INSERT INTO state VALUES (CASE WHEN x IS NULL THEN 0 ELSE 1 END, fraction);
    INSERT INTO gone VALUES (NULL);
    INSERT INTO ordered VALUES (x, 0) WHERE x IS NOT NULL;
    INSERT INTO RETURN SELECT x FROM state;
  }
  ITERATE: {
    UPDATE ordered SET below = below + 1 WHERE v > x;
    INSERT INTO ordered VALUES (x, (SELECT count(*) FROM ordered WHERE v <= x)) WHERE x IS NOT NULL;
    UPDATE state SET n = n + 1 WHERE x IS NOT NULL;
    INSERT INTO RETURN SELECT
      (1 - ((n - 1) * q - floor((n - 1) * q))) * (SELECT max(v) FROM ordered WHERE below = CAST(floor((n - 1) * q) AS BIGINT))
      + ((n - 1) * q - floor((n - 1) * q)) * (SELECT max(v) FROM ordered WHERE below = CAST(ceil((n - 1) * q) AS BIGINT))
    FROM state;
  }
  EXPIRE: {
    UPDATE gone SET place = (SELECT min(below) FROM ordered WHERE v = x);
    DELETE FROM ordered WHERE below = (SELECT place FROM gone);
    UPDATE ordered SET below = below - 1 WHERE below > (SELECT place FROM gone);
    UPDATE state SET n = n - 1 WHERE x IS NOT NULL;
  }
};
