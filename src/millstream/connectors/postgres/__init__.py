"""PostgreSQL: what the sink and the source share, and the source."""
