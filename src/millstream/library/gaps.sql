-- Every tuple, and before it the points at every `step` since the one before, linearly between the two: up to 999 of them.
CREATE AGGREGATE gap_fill(x DOUBLE, at TIMESTAMP, step INTERVAL) : (point TIMESTAMP, value DOUBLE, filled BOOLEAN) {
  TABLE state(lastx DOUBLE, lastat TIMESTAMP), digits(d BIGINT);
  INITIALIZE: {
    INSERT INTO state VALUES (x, CASE WHEN x IS NOT NULL THEN at END);
    INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
    INSERT INTO RETURN VALUES (at, x, FALSE) WHERE x IS NOT NULL;
  }
  ITERATE: {
    INSERT INTO RETURN SELECT
      lastat + step * (a.d * 100 + b.d * 10 + c.d),
      lastx + (x - lastx) * (epoch_us(lastat + step * (a.d * 100 + b.d * 10 + c.d)) - epoch_us(lastat))
        / (epoch_us(at) - epoch_us(lastat)),
      TRUE
    FROM state, digits AS a, digits AS b, digits AS c
    WHERE x IS NOT NULL AND lastat + step < at
      AND lastat + step * (a.d * 100) < at AND lastat + step * (a.d * 100 + b.d * 10) < at
      AND lastat + step * (a.d * 100 + b.d * 10 + c.d) < at AND a.d * 100 + b.d * 10 + c.d > 0;
    INSERT INTO RETURN VALUES (at, x, FALSE) WHERE x IS NOT NULL;
    UPDATE state SET lastx = x, lastat = at WHERE x IS NOT NULL;
  }
};
