"""Windows in FROM: how events become a relation, and how a relation becomes events again."""

from __future__ import annotations

from collections.abc import Iterable
from math import lcm
from typing import NoReturn

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.lengths import own_length
from millstream.bind.scope import Item, Scope, did_you_mean
from millstream.bind.windows.tables import with_late_rows
from millstream.catalog import CURRENT_TIME, Clock, TableDef
from millstream.expressions import functions
from millstream.expressions.nodes import Column, Literal
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.annotations import is_chronon
from millstream.sql import duration_us
from millstream.sql.relations import Granularity, StreamWindow, Windowed
from millstream.types import BIGINT, BOOLEAN

NOW = R.RangeWindow(1)
FOR_EVER = R.RangeWindow(None)
_LONGEST = 2**60


def bind_windowed(node: Windowed, rows: P.Node, alias: str, context: Context) -> P.Node:
    """The relation that a window, a granularity or both make of rows."""
    window, granularity = node.args.get("window"), node.args.get("granularity")
    if rows.kind is P.Kind.TABLE:
        context.refuse(
            "a window needs a stream",
            node,
            detail="a table's rows have no time, so they never leave a window",
            hint="leave the window out, or declare a stream with ORDER BY column",
        )
    plan = rows
    if window is not None:
        events = _as_events(rows, window, context)
        if (late := window.args.get("lateness")) is not None:
            events = with_late_rows(events, _span(late, "LATENESS", events, context), window, context)
        item = Item(alias, events.schema, source=node.name)
        plan = _without_deleted(R.Window(events, _window(window, events, alias, context)), window, item, context)
    if granularity is not None:
        plan = as_relation(plan)
        plan = R.Coarsen(plan, _granule(granularity, plan, context))
    return plan


def as_relation(plan: P.Node) -> P.Node:
    """Events that stand among relations are valid at their own instant only."""
    return R.Window(plan, NOW) if plan.kind is P.Kind.EVENTS else plan


def to_events(how: str, plan: P.Node, node: exp.Expr, context: Context) -> P.Node:
    """ISTREAM, DSTREAM or RSTREAM of a relation."""
    if plan.kind is P.Kind.EVENTS:
        context.refuse(
            f"{how.upper()} takes a relation, not events",
            node,
            hint="give its streams windows: FROM s WINDOW(RANGE 10 SECONDS)",
        )
    if plan.kind is not P.Kind.RELATION:
        return _table_changes(how.upper(), plan, node, context)
    match how.upper():
        case "ISTREAM":
            # What never leaves appears exactly when it happens.
            return _unwindowed(plan, FOR_EVER) or R.ToEvents(plan, "istream")
        case "DSTREAM":
            return R.ToEvents(plan, "dstream")
    return _unwindowed(plan, NOW) or R.ToEvents(plan, "rstream", _rate(plan, node, context))


def _table_changes(how: str, plan: P.Node, node: exp.Expr, context: Context) -> P.Node:
    """The rows that come into a stored table, or leave it, as events."""
    table = plan.input if isinstance(plan, P.Project) and _is_whole(plan) else plan
    if how == "RSTREAM" or not isinstance(table, P.TableScan):
        context.refuse(
            f"{how} takes a relation{' or a stored table' if how != 'RSTREAM' else ''}, not "
            f"{'a stored table' if how == 'RSTREAM' else 'a query over stored tables'}",
            node,
            hint="read the changes of one table first: SELECT … FROM ISTREAM(t) WHERE …",
        )
    entry = context.catalog.get(table.table, TableDef)
    if CURRENT_TIME in entry.schema:
        context.refuse(
            f"{how} of a table with a column {CURRENT_TIME}",
            node,
            detail="the events have a column of that name, with the time of the change",
            hint="give the table's column another name",
        )
    changes = entry.changes(how)
    return P.Scan(changes.name, changes.schema)


def _is_whole(plan: P.Project) -> bool:
    """Whether it gives all columns of its input as they are."""
    return [(name, expr) for name, expr in plan.columns] == [
        (field.name, Column(field.type, field.name)) for field in plan.input.schema
    ]


