"""Words of other stream engines that the parser does not know, and what to write instead."""

from __future__ import annotations

import re

_HINTS = (
    (r"\bWATERMARK\s+FOR\b[^,()]*$", "declare how late rows may be after the columns: ORDER BY ts SLACK 5 SECONDS"),
    (r"\bEMIT(\s+(CHANGES|FINAL|ON|AFTER|WITH))?$", "leave EMIT out: rows are emitted as soon as they are final"),
    (r"\bSELECT\s+TOP\s+\S+$", "for the first rows of each window, FROM TUMBLE(…) ORDER BY … LIMIT n"),
    (r"\bCREATE\s+MATERIALIZED$", "use CREATE VIEW … AS over windows, or CREATE STREAM … AS"),
    (r"\bCREATE\s+(SOURCE|CONNECTOR)$", "CREATE STREAM … WITH (connector = …) declares a source"),
    (r"\bWINDOW\s+TUMBLING\s*\($", "FROM TUMBLE(s, ts, 1 HOUR), and GROUP BY window_end"),
    (r"\bWINDOW\s+HOPPING\s*\($", "FROM HOP(s, ts, 1 MINUTE, 1 HOUR), and GROUP BY window_end"),
    (r"\bWINDOW\s+SESSION\s*\($", "FROM SESSION(s PARTITION BY k, ts, 5 MINUTES), and GROUP BY window_end"),
)  # fmt: skip


def hint_for(text: str) -> str | None:
    """A hint if a statement, read up to the word that is not understood, ends in words of another dialect.

    >>> hint_for("SELECT k FROM s EMIT CHANGES")
    'leave EMIT out: rows are emitted as soon as they are final'
    """
    return next((hint for words, hint in _HINTS if re.search(words, text, re.IGNORECASE)), None)
