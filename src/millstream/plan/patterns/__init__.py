"""Row patterns: what is looked for, and what can be told of a search by reading it."""
