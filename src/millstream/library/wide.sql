-- What sum, avg, min and max are over integers and decimals of more than 18 digits, which loops cannot hold.
CREATE AGGREGATE wide_sum(x) : (wide_sum) {
  TABLE state(total);
  INITIALIZE: { INSERT INTO state VALUES (x); }
  ITERATE: { UPDATE state SET total = CASE WHEN total IS NULL THEN x ELSE total + x END WHERE x IS NOT NULL; }
  TERMINATE: { INSERT INTO RETURN SELECT total FROM state; }
};
CREATE AGGREGATE wide_avg(x) : DOUBLE {
  TABLE state(total, n BIGINT);
  INITIALIZE: { INSERT INTO state VALUES (x, CASE WHEN x IS NULL THEN 0 ELSE 1 END); }
  ITERATE: { UPDATE state SET total = CASE WHEN total IS NULL THEN x ELSE total + x END, n = n + 1 WHERE x IS NOT NULL; }
  TERMINATE: { INSERT INTO RETURN SELECT CASE WHEN n > 0 THEN CAST(total AS DOUBLE) / n END FROM state; }
};
CREATE AGGREGATE wide_min(x) : (wide_min) {
  TABLE state(v);
  INITIALIZE: { INSERT INTO state VALUES (x); }
  ITERATE: { UPDATE state SET v = x WHERE x IS NOT NULL AND (v IS NULL OR x < v); }
  TERMINATE: { INSERT INTO RETURN SELECT v FROM state; }
};
