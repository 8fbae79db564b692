"""Regular expressions, LIKE patterns and time formats, translated from DuckDB's (RE2, strftime) to Spark's (Java)."""

from __future__ import annotations

import re

from millstream.errors import BindError

_POSIX = {
    "alpha": r"\p{Alpha}", "digit": "0-9", "alnum": r"\p{Alnum}", "upper": r"\p{Upper}", "lower": r"\p{Lower}",
    "punct": r"\p{Punct}", "space": r"\s", "xdigit": r"\p{XDigit}", "word": r"\w", "blank": r" \t",
}  # fmt: skip

# strftime code → Java pattern. Only codes with the same result in DuckDB, Arrow and Spark.
TIME_CODES = {
    "Y": "yyyy", "m": "MM", "d": "dd", "H": "HH", "M": "mm", "S": "ss", "f": "SSSSSS", "y": "yy", "j": "DDD",
    "b": "MMM", "B": "MMMM", "a": "EEE", "A": "EEEE", "p": "a", "I": "hh", "%": "%",
}  # fmt: skip


def check_regex(pattern: str) -> None:
    """Refuse a pattern that is no regular expression, before any row meets it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise BindError(f"'{pattern}' is not a regular expression", detail=str(error)) from None


def matches_nothing(pattern: str) -> bool:
    """Whether a pattern matches the empty text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return bool(pc.match_substring_regex(pa.scalar(""), pattern).as_py())


def java_regex(pattern: str) -> str:
    """An RE2 pattern as Java reads it: `$` is the very end of the text, and only a line feed ends a line."""
    out, i, depth = ["(?d)"], 0, 0
    while i < len(pattern):
        char = pattern[i]
        if char == "\\":
            out.append(pattern[i : i + 2])
            i += 2
            continue
        if depth and (named := re.match(r"\[:(\w+):\]", pattern[i:])) and named[1] in _POSIX:
            out.append(_POSIX[named[1]])
            i += named.end()
            continue
        if char == "[":
            # A bracket inside a class is literal in RE2 and opens a nested class in Java.
            out.append("\\[" if depth else "[")
            if not depth:
                depth = 1
                for lead in ("^", "]"):
                    if pattern[i + 1 : i + 2] == lead:
                        out.append("\\]" if lead == "]" else lead)
                        i += 1
        elif char == "]" and depth:
            depth = 0
            out.append("]")
        elif char == "&" and depth:
            out.append("\\&")
        elif char == "$" and not depth and "(?m" not in pattern:
            out.append("\\z")
        elif pattern.startswith("(?P<", i):
            out.append("(?<")
            i += 3
        else:
            out.append(char)
        i += 1
    return "".join(out)


def java_replacement(text: str, shift: int = 0) -> str:
    """An RE2 replacement (`\\1` is the first group) as Java writes it (`$1`), groups renumbered by `shift`."""
    out, i = [], 0
    while i < len(text):
        if text[i] == "\\" and i + 1 < len(text):
            following = text[i + 1]
            # Braces are not possible in Java, so a digit after a group is kept apart by an escape.
            apart = "\\" if text[i + 2 : i + 3].isdigit() else ""
            out.append(f"${int(following) + shift}{apart}" if following.isdigit() else "\\" + following)
            i += 2
        else:
            out.append("\\$" if text[i] == "$" else text[i])
            i += 1
    return "".join(out)


def group_count(pattern: str) -> int:
    """How many groups a pattern captures."""
    plain = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "", pattern)
    return len(re.findall(r"\((?!\?)|\(\?P?<", plain))


def like_regex(pattern: str, escape: str | None = None) -> str:
    """A LIKE pattern as a regular expression for the whole text."""
    out, i = [r"(?s)\A"], 0
    while i < len(pattern):
        char = pattern[i]
        if escape and char == escape and i + 1 < len(pattern):
            i += 1
            out.append(re2_quote(pattern[i]))
        else:
            out.append({"%": ".*", "_": "."}.get(char) or re2_quote(char))
        i += 1
    return "".join(out) + r"\z"


def re2_quote(text: str) -> str:
    """Text as a regular expression that matches exactly it."""
    return "".join(char if char.isalnum() or ord(char) > 127 else f"\\x{ord(char):02x}" for char in text)


def time_codes(format_: str) -> list[str]:
    """A strftime format in parts: codes as '%Y', other text as it is; BindError for a code that hosts disagree on."""
    parts = re.findall(r"%.?|[^%]+", format_, re.DOTALL)
    for part in parts:
        if part[0] == "%" and part[1:] not in TIME_CODES:
            known = " ".join(f"%{code}" for code in TIME_CODES)
            raise BindError(f"unknown code {part} in the format '{format_}'", hint=f"codes are {known}")
    return parts


def java_time_format(format_: str) -> str:
    """A strftime format as a Java pattern."""
    out = ""
    for part in time_codes(format_):
        if part[0] == "%" and part != "%%":
            out += TIME_CODES[part[1]]
        else:
            quoted = ("%" if part == "%%" else part).replace("'", "''")
            # Two quoted parts side by side would be one with a quote inside.
            out = out[:-1] + quoted + "'" if out.endswith("'") else f"{out}'{quoted}'"
    return out
