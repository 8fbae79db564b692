-- queries inside others, one a line; a, b, c and p are windows, e, f, g and t stored tables, e an empty one
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {t})
SELECT k, x FROM {a} AS a WHERE k NOT IN (SELECT k FROM {t})
SELECT k, x FROM {a} AS a WHERE k NOT IN (SELECT k FROM {t} WHERE k IS NOT NULL)
SELECT k, x FROM {a} AS a WHERE k NOT IN (SELECT k FROM {e})
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {e})
SELECT k, x FROM {a} AS a WHERE EXISTS (SELECT 1 FROM {e})
SELECT k, x FROM {a} AS a WHERE NOT EXISTS (SELECT 1 FROM {e})
SELECT k, x FROM {a} AS a WHERE EXISTS (SELECT 1 FROM {t} AS t WHERE t.k = a.k)
SELECT k, x FROM {a} AS a WHERE NOT EXISTS (SELECT * FROM {t} AS t WHERE t.k = a.k AND t.x > a.x)
SELECT k, x FROM {a} AS a WHERE x > (SELECT max(x) FROM {t})
SELECT k, x FROM {a} AS a WHERE x >= (SELECT avg(t.x) FROM {t} AS t WHERE t.k = a.k)
SELECT k, (SELECT count(*) FROM {t} AS t WHERE t.k = a.k) AS n FROM {a} AS a
SELECT k, (SELECT count(*) FROM {e} AS t WHERE t.k = a.k) AS n FROM {a} AS a
SELECT k, (SELECT count(*) FROM {e}) AS n, (SELECT max(x) FROM {e}) AS m FROM {a} AS a
SELECT k, (SELECT count(*) FROM {t} AS t WHERE t.x < a.x) AS n FROM {a} AS a
SELECT k, (SELECT sum(t.x) FROM {t} AS t WHERE t.x < a.x OR t.k = a.k) AS n FROM {a} AS a
SELECT k, x FROM {a} AS a WHERE x > ALL (SELECT x FROM {t} WHERE x IS NOT NULL)
SELECT k, x FROM {a} AS a WHERE x > ALL (SELECT x FROM {e})
SELECT k, x FROM {a} AS a WHERE x > ANY (SELECT x FROM {e})
SELECT k, x FROM {a} AS a WHERE x <= ANY (SELECT x FROM {t})
SELECT k, x FROM {a} AS a WHERE x <> ALL (SELECT x FROM {t})
SELECT k, x FROM {a} AS a SEMI JOIN {t} AS t ON a.k = t.k
SELECT k, x FROM {a} AS a ANTI JOIN {t} AS t ON a.k = t.k
SELECT k, x FROM {a} AS a ANTI JOIN {t} AS t ON a.k = t.k AND t.x > a.x
SELECT a.k, a.x FROM {a} AS a SEMI JOIN {t} AS t USING (k)
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {t}) OR x > 1
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {b} AS b) OR x > 1
SELECT k, x FROM {a} AS a WHERE NOT (k IN (SELECT k FROM {b} AS b) OR x > 1)
SELECT k, x FROM {a} AS a WHERE NOT (k NOT IN (SELECT k FROM {b} AS b) AND x > 1)
SELECT k, x FROM {a} AS a WHERE k NOT IN (SELECT k FROM {b} AS b) OR x > 1
SELECT k, x FROM {a} AS a WHERE EXISTS (SELECT 1 FROM {b} AS b WHERE b.k = a.k) OR EXISTS (SELECT 1 FROM {t} AS t WHERE t.x = a.x)
SELECT k, x, k IN (SELECT k FROM {b} AS b) AS i FROM {a} AS a
SELECT k, x, k NOT IN (SELECT k FROM {b} AS b) AS i FROM {a} AS a
SELECT k, x, k IN (SELECT k FROM {t}) AS i FROM {a} AS a
SELECT k, x, k NOT IN (SELECT k FROM {t}) AS i FROM {a} AS a
SELECT k, EXISTS (SELECT 1 FROM {b} AS b WHERE b.k = a.k) AS i FROM {a} AS a
SELECT k, NOT EXISTS (SELECT 1 FROM {t} AS b WHERE b.x < a.x) AS i FROM {a} AS a
SELECT k, x > ALL (SELECT x FROM {b} AS b) AS i FROM {a} AS a
SELECT k, x > ANY (SELECT x FROM {t} AS b) AS i FROM {a} AS a
SELECT k, x = ALL (SELECT x FROM {t} AS b WHERE b.k = a.k) AS i FROM {a} AS a
SELECT k, CASE WHEN EXISTS (SELECT 1 FROM {b} AS b WHERE b.k = a.k) THEN 'y' WHEN k IN (SELECT x FROM {t}) THEN 't' ELSE 'n' END AS c FROM {a} AS a
SELECT k, CASE WHEN x > (SELECT avg(x) FROM {b} AS b) THEN (SELECT count(*) FROM {t}) ELSE 0 END AS c FROM {a} AS a
SELECT k, x FROM {a} AS a WHERE (k IN (SELECT k FROM {b} AS b)) IS NULL
SELECT k, x FROM {a} AS a WHERE (x > ALL (SELECT x FROM {b} AS b)) IS NOT TRUE
SELECT k, coalesce((SELECT max(x) FROM {b} AS b WHERE b.k = a.k), -1) AS m FROM {a} AS a
SELECT k, (SELECT coalesce(max(x), -1) FROM {b} AS b WHERE b.k = a.k) AS m FROM {a} AS a
SELECT k, (SELECT count(*) + 1 FROM {b} AS b WHERE b.k = a.k) AS m FROM {a} AS a
SELECT k, (SELECT coalesce(max(x), -1) FROM {t} AS b WHERE b.k = a.k) AS m FROM {a} AS a
SELECT k, (SELECT count(*) FROM {b} AS b WHERE b.k = a.k HAVING count(*) > 1) AS m FROM {a} AS a
SELECT k, (SELECT count(*) FROM {b} AS b WHERE b.k = a.k HAVING count(*) < 1) AS m FROM {a} AS a
SELECT k, x FROM {a} AS a WHERE x IN (SELECT count(*) FROM {b} AS b WHERE b.k = a.k)
SELECT k, x FROM {a} AS a WHERE 0 IN (SELECT count(*) FROM {b} AS b)
SELECT k, x FROM {a} AS a WHERE x NOT IN (SELECT count(*) FROM {b} AS b WHERE b.k = a.k)
SELECT k, x FROM {a} AS a WHERE EXISTS (SELECT count(*) FROM {b} AS b WHERE b.k = a.k)
SELECT k, x FROM {a} AS a WHERE NOT EXISTS (SELECT max(x) FROM {b} AS b WHERE b.k = a.k)
SELECT k, x FROM {a} AS a WHERE x >= ALL (SELECT count(*) FROM {b} AS b)
SELECT k, x FROM {a} AS a WHERE x > (SELECT avg(b.x) FROM {b} AS b WHERE b.k < a.k)
SELECT k, (SELECT count(*) FROM {b} AS b WHERE b.k < a.k) AS n FROM {a} AS a
SELECT k, (SELECT count(*) FROM {b} AS b WHERE b.k <> a.k AND b.x > a.x) AS n FROM {a} AS a
SELECT k, x FROM {a} AS a WHERE EXISTS (SELECT b.x FROM {b} AS b WHERE b.k = a.k GROUP BY b.x HAVING count(*) > 1)
SELECT k, x FROM {a} AS a WHERE EXISTS (SELECT 1 FROM {b} AS b WHERE b.k = a.k HAVING count(*) > 1)
SELECT k, x FROM {a} AS a WHERE 1 < (SELECT count(DISTINCT b.x) FROM {b} AS b WHERE b.k = a.k)
SELECT k, x FROM {a} AS a WHERE x IN (SELECT max(b.x) FROM {b} AS b WHERE b.k = a.k GROUP BY b.v)
SELECT k, x FROM {a} AS a WHERE x = ANY (SELECT DISTINCT b.x FROM {b} AS b WHERE b.k = a.k)
SELECT k, x FROM {a} AS a WHERE EXISTS (SELECT 1 FROM {b} AS b WHERE b.k = a.k AND EXISTS (SELECT 1 FROM {c} AS c WHERE c.k = b.k AND c.x = a.x))
SELECT k, x FROM {a} AS a WHERE EXISTS (SELECT 1 FROM {b} AS b WHERE EXISTS (SELECT 1 FROM {c} AS c WHERE c.k = b.k AND c.x = a.x))
SELECT k, x FROM {a} AS a WHERE NOT EXISTS (SELECT 1 FROM {b} AS b WHERE NOT EXISTS (SELECT 1 FROM {c} AS c WHERE c.k = b.k AND c.x = a.x))
SELECT k, x FROM {a} AS a WHERE x > (SELECT avg(b.x) FROM {b} AS b WHERE b.k IN (SELECT c.k FROM {c} AS c WHERE c.x = a.x))
SELECT k, (SELECT count(*) FROM {b} AS b WHERE b.x = (SELECT max(c.x) FROM {c} AS c WHERE c.k = a.k AND c.v = b.v)) AS n FROM {a} AS a
SELECT k, (SELECT max(b.x + a.x) FROM {b} AS b WHERE b.k = a.k) AS n FROM {a} AS a
SELECT k, (SELECT sum(b.x) + a.x FROM {b} AS b WHERE b.k = a.k) AS n FROM {a} AS a
SELECT k, x FROM {a} AS a WHERE k IN (SELECT b.k + a.x FROM {b} AS b)
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {b} AS b WHERE b.x > a.x UNION SELECT x FROM {c} AS c WHERE c.k = a.k)
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {b} AS b EXCEPT SELECT x FROM {c} AS c)
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {t} UNION SELECT x FROM {f})
SELECT k, x FROM {a} AS a WHERE k IN (SELECT t.k FROM {t} AS t JOIN {f} AS f ON t.k = f.k WHERE f.x = a.x)
SELECT k, x FROM {a} AS a WHERE EXISTS (SELECT 1 FROM {t} AS t, {f} AS f WHERE t.k = f.k AND f.x < a.x)
SELECT k, (SELECT count(*) FROM {t} AS t, {f} AS f WHERE t.k = f.k AND f.x < a.x) AS n FROM {a} AS a
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {t} GROUP BY k HAVING count(*) > 1)
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {t} ORDER BY k LIMIT 2)
SELECT k, x FROM {a} AS a WHERE EXISTS (SELECT 1 FROM {b} AS b WHERE b.k = a.k LIMIT 1)
SELECT k, x FROM {a} AS a WHERE (k, x) IN (SELECT k, x FROM {t})
SELECT k, x FROM {a} AS a WHERE (k, x) NOT IN (SELECT k, x FROM {t})
SELECT k, x FROM {a} AS a WHERE (k, x) NOT IN (SELECT k, x FROM {b} AS b)
SELECT k, sum(x) AS s FROM {a} AS a GROUP BY k HAVING sum(x) > (SELECT max(x) FROM {t})
SELECT k, sum(x) AS s FROM {a} AS a GROUP BY k HAVING k IN (SELECT k FROM {t})
SELECT k, sum(x) AS s FROM {a} AS a GROUP BY k HAVING k IN (SELECT k FROM {b} AS b) OR sum(x) > 2
SELECT k, sum(x) AS s FROM {a} AS a GROUP BY k HAVING EXISTS (SELECT 1 FROM {t} AS t WHERE t.k = a.k)
SELECT k, sum(x) AS s, (SELECT count(*) FROM {b} AS b WHERE b.k = a.k) AS n FROM {a} AS a GROUP BY k
SELECT k, sum(x) AS s, (SELECT count(*) FROM {b} AS b WHERE b.k < a.k) AS n FROM {a} AS a GROUP BY k
SELECT k, sum(x) AS s, (SELECT max(t.x) FROM {t} AS t WHERE t.k = a.k) AS n FROM {a} AS a GROUP BY k
SELECT k, sum((SELECT max(t.x) FROM {t} AS t WHERE t.k = a.k)) AS s FROM {a} AS a GROUP BY k
SELECT k, sum(CASE WHEN EXISTS (SELECT 1 FROM {b} AS b WHERE b.x = a.x) THEN 1 ELSE 0 END) AS s FROM {a} AS a GROUP BY k
SELECT count(*) AS n FROM {a} AS a WHERE x IN (SELECT x FROM {b} AS b) {nonempty}
SELECT a.k, b.x FROM {a} AS a JOIN {b} AS b ON a.k = b.k AND a.x IN (SELECT x FROM {t})
SELECT a.k, b.x FROM {a} AS a JOIN {b} AS b ON a.k = b.k AND b.x > (SELECT min(x) FROM {c} AS c WHERE c.k = a.k)
SELECT a.k, b.x FROM {a} AS a LEFT JOIN {b} AS b ON a.k = b.k WHERE b.x IS NULL OR b.x IN (SELECT x FROM {t})
SELECT a.k, b.x FROM {a} AS a LEFT JOIN {b} AS b ON a.k = b.k WHERE NOT EXISTS (SELECT 1 FROM {t} AS t WHERE t.k = a.k AND t.x = b.x)
SELECT k, x FROM {a} AS a WHERE x = (SELECT p.x FROM {p} AS p WHERE p.k = a.k)
SELECT k, (SELECT p.x FROM {p} AS p WHERE p.k = a.k) AS l FROM {a} AS a
SELECT k, (SELECT d.n FROM (SELECT k, count(*) AS n FROM {b} AS b GROUP BY k) AS d WHERE d.k = a.k) AS l FROM {a} AS a
SELECT q.k, m FROM (SELECT k, (SELECT max(x) FROM {t} AS t WHERE t.k = a.k) AS m FROM {a} AS a) AS q WHERE m > 1
WITH d AS (SELECT k, count(*) AS n FROM {t} GROUP BY k) SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM d WHERE n > 1)
WITH d AS (SELECT k, count(*) AS n FROM {t} GROUP BY k) SELECT a.k, n FROM {a} AS a LEFT JOIN d ON a.k = d.k
SELECT a.k, m FROM {a} AS a JOIN (SELECT k, max(x) AS m FROM {t} GROUP BY k) AS d ON a.k = d.k
SELECT a.k, d.x FROM {a} AS a LEFT JOIN (SELECT DISTINCT t.k, f.x FROM {t} AS t JOIN {f} AS f ON t.k = f.k) AS d ON a.k = d.k
SELECT k, x FROM {a} AS a WHERE x BETWEEN (SELECT min(x) FROM {t}) AND (SELECT max(x) FROM {b} AS b)
SELECT k, x FROM {a} AS a WHERE x + (SELECT count(*) FROM {b} AS b) > (SELECT count(*) FROM {t})
SELECT k, x FROM {a} AS a WHERE (SELECT max(x) FROM {b} AS b) IS NULL
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {b} AS b WHERE x IN (SELECT x FROM {t}))
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {t} AS t WHERE t.x NOT IN (SELECT x FROM {f} AS f WHERE f.k = a.k))
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {t} AS t WHERE EXISTS (SELECT 1 FROM {b} AS b WHERE b.x = t.x))
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {t} AS t WHERE EXISTS (SELECT 1 FROM {b} AS b WHERE b.x = t.x AND b.k = a.k))
SELECT k, x FROM {a} AS a WHERE x = (SELECT t.x FROM {g} AS t WHERE t.k = a.k)
SELECT k, (SELECT t.x FROM {g} AS t WHERE t.k = a.k) AS y FROM {a} AS a
SELECT k, (SELECT t.x FROM {g} AS t WHERE t.k = a.k ORDER BY t.x DESC LIMIT 1) AS y FROM {a} AS a
SELECT k, (SELECT t.x FROM {t} AS t WHERE t.k = a.k ORDER BY t.x NULLS LAST LIMIT 1) AS y FROM {a} AS a
SELECT DISTINCT k FROM {a} AS a WHERE x NOT IN (SELECT x FROM {t} WHERE x > 1) UNION SELECT k FROM {b} AS b WHERE EXISTS (SELECT 1 FROM {f} AS f WHERE f.k = b.k)
SELECT k, x FROM {a} AS a WHERE EXISTS (SELECT 1 FROM {b} AS b JOIN {c} AS c ON b.k = c.k WHERE b.x = a.x)
SELECT k, x FROM {a} AS a WHERE EXISTS (SELECT 1 FROM {b} AS b JOIN {c} AS c ON b.k = c.k AND c.x = a.x)
SELECT k, x FROM {a} AS a WHERE k IN (SELECT 1) OR x IN (SELECT 2 UNION SELECT 3)
SELECT k, x FROM {a} AS a WHERE x > SOME (SELECT x FROM {b} AS b WHERE b.k = a.k)
SELECT k, x FROM {a} AS a WHERE NOT (x > ALL (SELECT x FROM {b} AS b WHERE b.k = a.k))
SELECT k, x FROM {a} AS a WHERE NOT (x = ANY (SELECT x FROM {t} AS b WHERE b.k = a.k))
SELECT k, x FROM {a} AS a WHERE EXISTS (SELECT 1 FROM {t} AS t WHERE a.x > 1)
SELECT k, x FROM {a} AS a WHERE k IN (SELECT k FROM {b} AS b WHERE a.x > 1)
SELECT k, x FROM {a} AS a WHERE NOT EXISTS (SELECT 1 FROM {b} AS b WHERE a.x > 1)
SELECT k, v FROM {a} AS a WHERE v IN (SELECT v FROM {t}) AND v NOT IN (SELECT v FROM {b} AS b WHERE b.v IS NOT NULL)
