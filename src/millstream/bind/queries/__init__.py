"""SELECT: its clauses, joins, set operations and nested queries."""
