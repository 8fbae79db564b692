-- All values in the order of their rows, NULLs included.
CREATE AGGREGATE array_agg(x) : (array_agg) {
  TABLE state(items);
  INITIALIZE: { INSERT INTO state VALUES (list_value(x)); }
  ITERATE: { UPDATE state SET items = array_append(items, x); }
  TERMINATE: { INSERT INTO RETURN SELECT items FROM state; }
};
