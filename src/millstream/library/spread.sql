-- Variance and standard deviation of a sample by Welford's recurrence; a leaving value is taken back.
CREATE AGGREGATE welford_variance(x DOUBLE) : DOUBLE {
  TABLE state(n BIGINT, mean DOUBLE, m2 DOUBLE);
  INITIALIZE: { INSERT INTO state SELECT CASE WHEN x IS NULL THEN 0 ELSE 1 END, coalesce(x, 0), 0; }
  ITERATE: {
    UPDATE state SET
      n = n + 1,
      mean = mean + (x - mean) / (n + 1),
      m2 = m2 + (x - mean) * (x - (mean + (x - mean) / (n + 1)))
    WHERE x IS NOT NULL;
  }
  TERMINATE: { INSERT INTO RETURN SELECT CASE WHEN n > 1 THEN m2 / (n - 1) END FROM state; }
};
CREATE WINDOW AGGREGATE welford_variance(x DOUBLE) : DOUBLE {
  TABLE state(n BIGINT, mean DOUBLE, m2 DOUBLE), inwindow(w DOUBLE);
  INITIALIZE: {
    INSERT INTO state SELECT CASE WHEN x IS NULL THEN 0 ELSE 1 END, coalesce(x, 0), 0;
    INSERT INTO RETURN SELECT NULL FROM state;
  }
  ITERATE: {
    UPDATE state SET
      n = n + 1,
      mean = mean + (x - mean) / (n + 1),
      m2 = m2 + (x - mean) * (x - (mean + (x - mean) / (n + 1)))
    WHERE x IS NOT NULL;
    INSERT INTO RETURN SELECT CASE WHEN n > 1 THEN m2 / (n - 1) END FROM state;
  }
  EXPIRE: {
    UPDATE state SET
      n = n - 1,
      mean = CASE WHEN n > 1 THEN mean - (x - mean) / (n - 1) ELSE 0 END,
      m2 = CASE WHEN n > 2 THEN greatest(m2 - (x - mean) * (x - (mean - (x - mean) / (n - 1))), 0) ELSE 0 END
    WHERE x IS NOT NULL;
  }
};
