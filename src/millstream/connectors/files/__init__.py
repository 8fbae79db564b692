"""File sources: CSV, JSON lines, Parquet and Arrow files, read once or followed as they grow."""
