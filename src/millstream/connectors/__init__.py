"""Where rows come from and where they go: sources, sinks, generators, and the conversion of user data to batches."""
