-- q3, local item suggestion: who sells in some states? People are kept for ever, and so are auctions, as the suite asks
-- for; a pair is an event when its later half comes.
ISTREAM (
    SELECT P.name, P.city, P.state, A.id
    FROM auction [RANGE UNBOUNDED] AS A INNER JOIN person [RANGE UNBOUNDED] AS P ON A.seller = P.id
    WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')
);
