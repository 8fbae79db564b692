-- The k greatest values with their ranks; of equal ones, the earlier comes first.
CREATE AGGREGATE top_k(x, k BIGINT) : (place BIGINT, value) {
  TABLE best(v, rank BIGINT);
  INITIALIZE: { INSERT INTO best VALUES (x, 1) WHERE x IS NOT NULL AND k > 0; }
  ITERATE: {
    UPDATE best SET rank = rank + 1 WHERE v < x;
    INSERT INTO best VALUES (x, (SELECT count(*) FROM best WHERE v >= x) + 1) WHERE x IS NOT NULL;
    DELETE FROM best WHERE rank > k;
  }
  TERMINATE: { INSERT INTO RETURN SELECT rank, v FROM best; }
};
CREATE WINDOW AGGREGATE top_k(x, k BIGINT) : (place BIGINT, value) {
  TABLE ordered(v, rank BIGINT), gone(place BIGINT), inwindow(wx, wk BIGINT);
  INITIALIZE: {
    INSERT INTO gone VALUES (NULL);
    INSERT INTO ordered VALUES (x, 1) WHERE x IS NOT NULL;
    INSERT INTO RETURN SELECT rank, v FROM ordered WHERE rank <= k;
  }
  ITERATE: {
    UPDATE ordered SET rank = rank + 1 WHERE v < x;
    INSERT INTO ordered VALUES (x, (SELECT count(*) FROM ordered WHERE v >= x) + 1) WHERE x IS NOT NULL;
    INSERT INTO RETURN SELECT rank, v FROM ordered WHERE rank <= k;
  }
  EXPIRE: {
    UPDATE gone SET place = (SELECT min(rank) FROM ordered WHERE v = x);
    DELETE FROM ordered WHERE rank = (SELECT place FROM gone);
    UPDATE ordered SET rank = rank - 1 WHERE rank > (SELECT place FROM gone);
  }
};
