-- An average in which a value counts half as much after every half life (in seconds).
CREATE AGGREGATE decayed_avg(x DOUBLE, at TIMESTAMP, half_life DOUBLE) : DOUBLE {
  TABLE state(total DOUBLE, weight DOUBLE, asof TIMESTAMP);
  INITIALIZE: {
    INSERT INTO state VALUES (coalesce(x, 0), CASE WHEN x IS NULL THEN 0 ELSE 1 END, at);
    INSERT INTO RETURN SELECT total / weight FROM state;
  }
  ITERATE: {
    UPDATE state SET
      total = total * power(0.5, (epoch(at) - epoch(asof)) / half_life),
      weight = weight * power(0.5, (epoch(at) - epoch(asof)) / half_life),
      asof = at
    WHERE at > asof;
    UPDATE state SET total = total + x, weight = weight + 1 WHERE x IS NOT NULL;
    INSERT INTO RETURN SELECT total / weight FROM state;
  }
};
