"""Functions of text in Arrow, for constant patterns, positions and lengths."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.arrow.conditional import Builder, Compile, simple
from millstream.expressions.arrow.node import Datum, Node, text, whole
from millstream.expressions.functions.regex import group_count, like_regex, re2_quote
from millstream.expressions.functions.text import regexp_group
from millstream.expressions.nodes import Call, Literal

_ZERO, _ONE, _EMPTY, _NONE = whole(0), whole(1), text(""), text(None)


def _with_constants(make: Callable[..., Callable[[Datum], Datum] | None], *kinds: type) -> Builder:
    """A builder for a function of text whose further arguments are constants of the given kinds.

    `make` gets them and returns what to do with the text, or None if Arrow cannot.
    """

    def build(call: Call, compile_: Compile) -> Node | None:
        values = [arg.value for arg in call.args[1:] if isinstance(arg, Literal)]
        if len(values) < len(call.args) - 1 or not all(isinstance(v, k) for v, k in zip(values, kinds, strict=False)):
            return None
        node, function = compile_(call.args[0]), make(*values)
        if node is None or function is None:
            return None
        source, apply = node, function
        return lambda rows: apply(source(rows))

    return build


def _like(pattern: str, escape: str | None = None) -> Callable[[Datum], Datum]:
    body = pattern.strip("%")
    if escape is None and not set("%_") & set(body):
        starts, ends = pattern.startswith("%"), pattern.endswith("%")
        if not starts and not ends:
            whole_text = text(pattern)
            return lambda x: pc.equal(x, whole_text)
        if starts and ends:
            return lambda x: pc.match_substring(x, body)
        return (lambda x: pc.ends_with(x, body)) if starts else (lambda x: pc.starts_with(x, body))
    regex = like_regex(pattern, escape)
    return lambda x: pc.match_substring_regex(x, regex)


def _ilike(pattern: str, escape: str | None = None) -> Callable[[Datum], Datum] | None:
    lowered = pc.utf8_lower(text(pattern)).as_py()
    like = _like(lowered, pc.utf8_lower(text(escape)).as_py() if escape else None)
    return lambda x: like(pc.utf8_lower(x))


_LONGEST = 2**31 - 1
"""bytes that a text of Arrow's can have"""


def _substring(start: int, length: int | None = None) -> Callable[[Datum], Datum] | None:
    if start < 0:
        # Positions from the end: what lies before the text is not taken, but counts.
        return (lambda x: pc.utf8_slice_codeunits(x, start)) if length is None else None
    first = min(max(start, 1) - 1, _LONGEST)
    if length is None:
        return lambda x: pc.utf8_slice_codeunits(x, first)
    stop = min(max(first, start - 1 + max(length, 0)), _LONGEST)
    return lambda x: pc.utf8_slice_codeunits(x, first, stop)


def _left(length: int) -> Callable[[Datum], Datum]:
    return lambda x: pc.utf8_slice_codeunits(x, 0, length)


def _right(length: int) -> Callable[[Datum], Datum] | None:
    if length == 0:
        return lambda x: pc.utf8_slice_codeunits(x, 0, 0)
    return lambda x: pc.utf8_slice_codeunits(x, -length)


def _pad(pad: Callable[..., Datum]) -> Callable[..., Callable[[Datum], Datum] | None]:
    def make(length: int, padding: str) -> Callable[[Datum], Datum] | None:
        if len(padding) != 1 or not 0 <= length <= 10_000:
            return None
        return lambda x: pc.utf8_slice_codeunits(pad(x, length, padding), 0, length)

    return make


def _trim(trim: Callable[..., Datum]) -> Callable[..., Callable[[Datum], Datum]]:
    return lambda characters=" ": (lambda x: trim(x, characters)) if characters else (lambda x: x)


def _replace(old: str, new: str) -> Callable[[Datum], Datum]:
    return (lambda x: pc.replace_substring(x, old, new)) if old else (lambda x: x)


