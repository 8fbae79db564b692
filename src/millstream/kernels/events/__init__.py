"""Automata of the event algebra."""
