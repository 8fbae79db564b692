"""Conversion of foreign data to the declared types, column at a time, with a reason for every row that does not fit."""
