"""The command line: `millstream run`, `shell`, `explain`, `generate` and `version`."""
