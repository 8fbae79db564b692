"""Kernel source: the slots of keys in a hash index, for any shape of keys."""

from __future__ import annotations

from millstream.kernels.jit import source_of
from millstream.kernels.keys import byte_loops, row_loops
from millstream.kernels.source.writer import filled
from millstream.records import dataclass

_TEMPLATE = """\
from millstream.kernels.jit.primitives import place

COUNT, NULL_SLOT, FREE, USED, ARENA = 0, 1, 2, 3, 4
MULTIPLIER = -7046029254386353131
LOW_HALF = 0xFFFFFFFF


def find(<given>, index_hash, index_slot, meta, slots, start, stop, <stored>):
    # The slots of known keys, -1 for others; gives back how many are unknown.
    mask = len(index_slot) - 1
    unknown = 0
    for i in range(start, stop):
        if <is_null>:
            slot = meta[NULL_SLOT]
        else:
            <key>
            at = hashed & mask
            <seek>
        slots[place(i)] = slot
        if slot < 0:
            unknown += 1
    return unknown


def add(<given>, index_hash, index_slot, meta, slots, start, <stored>, hash_of, kind_of, free):
    # Slots for the rows that `find` left at -1; gives back the row at which room ran out, or the end.
    mask = len(index_slot) - 1
    for i in range(start, len(slots)):
        if slots[i] >= 0:
            continue
        is_null = <is_null>
        <key>
        at = hashed & mask
        if is_null:
            slot = meta[NULL_SLOT]
        else:
            <seek>
        if slot < 0:
            if 2 * meta[USED] >= len(index_slot) or (meta[FREE] == 0 and meta[COUNT] == len(hash_of)):
                return i
            <room>
            if meta[FREE] > 0:
                meta[FREE] -= 1
                slot = free[meta[FREE]]
            else:
                slot = meta[COUNT]
                meta[COUNT] += 1
            meta[USED] += 1
            <store>
            hash_of[slot] = hashed
            if is_null:
                kind_of[slot] = 2
                meta[NULL_SLOT] = slot
            else:
                kind_of[slot] = 1
                index_hash[at] = hashed
                index_slot[at] = slot
        slots[i] = slot
    return len(slots)
"""


@dataclass(frozen=True)
class KeyShape:
    """What differs between keys: the arrays that they come in and are kept in, and lines that hash row i of them as
    `hashed`, ask whether that is all there is to know of the key in `slot`, and keep it there."""

    given: str
    stored: str
    key: tuple[str, ...]
    is_same: str
    store: tuple[str, ...]
    room: tuple[str, ...] = ()
    nullable: bool = True
    helpers: str = ""

    @property
    def source(self) -> str:
        """A module with `find` and `add`."""
        is_null = "nulls and not valid[place(i)]" if self.nullable else "False"
        given = f"{self.given}, valid, nulls" if self.nullable else self.given
        head = _TEMPLATE.replace("<given>", given).replace("<stored>", self.stored).replace("<is_null>", is_null)
        seek = [
            "slot = index_slot[place(at)]",
            f"while slot >= 0 and not ({self.is_same}):",
            "    at = (at + 1) & mask",
            "    slot = index_slot[place(at)]",
        ]
        return self.helpers + filled(head, key=self.key, seek=seek, room=self.room, store=self.store)


INTS = KeyShape(
    # the hash is a bijection of the key, so equal hashes are equal keys
    "keys", "key_of",
    ("key = keys[place(i)]", "hashed = (key ^ ((key >> 32) & LOW_HALF)) * MULTIPLIER",
     "hashed ^= (hashed >> 32) & LOW_HALF"),
    "index_hash[place(at)] == hashed",
    ("key_of[slot] = key",),
)  # fmt: skip

ROWS = KeyShape(
    "words", "words_of",
    ("hashed = hash_words(words, i)",),
    "index_hash[place(at)] == hashed and same_words(words, i, words_of, slot)",
    ("for j in range(words.shape[1]):", "    words_of[slot, j] = words[i, j]"),
    nullable=False, helpers=source_of(row_loops),
)  # fmt: skip

BYTES = KeyShape(
    "offsets, data", "start_of, length_of, arena",
    ("begin = np.int64(offsets[place(i)])", "length = np.int64(offsets[place(i + 1)]) - begin",
     "hashed = hash_bytes(data, begin, length)"),
    "index_hash[place(at)] == hashed and length_of[slot] == length"
    " and same_bytes(data, begin, arena, start_of[slot], length)",
    ("start_of[slot] = meta[ARENA]", "length_of[slot] = length", "for j in range(length):",
     "    arena[meta[ARENA] + j] = data[begin + j]", "meta[ARENA] += length"),
    ("if is_null:", "    length = np.int64(0)", "if meta[ARENA] + length > len(arena):", "    return i"),
    helpers=source_of(byte_loops),
)  # fmt: skip
