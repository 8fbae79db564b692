"""A session that runs in a server: the same calls, over HTTP."""
