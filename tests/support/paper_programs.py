"""The aggregates of the Stream Mill and ESL-TS papers as programs built by hand."""

from __future__ import annotations

from millstream.expressions.nodes import Call, Expr, Literal
from millstream.plan.programs.builder import Builder, Use, call, every
from millstream.plan.programs.nodes import (
    WINDOW,
    AggregateValue,
    Delete,
    Exists,
    InQuery,
    Insert,
    Program,
    Rows,
    ScalarQuery,
    Statement,
    Update,
)
from millstream.schema import Schema
from millstream.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, SqlType


def count_of(*args: Expr) -> AggregateValue:
    return AggregateValue(BIGINT, "count", args)


def _averaging(name: str, window: Schema | None = None, next_: SqlType = DOUBLE) -> Builder:
    result = Schema.of(**{name: DOUBLE})
    return Builder(name, Schema.of(Next=next_), result, window, state=Schema.of(tsum=next_, cnt=INTEGER))


def _add(b: Builder) -> Update:
    state = b.use("state")
    return b.update(state, tsum=call("+", state["tsum"], b.param("Next")), cnt=call("+", state["cnt"], 1))


def _return_average(b: Builder, where: Expr | None = None) -> Insert:
    state = b.use("state")
    return b.select(None, call("/", state["tsum"], state["cnt"]), of=[state], where=where)


def myavg() -> Program:
    """E7 and T8: the average as a base aggregate."""
    b = _averaging("myavg")
    return b.program([b.values("state", b.param("Next"), 1)], [_add(b)], terminate=[_return_average(b)])


def cum_avg() -> Program:
    """E10: the average so far at every tuple."""
    b = _averaging("cum_avg")
    start = [b.values("state", b.param("Next"), 1), _return_average(b)]
    return b.program(start, [_add(b), _return_average(b)])


def decay_online_avg() -> Program:
    """E8: an average in which older tuples count less."""
    b = _averaging("decay_online_avg")
    state, next_ = b.use("state"), b.param("Next")
    decayed = call("+", call("*", 0.9, state["tsum"]), call("*", 1.1, next_))
    return b.program(
        [b.values("state", next_, 1), b.values(None, next_)],
        [b.update(state, tsum=decayed, cnt=call("+", state["cnt"], 1)), _return_average(b)],
    )


def tumble_avg(size: int = 200) -> Program:
    """T9: the average of every `size` tuples."""
    b = _averaging("tumble_avg", next_=INTEGER)
    returned, reset = b.use("state"), b.use("state")
    full = [call("=", call("%", use["cnt"], size), 0) for use in (returned, reset)]
    average = call("/", returned["tsum"], returned["cnt"])
    return b.program(
        [b.values("state", b.param("Next"), 1)],
        [_add(b), b.select(None, average, of=[returned], where=full[0]), b.update(reset, full[1], tsum=0, cnt=0)],
    )


def bidder_wcount() -> Program:
    """T11: how many bidders were seen in the last minutes; their number is a parameter."""
    b = Builder("bidder_wcount", Schema.of(bidder_id=INTEGER, bid_time=TIMESTAMP, num_min=INTEGER),
                Schema.of(bcount=INTEGER), bidders=Schema.of(b_id=INTEGER, btime=TIMESTAMP))  # fmt: skip
    bidder, time = b.param("bidder_id"), b.param("bid_time")

    def returned() -> Insert:
        bidders = b.use("bidders")
        return b.select(None, count_of(bidders["b_id"]), of=[bidders])

    known, seen, old = b.use("bidders"), b.use("bidders"), b.use("bidders")
    is_new = call("not", InQuery(BOOLEAN, bidder, Rows((known["b_id"],), (known.range,))))
    until = call("+", old["btime"], call("to_minutes", b.param("num_min")))
    return b.program(
        [b.values("bidders", bidder, time), returned()],
        [
            b.values("bidders", bidder, time, where=is_new),
            b.update(seen, call("=", bidder, seen["b_id"]), btime=time),
            Delete(old.range, call(">", time, until)),
            returned(),
        ],
    )


def naive_avg(program: bool = True) -> Program:
    """E11: the average over the window, computed anew at every tuple, by `myavg` or by the built-in."""
    b = Builder("avg", Schema.of(Next=DOUBLE), Schema.of(avg=DOUBLE), Schema.of(wnext=DOUBLE))
    window = b.use(WINDOW)
    average = AggregateValue(
        DOUBLE, "myavg" if program else "avg", (window["wnext"],), program=myavg() if program else None
    )
    body = [b.select(None, average, of=[window])]
    return b.program(body, body)


def window_avg(active: bool = False) -> Program:
    """E12: the average over the window, corrected when a tuple leaves; `active` returns it then, too."""
    b = _averaging("myavg", Schema.of(wnext=DOUBLE))
    next_, state = b.param("Next"), b.use("state")
    less = b.update(state, cnt=call("-", state["cnt"], 1), tsum=call("-", state["tsum"], b.oldest("wnext")))
    return b.program(
        [b.values("state", next_, 1), b.values(None, next_)],
        [_add(b), _return_average(b)],
        [less, *([_return_average(b)] if active else [])],
    )


