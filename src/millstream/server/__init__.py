"""A session behind HTTP: many clients, one engine."""
