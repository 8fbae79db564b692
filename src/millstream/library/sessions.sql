-- The number of the session a tuple belongs to: a new one begins when nothing came for longer than the gap.
CREATE AGGREGATE sessionise(at, gap) : BIGINT {
  TABLE state(latest, number BIGINT);
  INITIALIZE: {
    INSERT INTO state VALUES (at, 1);
    INSERT INTO RETURN SELECT number FROM state;
  }
  ITERATE: {
    UPDATE state SET number = number + 1 WHERE at - latest > gap;
    UPDATE state SET latest = at WHERE at IS NOT NULL;
    INSERT INTO RETURN SELECT number FROM state;
  }
};