def check_clocks(plans: Iterable[P.Node], word: str, node: exp.Expr, context: Context) -> None:
    """Refuse to bring streams together whose times cannot be compared."""
    known = list(plans)
    clocks = set().union(*map(context.clocks_of, known))
    if Clock.LATENT in clocks and len(clocks) > 1:
        context.refuse(
            f"{word} of a stream with times and one without",
            node,
            hint="declare the other with ORDER BY column or ORDER BY current_time",
        )
    types = {context.time_type(plan) for plan in known if plan.kind is P.Kind.RELATION}
    if BIGINT in types and len(types) > 1:
        context.refuse(
            f"{word} of a stream ordered by a number and one ordered by time",
            node,
            hint="declare both with ORDER BY a column of the same kind",
        )


# -- windows -----------------------------------------------------------------------------------------------------------


def _as_events(rows: P.Node, node: exp.Expr, context: Context) -> P.Node:
    """The rows that a window is to be laid over: those of a relation are split into one for each instant."""
    if rows.kind is P.Kind.EVENTS:
        return rows
    if (events := _unwindowed(rows, NOW)) is not None:
        return events
    if _is_too_fine(rows, context):
        context.refuse(
            "a window over a relation would count every row in every microsecond",
            node,
            detail="its rows are already valid for some time, and a window counts each instant",
            hint="set a granularity: … GRANULARITY(1 SECOND) WINDOW(RANGE …), or turn it into events: ISTREAM(…)",
        )
    return R.ToEvents(rows, "rstream", _granularity(rows))


def _unwindowed(plan: P.Node, window: R.RangeWindow) -> P.Node | None:
    """The events below such a window, if nothing but filters and projections stand above it."""
    match plan:
        case R.Window(input=events, window=own) if own == window:
            return events
        case P.Filter(input=below) | P.Project(input=below):
            found = _unwindowed(below, window)
            return None if found is None else plan.with_inputs((found,))
    return None


def _window(node: StreamWindow, events: P.Node, alias: str, context: Context) -> R.WindowKind:
    if node.args.get("now"):
        return NOW
    by = tuple(_column(column, events, alias, context) for column in node.args.get("partition") or [])
    size = node.args.get("most") or node.args.get("size")
    least, slide = node.args.get("least"), node.args.get("slide")
    if str(node.args["kind"]).upper() == "ROWS":
        own = own_length(size, context, counted=True) if least is None else None
        rows = own or (None if size is None else _count(size, "ROWS", context))
        if least is not None and isinstance(rows, int) and _count(least, "ROWS", context) > rows:
            context.fail("MIN is greater than MAX", least)
        every = 1 if slide is None else _count(slide, "SLIDE", context)
        # of rows that never leave it does not matter in which partition they are
        return FOR_EVER if rows is None and every == 1 else R.RowsWindow(rows, by, every)
    own = own_length(size, context, counted=context.time_type(events) == BIGINT)
    if own is not None and least is None and slide is None and _granularity(events) == 1:
        return R.OwnRange(own)
    length = None if size is None else _span(size, "RANGE", events, context)
    if least is not None and length is not None and _span(least, "RANGE", events, context) > length:
        context.fail("MIN is greater than MAX", least)
    step = 1 if slide is None else _span(slide, "SLIDE", events, context)
    granule = _granularity(events)
    for word, given, span in (("RANGE", size, length), ("SLIDE", slide, step)):
        if given is not None and span is not None and span % granule:
            _refuse_granule(f"this {word} is not a multiple of the GRANULARITY below it", given, context)
    return R.RangeWindow(length, step)


def _without_deleted(plan: R.Window, node: StreamWindow, item: Item, context: Context) -> P.Node:
    """A changelog's rows: the latest row of each key, unless it says that the key is deleted."""
    if node.delete is None:
        return plan
    window = plan.window
    if not isinstance(window, R.RowsWindow) or window.rows != 1 or not window.by or window.slide != 1:
        context.refuse(
            "DELETE WHEN needs the latest row of each key",
            node.delete,
            detail="a deletion ends the row with its key",
            hint="s [PARTITION BY key ROWS 1 DELETE WHEN …]",
        )
    deletes = ExpressionBinder(context, Scope(context, (item,))).condition(node.delete)
    return P.Filter(plan, functions.resolve("is_distinct", (deletes, Literal(BOOLEAN, True))))


