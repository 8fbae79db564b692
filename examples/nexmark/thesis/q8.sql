-- Monitor new users: people who registered within twelve hours of opening an auction. Person is a relation.
CREATE VIEW Person AS SELECT id, name FROM PersonEvents [RANGE UNBOUNDED];

CREATE STREAM NewPersonStream AS
    SELECT P.id, P.name
    FROM   Istream(Person) P;

SELECT DISTINCT(P.id, P.name)
FROM   SELECT P.id, P.name
       FROM   NewPersonStream WINDOW(RANGE 12 HOURS) P, OpenAuction O
       WHERE  P.id = O.sellerID;
