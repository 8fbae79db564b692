"""Changes to the whole text of generated source that make its loops cheap."""

from __future__ import annotations

import re

_RAISE = re.compile(r"raise OverflowError\(.*\)")
_DEFINITION = re.compile(r"^def (k_\w+)\(", re.MULTILINE)
_BOUNDED = re.compile(r"^( *)(v_\w+) = k_in_range\((.*), -(\d+), \d+\)$")
_INDEXED = re.compile(
    r"\b((?:[cf]|heads|order|arg|ok|out|null)\d+|records?|origin|stamp|time|slots|ids)\[([^\[\]]*)\]",
)


def untroubled(source: str) -> str:
    """Source in which helpers that raise note the trouble instead, and give 0."""
    raising = []
    for text in re.split(r"\n\n(?=def )", source):
        name = _DEFINITION.match(text)
        if name is not None and _RAISE.search(text):
            raising.append(name[1])
    lines = []
    for line in source.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines += [f"{indent}trouble[0] = OVERFLOW", f"{indent}return 0"] if _RAISE.search(line) else [line]
    text = "\n".join(lines)
    for helper in raising:
        text = re.sub(rf"\b{helper}\(", f"{helper}(trouble, ", text)
    return text


def gathered(line: str) -> list[str]:
    """An assignment of what must lie within bounds: `wrong` gathers whether it ever does not. That costs no branch, and
    nothing waits for it."""
    found = _BOUNDED.match(line)
    if found is None or not _is_whole(found[3]):
        return [line]
    indent, variable, value, low = found.groups()
    bits = int(low).bit_length()
    return [f"{indent}{variable} = {value}", f"{indent}wrong |= ({variable} + {low}) >> {bits}"]


def _is_whole(text: str) -> bool:
    """Whether no parenthesis of a text is closed by one outside, or closes one there."""
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0


def placed(source: str) -> str:
    """Source whose indexes are known not to be negative."""
    count = 1
    while count:
        # From the innermost outwards: what is done is marked, so that it does not match again.
        source, count = _INDEXED.subn(r"\1⟦place(\2)⟧", source)
    return source.replace("⟦", "[").replace("⟧", "]")
