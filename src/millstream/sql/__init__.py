"""SQL text to AST and back: the dialect `millstream`, a superset of SQL and of the papers' languages.

>>> from millstream.sql import parse, to_sql
>>> [statement] = parse("SELECT price FROM bid WHERE price > 10;")
>>> to_sql(statement.ast)
'SELECT price FROM bid WHERE price > 10'
"""

from __future__ import annotations

from millstream.sql.compat import require_pure_sqlglot

require_pure_sqlglot()

from millstream.sql.durations import duration_us, parse_duration  # noqa: E402
from millstream.sql.nodes import options_of  # noqa: E402
from millstream.sql.spans import span_of  # noqa: E402
from millstream.sql.statements import Statement, parameter_names, parse, to_sql  # noqa: E402

__all__ = ["Statement", "duration_us", "options_of", "parameter_names", "parse", "parse_duration", "span_of", "to_sql"]
