"""The event algebra: FILTER, NEXT, FOLD, AGGREGATE and PUBLISH."""
