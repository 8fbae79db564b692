"""A pattern as instructions for threads that advance row by row.

Each instruction tells where to go on. The preferred way through the instructions is the preferred match.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from millstream.errors import UnsupportedError
from millstream.expressions.nodes import Expr
from millstream.kernels.batch import Ints
from millstream.plan.patterns.expressions import (
    Check,
    Edge,
    Either,
    Excluded,
    Pattern,
    Permute,
    Repeat,
    Sequence,
    Variable,
    walk_pattern,
)
from millstream.records import dataclass

TAKE, TRY, SPLIT, JUMP, AT_FIRST, AT_END, CHECK, ACCEPT, FAIL = range(9)

MOST = 20_000
"""More instructions than this are refused."""

WIDTH = 4
"""An instruction is its kind, what it is about, and two addresses:

- TAKE a row with the label `what`, then go to `next`; without it the thread ends;
- TRY the same; without it, go to `else`;
- SPLIT: go to `else` in preference to `next`;
- JUMP, and AT_FIRST, AT_END and CHECK number `what`, if that holds: go to `next`;
- ACCEPT what has been taken; FAIL.

A label is twice the number of a variable, and 1 more if the row is excluded.
"""

Block = list[list[int]]
"""Instructions whose addresses count from their first; behind the last one is where they lead to."""


@dataclass(frozen=True)
class Instructions:
    """A pattern's instructions, the conditions of its checks, and whether the first row of a partition matters."""

    code: Ints
    checks: tuple[Expr, ...]
    anchored: bool

    def __len__(self) -> int:
        return len(self.code) // WIDTH


def instructions(pattern: Pattern, variables: tuple[str, ...]) -> Instructions:
    """What finds the matches of a pattern; UnsupportedError if that is too long."""
    writer = _Writer(variables)
    block = [*writer.block(pattern), [ACCEPT, 0, 0, 0]]
    anchored = any(isinstance(part, Edge) and not part.end for part in walk_pattern(pattern))
    return Instructions(np.array(block, dtype=np.int64).reshape(-1), tuple(writer.checks), anchored)


class _Writer:
    def __init__(self, variables: tuple[str, ...]) -> None:
        self._numbers = {name: number for number, name in enumerate(variables)}
        self.checks: list[Expr] = []
        self._is_excluded = False

    def block(self, pattern: Pattern) -> Block:
        match pattern:
            case Variable():
                return [[TAKE, self._label(pattern), 0, 1]]
            case Sequence():
                return _joined([self.block(item) for item in pattern.items])
            case Either():
                return _either([self.block(option) for option in _factored(pattern.options)])
            case Permute(items=items):
                return _permuted([self.block(item) for item in items])
            case Repeat():
                return self._repeat(pattern)
            case Excluded():
                before, self._is_excluded = self._is_excluded, True
                block = self.block(pattern.body)
                self._is_excluded = before
                return block
            case Edge():
                return [[AT_END if pattern.end else AT_FIRST, 0, 0, 1]]
            case Check():
                if pattern.condition not in self.checks:
                    self.checks.append(pattern.condition)
                return [[CHECK, self.checks.index(pattern.condition), 0, 1]]
        raise ValueError(f"{pattern} is not a pattern")

    def _label(self, variable: Variable) -> int:
        return 2 * self._numbers[variable.name] + self._is_excluded

    def _repeat(self, repeat: Repeat) -> Block:
        if repeat.greed == "possessive":
            return self._possessive(repeat)
        body = self.block(repeat.body)
        first = _times(body, repeat.least)
        count = 1 if repeat.most is None else repeat.most - repeat.least
        size = 2 * len(body) + 1 if _is_nullable(repeat.body) else len(body)
        _require(len(first) + count * (size + 1))
        # Behind the only copy of a loop is the jump back.
        end = count * (size + 1) + (repeat.most is None)
        rest: Block = []
        for i in range(count):
            start = i * (size + 1)
            ways = (start + 1, end) if repeat.greed == "greedy" else (end, start + 1)
            more = _once(body, end - start - 1) if _is_nullable(repeat.body) else body
            rest += [[SPLIT, 0, *ways], *_shifted(more, start + 1)]
        return _joined([first, [*rest, [JUMP, 0, 0, 0]] if repeat.most is None else rest])

    def _possessive(self, repeat: Repeat) -> Block:
        options = self._single_rows(repeat.body)
        size = len(options)
        # What must be there ends the thread if it is not.
        needed = [[TRY, label, i + 1, size + 1] for i, label in enumerate(options)] + [[FAIL, 0, 0, 0]]
        first = _times(needed, repeat.least)
        if repeat.most is None:
            return _joined([first, [[TRY, label, i + 1, 0] for i, label in enumerate(options)]])
        count = repeat.most - repeat.least
        _require(len(first) + count * size)
        end = count * size
        rest = [
            [TRY, label, i * size + j + 1 if j + 1 < size else end, (i + 1) * size]
            for i in range(count)
            for j, label in enumerate(options)
        ]
        return _joined([first, rest])

    def _single_rows(self, body: Pattern) -> list[int]:
        match body:
            case Variable():
                return [self._label(body)]
            case Either():
                return [label for option in body.options for label in self._single_rows(option)]
            case Excluded():
                before, self._is_excluded = self._is_excluded, True
                labels = self._single_rows(body.body)
                self._is_excluded = before
                return labels
            case Sequence(items=(alone,)):
                return self._single_rows(alone)
        raise UnsupportedError(f"{body} cannot be a possessive repetition", hint="repeat a single variable")


