"""Row patterns: MATCH_RECOGNIZE, and sequences in FROM."""
