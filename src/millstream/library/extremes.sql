-- The value beside the greatest or the least one; of equal ones the first. Rows in which either is NULL do not count.
CREATE AGGREGATE max_by(x, y) : (max_by) {
  TABLE best(v, k);
  INITIALIZE: { INSERT INTO best VALUES (CASE WHEN y IS NOT NULL THEN x END, CASE WHEN x IS NOT NULL THEN y END); }
  ITERATE: { UPDATE best SET v = x, k = y WHERE x IS NOT NULL AND y IS NOT NULL AND (k IS NULL OR y > k); }
  TERMINATE: { INSERT INTO RETURN SELECT v FROM best; }
};
CREATE WINDOW AGGREGATE max_by(x, y) : (max_by) {
  TABLE inwindow(wx, wy);
  INITIALIZE: { INSERT INTO RETURN VALUES (CASE WHEN y IS NOT NULL THEN x END); }
  ITERATE: {
    DELETE FROM inwindow WHERE x IS NOT NULL AND (y > wy OR (y IS NOT NULL AND (wx IS NULL OR wy IS NULL)));
    INSERT INTO RETURN VALUES (CASE WHEN oldest().wy IS NOT NULL THEN oldest().wx END);
  }
};
CREATE AGGREGATE min_by(x, y) : (min_by) {
  TABLE best(v, k);
  INITIALIZE: { INSERT INTO best VALUES (CASE WHEN y IS NOT NULL THEN x END, CASE WHEN x IS NOT NULL THEN y END); }
  ITERATE: { UPDATE best SET v = x, k = y WHERE x IS NOT NULL AND y IS NOT NULL AND (k IS NULL OR y < k); }
  TERMINATE: { INSERT INTO RETURN SELECT v FROM best; }
};
CREATE WINDOW AGGREGATE min_by(x, y) : (min_by) {
  TABLE inwindow(wx, wy);
  INITIALIZE: { INSERT INTO RETURN VALUES (CASE WHEN y IS NOT NULL THEN x END); }
  ITERATE: {
    DELETE FROM inwindow WHERE x IS NOT NULL AND (y < wy OR (y IS NOT NULL AND (wx IS NULL OR wy IS NULL)));
    INSERT INTO RETURN VALUES (CASE WHEN oldest().wy IS NOT NULL THEN oldest().wx END);
  }
};
