-- q3, local item suggestion: who sells in some states? People and auctions are kept forever, as the suite asks
-- for; a pair is emitted when its later row arrives.
ISTREAM (
    SELECT P.name, P.city, P.state, A.id
    FROM auction [RANGE UNBOUNDED] AS A INNER JOIN person [RANGE UNBOUNDED] AS P ON A.seller = P.id
    WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')
);