def _strpos(part: str) -> Callable[[Datum], Datum]:
    rest = f"(?s){re2_quote(part)}.*"

    def position(x: Datum) -> Datum:
        # Arrow finds bytes, and positions count code points: measure what precedes the match.
        before = pc.utf8_length(pc.replace_substring_regex(x, rest, "", max_replacements=1)).cast(pa.int64())
        return pc.if_else(pc.match_substring(x, part), pc.add(before, _ONE), _ZERO)

    return position


def _regexp_replace(pattern: str, replacement: str, options: str = "") -> Callable[[Datum], Datum]:
    most = None if options == "g" else 1
    return lambda x: pc.replace_substring_regex(x, pattern, replacement, max_replacements=most)


def _regexp_extract(call: Call, compile_: Compile) -> Node | None:
    node, pattern = compile_(call.args[0]), call.args[1]
    # Arrow wants all groups named, so only the whole match can be had.
    if node is None or not isinstance(pattern, Literal) or regexp_group(call) or group_count(str(pattern.value)):
        return None
    source, regex = node, f"(?P<found>{pattern.value})"

    def extract(x: Datum) -> Datum:
        found = pc.struct_field(pc.extract_regex(x, regex), "found")
        return pc.if_else(pc.is_valid(x), pc.coalesce(found, _EMPTY), _NONE)

    return lambda rows: extract(source(rows))


def _repeat(x: Datum, times: Datum) -> Datum:
    for each in (x, times):
        if isinstance(each, pa.Scalar) and not each.is_valid:
            # Arrow would make an array without a buffer, which nobody can read
            return pa.scalar(None, pa.string())
    return pc.binary_repeat(x, pc.max_element_wise(times, _ZERO, skip_nulls=False))


def _concat(*parts: Datum) -> Datum:
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement="")


def _concat_ws(call: Call, compile_: Compile) -> Node | None:
    separator = call.args[0]
    if not isinstance(separator, Literal) or not isinstance(separator.value, str):
        return None
    head, length = text(separator.value), len(separator.value)

    def join(_: Datum, *parts: Datum) -> Datum:
        # Arrow's own way of skipping NULLs loses rows of nothing else.
        separated = [pc.binary_join_element_wise(head, part, _EMPTY) for part in parts]
        return pc.utf8_slice_codeunits(_concat(*separated), length)

    return simple(join)(call, compile_)


BUILDERS: dict[str, Builder] = {
    "lower": simple(pc.utf8_lower),
    "upper": simple(pc.utf8_upper),
    "length": simple(lambda x: pc.utf8_length(x).cast(pa.int64())),
    "reverse": simple(pc.utf8_reverse),
    "repeat": simple(_repeat),
    "||": simple(lambda x, y: pc.binary_join_element_wise(x, y, _EMPTY)),
    "concat": simple(_concat),
    "concat_ws": _concat_ws,
    "substring": _with_constants(_substring, int, int),
    "left": _with_constants(_left, int),
    "right": _with_constants(_right, int),
    "lpad": _with_constants(_pad(pc.utf8_lpad), int, str),
    "rpad": _with_constants(_pad(pc.utf8_rpad), int, str),
    "trim": _with_constants(_trim(pc.utf8_trim), str),
    "ltrim": _with_constants(_trim(pc.utf8_ltrim), str),
    "rtrim": _with_constants(_trim(pc.utf8_rtrim), str),
    "replace": _with_constants(_replace, str, str),
    "contains": _with_constants(lambda part: lambda x: pc.match_substring(x, part), str),
    "starts_with": _with_constants(lambda part: lambda x: pc.starts_with(x, part), str),
    "ends_with": _with_constants(lambda part: lambda x: pc.ends_with(x, part), str),
    "strpos": _with_constants(_strpos, str),
    "like": _with_constants(_like, str, str),
    "ilike": _with_constants(_ilike, str, str),
    "regexp_matches": _with_constants(lambda pattern: lambda x: pc.match_substring_regex(x, pattern), str),
    "regexp_replace": _with_constants(_regexp_replace, str, str, str),
    "regexp_extract": _regexp_extract,
}
