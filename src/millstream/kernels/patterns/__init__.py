"""Row patterns: rows of a partition in, matches out."""
