{{ config(materialized='table') }}
select symbol, n from {{ ref('by_symbol') }} where n > 1
