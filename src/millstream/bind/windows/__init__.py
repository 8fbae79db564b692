"""OVER, and window tables in FROM."""
