"""The interactive shell: where lines come from, what ends a statement, and what backslash commands do."""
