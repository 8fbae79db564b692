-- Texts one after the other with a separator between them.
CREATE AGGREGATE string_agg(x VARCHAR, separator VARCHAR) : VARCHAR {
  TABLE state(joined VARCHAR);
  INITIALIZE: { INSERT INTO state VALUES (x); }
  ITERATE: { UPDATE state SET joined = coalesce(joined || separator, '') || x WHERE x IS NOT NULL; }
  TERMINATE: { INSERT INTO RETURN SELECT joined FROM state; }
};
