"""The commands, one file each; whatever is slow to import is imported when a command runs."""
