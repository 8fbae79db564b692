select symbol, count(*) as n, max(price) as highest
from {{ source('market', 'quotes') }} [range 1 hour]
group by symbol
