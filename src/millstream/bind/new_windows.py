"""ALTER QUERY … SET WINDOW: the text of a query with another window."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.scope import did_you_mean
from millstream.catalog import Catalog
from millstream.records import dataclass
from millstream.sql import parse, to_sql
from millstream.sql.nodes import Slide, WindowTable
from millstream.sql.relations import StreamWindow, Windowed

_SIZED = ("TUMBLE", "HOP", "CUMULATE")


@dataclass(frozen=True)
class _Place:
    """A window of a query: the item of FROM whose rows are in it, and how another one takes its place."""

    names: tuple[str, ...]
    put: Callable[[StreamWindow, Context], None]

    def is_on(self, stream: str | None) -> bool:
        return stream is None or stream.lower() in map(str.lower, self.names)


def rewindowed(text: str, stream: str | None, window: StreamWindow, catalog: Catalog) -> str:
    """The text of a query with another window: in FROM, of TUMBLE, HOP or CUMULATE, or of OVER."""
    ast = parse(text)[0].ast
    context = Context(catalog, text)
    found = [*_in_from(ast), *_in_tables(ast), *_in_over(ast)]
    named = [place for place in found if place.is_on(stream)]
    if len(named) != 1:
        names = sorted({place.names[-1] for place in found if place.names})
        message = f"the query has {'no window' if not named else 'several windows'}"
        hint = "use ALTER QUERY … AS"
        if len(names) > 1 or (names and not named):
            hint = f"SET WINDOW ON {' or '.join(names)}"
        if stream is not None:
            message, hint = f"{message} on {stream}", (None if named else did_you_mean(stream, names)) or hint
        context.fail(message, ast, hint=hint)
    named[0].put(window.copy(), context)
    return to_sql(ast)


def _in_from(ast: exp.Expr) -> Iterator[_Place]:
    for item in ast.find_all(Windowed):
        if item.window is not None:
            yield _Place((item.name, *([item.alias] * bool(item.alias))), _Behind(item))


@dataclass(frozen=True)
class _Behind:
    """A window behind an item of FROM."""

    item: Windowed

    def __call__(self, window: StreamWindow, context: Context) -> None:
        before = self.item.window
        assert isinstance(before, StreamWindow)
        if window.preceding:
            context.fail("a window in FROM always holds the latest rows", before, hint="write it without PRECEDING")
        if window.kind == "ROWS" and before.kind == "ROWS":
            for part in ("partition", "delete"):
                if not window.args.get(part) and before.args.get(part):
                    window.set(part, before.args[part])
        self.item.set("window", window)


def _in_tables(ast: exp.Expr) -> Iterator[_Place]:
    for table in ast.find_all(WindowTable):
        if table.kind in _SIZED:
            outer = table.parent
            names = (table.this.alias_or_name, outer.alias if isinstance(outer, exp.Table) else "")
            yield _Place(tuple(filter(None, names)), _Sized(table))


@dataclass(frozen=True)
class _Sized:
    """TUMBLE, HOP or CUMULATE. With a slide, TUMBLE is HOP."""

    table: WindowTable

    def __call__(self, window: StreamWindow, context: Context) -> None:
        table = self.table
        if window.kind != "RANGE" or window.size is None or window.preceding:
            context.fail(f"windows of {table.kind} have a length of time", table, hint="SET WINDOW RANGE 1 MINUTE")
        table.set("size", window.size)
        if window.slide is not None:
            table.set("slide", window.slide)
            table.set("kind", "HOP" if table.kind == "TUMBLE" else table.kind)


def _in_over(ast: exp.Expr) -> Iterator[_Place]:
    """Calls with OVER that have the same frame in one SELECT are one window."""
    frames: dict[tuple[int, str], tuple[exp.Select, list[exp.WindowSpec]]] = {}
    for spec in ast.find_all(exp.WindowSpec):
        select = spec.find_ancestor(exp.Select)
        if select is not None and spec.args.get("start_side") == "PRECEDING" and not spec.args.get("end_side"):
            frames.setdefault((id(select), to_sql(spec)), (select, []))[1].append(spec)
    for select, specs in frames.values():
        item = None if select.args.get("joins") else select.args.get("from_")
        names = () if item is None else (item.this.name, item.this.alias)
        yield _Place(tuple(filter(None, names)), _Frames(tuple(specs)))


@dataclass(frozen=True)
class _Frames:
    """The frames of OVER."""

    specs: tuple[exp.WindowSpec, ...]

    def __call__(self, window: StreamWindow, context: Context) -> None:
        first = self.specs[0]
        if window.kind == "ROWS" and not window.preceding:
            hint = "SET WINDOW ROWS 9 PRECEDING: the row and the nine before it"
            context.fail("the length of a window of OVER does not count its row", first, hint=hint)
        if window.partition or window.delete is not None or window.now or window.args.get("lateness"):
            context.fail("a window of OVER has a length and a slide", first, hint="SET WINDOW RANGE 1 MINUTE PRECEDING")
        for spec in self.specs:
            spec.set("kind", window.kind)
            spec.set("start", "UNBOUNDED" if window.size is None else window.size.copy())
            spec.set("slide", None if window.slide is None else Slide(this=window.slide.copy()))
