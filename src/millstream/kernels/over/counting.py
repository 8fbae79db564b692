"""Pieces of generated source: tables that count equal values of a key, for DISTINCT.

An entry is three lanes: the offset of the key's record + 1, the value's word, its count. Probing is linear.
"""

from __future__ import annotations


def word_of(kind: str, bits: str) -> list[str]:
    """`word`: a value's bits such that equal values have equal words; floats have one zero and one NaN."""
    lines = [f"word = {bits}"]
    if kind == "float":
        lines += [
            "if word == NULL_INT:",
            "    word = np.int64(0)",
            "elif word & 0x7FFF_FFFF_FFFF_FFFF > 0x7FF0_0000_0000_0000:",
            "    word = np.int64(0x7FF8_0000_0000_0000)",
        ]
    return lines


def find(table: str, owner: str, word: str, place: str) -> list[str]:
    """The entry of a word of the record at `owner`, or the free place where it would be."""
    return [
        f"table_mask = len({table}) // 3 - 1",
        f"hashed = ({word} * MULTIPLIER) ^ {owner}",
        "hashed = (hashed ^ ((hashed >> 32) & LOW_HALF)) * MULTIPLIER",
        f"{place} = 3 * (((hashed >> 32) & LOW_HALF) & table_mask)",
        f"while {table}[{place}] != 0 and ({table}[{place}] != {owner} + 1 or {table}[{place} + 1] != {word}):",
        f"    {place} = 3 * (({place} // 3 + 1) & table_mask)",
    ]


def count_in(table: str, used: str) -> list[str]:
    """Count one more of `word`; `changed` tells whether it is the first."""
    return [
        *find(table, "s", "word", "entry"),
        f"{table}[entry + 2] += 1",
        f"changed = {table}[entry] == 0",
        "if changed:",
        f"    {table}[entry] = s + 1",
        f"    {table}[entry + 1] = word",
        f"    {used} += 1",
    ]


def count_out(table: str, used: str) -> list[str]:
    """Count one less of `word`; `changed` tells whether it was the last."""
    return [
        *find(table, "s", "word", "entry"),
        f"{table}[entry + 2] -= 1",
        f"changed = {table}[entry + 2] == 0",
        "if changed:",
        f"    {used} -= 1",
        f"    {table}[entry] = 0",
        "    # Entries behind the hole that would no longer be found move into it.",
        "    entry = 3 * ((entry // 3 + 1) & table_mask)",
        f"    while {table}[entry] != 0:",
        f"        owner = {table}[entry] - 1",
        f"        moved = {table}[entry + 1]",
        f"        count = {table}[entry + 2]",
        f"        {table}[entry] = 0",
        f"        {table}[entry + 2] = 0",
        *(f"        {line}" for line in find(table, "owner", "moved", "there")),
        f"        {table}[there] = owner + 1",
        f"        {table}[there + 1] = moved",
        f"        {table}[there + 2] = count",
        "        entry = 3 * ((entry // 3 + 1) & table_mask)",
    ]


CONSTANTS = "MULTIPLIER = -7046029254386353131\nLOW_HALF = 0xFFFF_FFFF\n"

_REFILL = "\n        ".join(find("table", "owner", "word", "there"))
REFILL = f"""\
{CONSTANTS}

def refill(entries, table):
    for i in range(len(entries)):
        owner = entries[i, 0] - 1
        word = entries[i, 1]
        {_REFILL}
        table[there] = owner + 1
        table[there + 1] = word
        table[there + 2] = entries[i, 2]
"""
