-- A classifier: decision_tree calls itself on the rows below each branch. An example is several tuples, one for each of its
-- columns; values are 0 to 9, so that the branch for value v of node n is node 10 n + v.

CREATE AGGREGATE decision_tree(node BIGINT, rec BIGINT, col BIGINT, val BIGINT, label BIGINT)
  : (node BIGINT, col BIGINT, val BIGINT, label BIGINT, n BIGINT) {
  TABLE place(node BIGINT);
  TABLE example(rec BIGINT, col BIGINT, val BIGINT, label BIGINT);
  TABLE counts(col BIGINT, val BIGINT, label BIGINT, n BIGINT);
  TABLE branch(col BIGINT, val BIGINT, n BIGINT, squares BIGINT);
  TABLE score(col BIGINT, gini DOUBLE);
  TABLE best(col BIGINT);
  INITIALIZE: {
    INSERT INTO place VALUES (node);
    INSERT INTO example VALUES (rec, col, val, label);
  }
  ITERATE: { INSERT INTO example VALUES (rec, col, val, label); }
  TERMINATE: {
    INSERT INTO counts SELECT col, val, label, count(*) FROM example GROUP BY col, val, label;
    INSERT INTO branch SELECT col, val, sum(n), sum(n * n) FROM counts GROUP BY col, val;
    INSERT INTO score SELECT col, sum(n - CAST(squares AS DOUBLE) / n) FROM branch GROUP BY col;
    INSERT INTO best SELECT min(col) FROM score WHERE gini = (SELECT min(s.gini) FROM score AS s);
    INSERT INTO RETURN
      SELECT p.node, b.col, b.val, min(c.label), b.n
      FROM place AS p, best AS t, branch AS b, counts AS c
      WHERE b.col = t.col AND c.col = b.col AND c.val = b.val
        AND c.n = (SELECT max(d.n) FROM counts AS d WHERE d.col = b.col AND d.val = b.val)
      GROUP BY p.node, b.col, b.val, b.n ORDER BY b.val;
    INSERT INTO RETURN
      SELECT decision_tree(10 * p.node + s.val, r.rec, r.col, r.val, r.label)
      FROM place AS p, best AS t, branch AS b, example AS s, example AS r
      WHERE b.col = t.col AND b.squares < b.n * b.n AND s.col = b.col AND s.val = b.val
        AND r.rec = s.rec AND r.col <> b.col
      GROUP BY s.val;
  }
}
