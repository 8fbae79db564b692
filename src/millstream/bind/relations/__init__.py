"""Windows in FROM, SELECT over relations, and joins of streams as relations."""