def window_max(comparison: str = "<") -> Program:
    """E13: the greatest of a window. The paper prints `<=`, which deletes the new tuple, too."""
    b = Builder("max", Schema.of(Next=DOUBLE), Schema.of(max=DOUBLE), Schema.of(wnext=DOUBLE))
    window, next_ = b.use(WINDOW), b.param("Next")
    smaller = Delete(window.range, call(comparison, window["wnext"], next_))
    return b.program([b.values(None, next_)], [smaller, b.values(None, b.oldest("wnext"))])


def algebraic_max(comparison: str = "<") -> Program:
    """E16: E13 for active expiration: a tuple that was the greatest until it left is returned when it leaves."""
    b = Builder("max", Schema.of(Next=DOUBLE), Schema.of(max=DOUBLE), Schema.of(wnext=DOUBLE))
    window, next_ = b.use(WINDOW), b.param("Next")
    return b.program(
        [b.values(None, next_)],
        [Delete(window.range, call(comparison, window["wnext"], next_))],
        [b.values(None, b.oldest("wnext"))],
        algebraic=True,
    )


def item_alarm() -> Program:
    """E18: an alarm for every item that left without an authorised person near."""
    b = Builder("item_alarm", Schema.of(tagid=VARCHAR, tagtype=VARCHAR, tagtime=TIMESTAMP),
                Schema.of(item_alarm=VARCHAR), Schema.of(tid=VARCHAR, ttype=VARCHAR, ttime=TIMESTAMP))  # fmt: skip
    kind, first, second = b.param("tagtype"), b.use(WINDOW), b.use(WINDOW)

    def guarded() -> Expr:
        near = b.use(WINDOW)
        return Exists(BOOLEAN, Rows((near["tid"],), (near.range,), call("=", near["ttype"], "ap")))

    body = [
        Delete(first.range, every(call("=", kind, "ap"), call("=", first["ttype"], "item"))),
        Delete(second.range, every(call("=", kind, "item"), call("=", second["ttype"], "item"), guarded())),
    ]
    alone = every(call("=", kind, "item"), call("not", guarded()))
    return b.program(body, body, [b.values(None, "larceny alarm", where=alone)])


def find_pattern() -> Program:
    """T12: pages of types a, d, p one after the other, by a table of states."""
    b = Builder("find_pattern", Schema.of(PageNoIn=INTEGER, ClickTimeIn=VARCHAR, PageTypeIn=VARCHAR),
                Schema.of(PageNo=INTEGER, ClickTime=VARCHAR), CurrentState=Schema.of(curState=INTEGER),
                Memo=Schema.of(PageNo=INTEGER, ClickTime=VARCHAR, State=INTEGER))  # fmt: skip
    page, click, kind = b.param("PageNoIn"), b.param("ClickTimeIn"), b.param("PageTypeIn")
    memo, state = b.use("Memo"), b.use("CurrentState")
    initialize: list[Statement] = [
        b.values("CurrentState", 0),
        Insert(
            "Memo", tuple(Rows((Literal(INTEGER, 0), Literal(VARCHAR, ""), Literal(INTEGER, i))) for i in (1, 2, 3))
        ),
        b.update(memo, every(call("=", kind, "a"), call("=", memo["State"], 1)), PageNo=page, ClickTime=click),
        b.update(state, call("=", b.sqlcode, 0), curState=1),
    ]

    def moves(use: Use, comparison: str) -> Expr:
        first, *others = (
            every(call("=", use["curState"], i), call(comparison, kind, letter)) for i, letter in enumerate("adp")
        )
        for other in others:
            first = Call(BOOLEAN, "or", (first, other))
        return first

    reset, advance, noted, now = b.use("CurrentState"), b.use("CurrentState"), b.use("Memo"), b.use("CurrentState")
    current, x, y, z = b.use("CurrentState"), b.use("Memo"), b.use("Memo"), b.use("Memo")
    done = b.use("CurrentState")
    held = ScalarQuery(INTEGER, Rows((now["curState"],), (now.range,)))
    matched = every(call("=", current["curState"], 3), call("=", x["State"], 1), call("=", y["State"], 2),
                    call("=", z["State"], 3))  # fmt: skip
    iterate: list[Statement] = [
        b.update(reset, moves(reset, "<>"), curState=0),
        b.update(advance, every(call(">", b.sqlcode, 0), moves(advance, "=")),
                 curState=call("+", advance["curState"], 1)),
        b.update(noted, every(call("=", noted["State"], held), call("=", b.sqlcode, 0)), PageNo=page, ClickTime=click),
        b.select(None, y["PageNo"], z["ClickTime"], of=[current, x, y, z], where=matched),
        b.update(done, call("=", b.sqlcode, 0), curState=0),
    ]  # fmt: skip
    return b.program(initialize, iterate)


BASE_PROGRAMS = {
    "myavg": myavg, "cum_avg": cum_avg, "decay_online_avg": decay_online_avg, "tumble_avg": lambda: tumble_avg(3),
    "bidder_wcount": bidder_wcount, "find_pattern": find_pattern,
}  # fmt: skip
"""The base aggregates by name."""

WINDOW_PROGRAMS = {
    "naive_avg": naive_avg, "naive_builtin_avg": lambda: naive_avg(program=False), "window_avg": window_avg,
    "active_avg": lambda: window_avg(active=True), "window_max": window_max,
    "printed_max": lambda: window_max("<="), "algebraic_max": algebraic_max, "item_alarm": item_alarm,
}  # fmt: skip
"""The window aggregates by name."""
