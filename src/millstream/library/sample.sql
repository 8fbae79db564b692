-- A sample of k tuples of a moving window: those of the highest priorities, which are given, random and all different. A
-- tuple that k later ones surpass can never be in the sample again and leaves the window: about k log n of n stay.
CREATE WINDOW AGGREGATE priority_sample(x, priority DOUBLE, k BIGINT) : (sample, chance DOUBLE) {
  TABLE kept(v, p DOUBLE, surpassed BIGINT), inwindow(wx, wp DOUBLE, wk BIGINT);
  INITIALIZE: ITERATE: {
    UPDATE kept SET surpassed = surpassed + 1 WHERE p < priority;
    DELETE FROM inwindow WHERE wp IN (SELECT p FROM kept WHERE surpassed >= k) OR wp IS NULL;
    DELETE FROM kept WHERE surpassed >= k;
    INSERT INTO kept VALUES (x, priority, 0) WHERE priority IS NOT NULL;
    INSERT INTO RETURN SELECT a.v, a.p FROM kept AS a WHERE k > (SELECT count(*) FROM kept AS b WHERE b.p > a.p);
  }
  EXPIRE: { DELETE FROM kept WHERE p = priority; }
};
