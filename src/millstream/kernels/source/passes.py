"""Passes over the text of kernel source: its syntax tree tells what to change where, and all else stays as written."""

from __future__ import annotations

import ast
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from symtable import symtable
from typing import Any, TypeVar

Edit = tuple[int, int, str]
"""What stands between two places of a text becomes another text."""

_Node = TypeVar("_Node", bound=ast.AST)

_one_at_a_time = threading.RLock()


def parsed(text: str) -> ast.Module:
    """The syntax tree of source. Threads take turns: Python 3.11 counts the depth of trees for all of them together,
    and fails if another thread parses meanwhile, as it may when garbage is collected."""
    with _one_at_a_time:
        return ast.parse(text)


class LoopSource:
    """Source with the nodes of its tree, and where these lie in the text."""

    def __init__(self, text: str) -> None:
        # places are counted in bytes, which are characters here
        assert text.isascii(), "kernel source has no text of users in it"
        self.text = text
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._nodes: dict[type[ast.AST], list[Any]] = defaultdict(list)
        waiting: list[ast.AST] = [parsed(text)]
        while waiting:
            node = waiting.pop()
            self._nodes[type(node)].append(node)
            for name in node._fields:
                part = getattr(node, name, None)
                if isinstance(part, ast.AST):
                    waiting.append(part)
                elif isinstance(part, list):
                    waiting += (each for each in part if isinstance(each, ast.AST))

    def all(self, kind: type[_Node]) -> list[_Node]:
        """The nodes of a kind."""
        return self._nodes[kind]

    def begin(self, node: Any) -> int:
        return int(self._lines[node.lineno - 1] + node.col_offset)

    def end(self, node: Any) -> int:
        return int(self._lines[node.end_lineno - 1] + node.end_col_offset)

    def edited(self, edits: Iterable[Edit]) -> str:
        """The text after edits that do not overlap."""
        parts, at = [], 0
        for begin, end, text in sorted(edits):
            parts += [self.text[at:begin], text]
            at = end
        return "".join([*parts, self.text[at:]])


def imports_of(library: str, names: Iterable[str], own: str) -> tuple[str, ...]:
    """The import of those names of a library that source uses and does not define."""
    wanted = [name for name in names if name in _foreign(own)]
    return (f"from {library} import {', '.join(wanted)}",) if wanted else ()


@lru_cache(maxsize=256)
def _foreign(text: str) -> frozenset[str]:
    """The names that source uses and does not define. Queries of the same shape have the same source, and looking
    through it takes longer than most else that starting one does."""
    scopes = [symtable(text, "<loops>", "exec")]
    for scope in scopes:
        scopes += scope.get_children()
    symbols = [symbol for scope in scopes for symbol in scope.get_symbols()]
    defined = {symbol.get_name() for symbol in symbols if symbol.is_assigned()}
    return frozenset(symbol.get_name() for symbol in symbols if symbol.is_referenced()) - defined


def decorated(text: str, decorator: str, module_of: Callable[[str], str]) -> str:
    """Source whose functions have a decorator, and which imports from other modules."""
    lines = text.splitlines(keepends=True)
    for node in parsed(text).body:
        at = node.lineno - 1
        if isinstance(node, ast.FunctionDef):
            lines[at] = decorator + lines[at]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            lines[at] = lines[at].replace(node.module, module_of(node.module), 1)
    return "".join(lines)


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Source with other names for some of its variables."""
    source = LoopSource(text)
    used = (node for node in source.all(ast.Name) if node.id in names)
    return source.edited((source.begin(node), source.end(node), names[node.id]) for node in used)


def untroubled(text: str, array: str, lane: str) -> str:
    """Source in which helpers that raise OverflowError note the trouble in a lane of an array instead, and give 0."""
    source = LoopSource(text)
    return source.edited(_noted(source, array, lane, []))


def lean(text: str, array: str, lane: str, is_array: Callable[[str], bool]) -> str:
    """Source whose loops are cheap: helpers note trouble as in `untroubled`; `wrong` gathers whether a variable is ever
    assigned what must lie within bounds and does not, which costs no branch, and nothing waits for it; and indexes of
    some arrays are known not to be negative."""
    source = LoopSource(text)
    bounded = [(node, *found) for node in source.all(ast.Assign) if (found := _bounded(node)) is not None]
    edits = list(_noted(source, array, lane, [node.value for node, *_ in bounded]))
    for node, variable, value, low in bounded:
        edits.append((source.begin(node.value), source.begin(value), ""))
        check = f"{' ' * node.col_offset}wrong |= ({variable} + {low}) >> {low.bit_length()}"
        edits.append((source.end(value), source.end(node), f"\n{check}"))
    for subscript in source.all(ast.Subscript):
        if isinstance(subscript.value, ast.Name) and is_array(subscript.value.id):
            begin, end = source.begin(subscript.slice), source.end(subscript.slice)
            edits += [(begin, begin, "place("), (end, end, ")")]
    return source.edited(edits)


def _bounded(node: ast.Assign) -> tuple[str, ast.expr, int] | None:
    """The variable, the value and the negative of the least value, of an assignment of what must lie within bounds."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=variable)],
            value=ast.Call(
                func=ast.Name(id="k_in_range"),
                args=[value, ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(low))), _],
            ),
        ):
            return variable, value, low
    return None


def _noted(source: LoopSource, array: str, lane: str, but: list[ast.expr]) -> Iterator[Edit]:
    """The edits of `untroubled`, for all calls but some."""
    raising = set()
    for function in source.all(ast.FunctionDef):
        raises = list(_overflows(function)) if function.name.startswith("k_") else []
        if raises:
            raising.add(function.name)
            at = source.begin(function.args.args[0])
            yield at, at, f"{array}, "
        for node in raises:
            yield source.begin(node), source.end(node), f"{array}[{lane}] = OVERFLOW\n{' ' * node.col_offset}return 0"
    for call in source.all(ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id in raising and call not in but:
            at = source.end(call.func) + 1
            yield at, at, f"{array}, "


def _overflows(function: ast.FunctionDef) -> Iterator[ast.Raise]:
    for node in ast.walk(function):
        match node:
            case ast.Raise(exc=ast.Call(func=ast.Name(id="OverflowError"))):
                yield node