def _is_nullable(pattern: Pattern) -> bool:
    match pattern:
        case Variable():
            return False
        case Either():
            return any(map(_is_nullable, pattern.options))
        case Repeat():
            return pattern.least == 0 or _is_nullable(pattern.body)
        case _:
            return all(map(_is_nullable, pattern.parts()))


def _shifted(block: Block, by: int) -> Block:
    return [[op, what, other + by, following + by] for op, what, other, following in block]


def _joined(blocks: list[Block]) -> Block:
    _require(sum(map(len, blocks)))
    joined: Block = []
    for block in blocks:
        joined += _shifted(block, len(joined))
    return joined


def _times(block: Block, times: int) -> Block:
    _require(len(block) * times)
    return _joined([block] * times)


def _either(options: list[Block]) -> Block:
    _require(sum(map(len, options)) + 2 * len(options))
    size = sum(map(len, options)) + 2 * (len(options) - 1)
    block: Block = []
    for option in options[:-1]:
        start = len(block)
        block += [[SPLIT, 0, start + 1, start + len(option) + 2], *_shifted(option, start + 1), [JUMP, 0, 0, size]]
    return block + _shifted(options[-1], len(block))


def _permuted(items: list[Block]) -> Block:
    """All items in any order. For each set of items that are still to come there is a choice of the next one, in their
    order; so the preferred way is that of the first order which matches, and there are 2ⁿ places instead of n! ways."""
    sets = range(2 ** len(items) - 1, 0, -1)
    coming = {left: [i for i in range(len(items)) if left >> i & 1] for left in sets}
    sizes = {left: sum(len(items[i]) + 2 for i in own) - 1 for left, own in coming.items()}
    _require(sum(sizes.values()))
    starts: dict[int, int] = {}
    end = 0
    for left in sets:
        starts[left] = end
        end += sizes[left]
    starts[0] = end
    block: Block = []
    for left, own in coming.items():
        for i in own:
            start = len(block)
            if i != own[-1]:
                block.append([SPLIT, 0, start + 1, start + len(items[i]) + 2])
            block += [*_shifted(items[i], len(block)), [JUMP, 0, 0, starts[left & ~(1 << i)]]]
    return block


def _once(body: Block, end: int) -> Block:
    """A repetition; one without a row leads to `end`, the end of all. The block is that as long as no row has been
    taken, and the first one leads to the same place in a second copy."""
    size = len(body)
    none_yet = [
        [op, what, other, following + size + 1 if op in (TAKE, TRY) else following]
        for op, what, other, following in body
    ]
    return [*none_yet, [JUMP, 0, 0, end], *_shifted(body, size + 1)]


def _factored(options: tuple[Pattern, ...]) -> list[Pattern]:
    """Alternatives of which neighbours that begin with the same variable do so once. Their order stays: there is one
    way to take a row."""
    factored: list[Pattern] = []
    for first, group in groupby(options, _leading):
        same = list(group)
        if first is None or len(same) == 1:
            factored += same
        else:
            rests = tuple(Sequence(one.items[1:]) if isinstance(one, Sequence) else Sequence() for one in same)
            factored.append(Sequence((first, Either(rests))))
    return factored


def _leading(option: Pattern) -> Variable | None:
    first = option.items[0] if isinstance(option, Sequence) and option.items else option
    return first if isinstance(first, Variable) else None


def _require(size: int) -> None:
    if size > MOST:
        raise UnsupportedError(
            "the pattern is too long", detail=f"it has more than {MOST} steps", hint="use fewer repetitions"
        )
