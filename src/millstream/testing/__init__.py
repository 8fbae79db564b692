"""Golden tests: what users of the language test their queries with."""
