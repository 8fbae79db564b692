"""What follows from conditions, whatever the values of the columns."""
