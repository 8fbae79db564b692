"""The event algebra: what follows what, and the automata that find it."""
