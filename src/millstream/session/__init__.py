"""Sessions: what users hold, how they are opened, and how they survive."""