def _column(node: exp.Expr, events: P.Node, alias: str, context: Context) -> str:
    if node.name not in events.schema or (
        isinstance(node, exp.Column) and node.table and node.table.lower() != alias.lower()
    ):
        context.fail(f"no column {node.sql()}", node, hint=did_you_mean(node.name, list(events.schema.names)))
    return events.schema[node.name].name


def _count(node: exp.Expr, word: str, context: Context) -> int:
    number = _number(node)
    if number is None:
        context.fail(f"{word} takes a number of rows", node, hint="for time write RANGE 10 SECONDS")
    if number <= 0:
        context.fail(f"{word} takes at least one row", node)
    return number


def _span(node: exp.Expr, word: str, rows: P.Node, context: Context) -> int:
    """A length of time, or a number where streams are ordered by one."""
    number = _number(node)
    if number is None and Clock.LATENT in context.clocks_of(rows):
        context.refuse(
            "this stream has no times to measure",
            node,
            detail=f"it was declared without ORDER BY, so {word} counts its rows as they arrived",
            hint=f"{word} 10, or declare the stream with ORDER BY column or ORDER BY current_time",
        )
    if context.time_type(rows) == BIGINT:
        if number is None:
            hint = "use a whole number" if isinstance(node, exp.Literal) else "leave the unit out"
            context.fail(f"the stream is ordered by a number, so {word} takes a number", node, hint=hint)
        span = number
    else:
        length = duration_us(node)
        if number is not None:
            context.fail(f"{word} needs a unit of time", node, hint=f"{word} {number} SECONDS")
        if length is None:
            context.fail(f"{node.sql()} has no fixed length", node, hint="use weeks, days or smaller units")
        span = length
    if span <= 0:
        context.fail(f"{word} must be positive", node)
    if span >= _LONGEST:
        context.fail(f"{word} is too long", node, hint="RANGE UNBOUNDED")
    return span


def _number(node: exp.Expr) -> int | None:
    is_number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
    return int(node.name) if is_number else None


# -- granularity -------------------------------------------------------------------------------------------------------


def _granule(node: Granularity, plan: P.Node, context: Context) -> int:
    # Between COARSEST and FINEST the best answer is the finest.
    size = node.args.get("finest") or node.args["size"]
    granule = _span(size, "GRANULARITY", plan, context)
    coarsest = node.args.get("coarsest")
    if coarsest is not None and _span(coarsest, "GRANULARITY", plan, context) < granule:
        context.fail("COARSEST is finer than FINEST", coarsest)
    if granule % _granularity(plan):
        _refuse_granule("this GRANULARITY is not a multiple of one below it", size, context)
    return granule


def _granularity(plan: P.Node) -> int:
    """At multiples of which length a plan's rows are exact: 1 if at all instants."""
    return lcm(*(node.granule for node in P.walk(plan) if isinstance(node, R.Coarsen)))


def _refuse_granule(message: str, node: exp.Expr, context: Context) -> NoReturn:
    context.refuse(
        message,
        node,
        detail="granularity can only get coarser towards the result",
        hint="use a multiple of the granularity below",
    )


def _rate(plan: P.Node, node: exp.Expr, context: Context) -> int:
    if _is_too_fine(plan, context):
        context.refuse(
            "RSTREAM would emit every row in every microsecond",
            node,
            hint="set a granularity: FROM s WINDOW(RANGE …) GRANULARITY(1 SECOND), or use ISTREAM",
        )
    return _granularity(plan)


def _is_too_fine(plan: P.Node, context: Context) -> bool:
    """Whether rows last, and time has too many instants to look at each of them."""
    return _granularity(plan) == 1 and not is_chronon(plan) and context.time_type(plan) != BIGINT
