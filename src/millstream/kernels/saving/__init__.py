"""Saved state: pieces of which only those are written that changed."""
