"""Sessions: the objects that users hold, how they are opened, and how they are saved."""
