"""Aggregates written in SQL: their definitions, and the programs that they are for arguments of certain types."""

from millstream.bind.programs.binding import bind_program, define_aggregate, describe_blocking

__all__ = ["bind_program", "define_aggregate", "describe_blocking"]
