"""Programs: aggregates written in SQL, bound to the types of one call."""
