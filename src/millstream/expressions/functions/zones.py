"""The session's time zone: what casts and functions of TIMESTAMPTZ mean where no zone is written.

They become expressions in which the zone is a constant, so plans do not depend on the session, nor do hosts.
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from millstream.expressions.functions.registry import FUNCTIONS
from millstream.expressions.nodes import Call, Case, Cast, Expr, Literal
from millstream.types import BIGINT, BOOLEAN, INTERVAL, TIMESTAMP, TIMESTAMPTZ, VARCHAR, SqlType

ZONE: ContextVar[str] = ContextVar("zone", default="UTC")
"""the zone of the session whose statement is bound"""

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_WITH_ZONE = r":[0-9]{2}(\.[0-9]+)? ?(Z|UTC|[+-][0-9]{2}(:[0-9]{2})?)\s*$"


def is_utc() -> bool:
    """Whether times are read and written in UTC."""
    return ZONE.get() == "UTC"


def local(moment: Expr) -> Expr:
    """A TIMESTAMPTZ as the time that clocks of the session show; other times as they are."""
    if moment.type != TIMESTAMPTZ or is_utc():
        return moment
    return Call(TIMESTAMP, "timezone", (Literal(VARCHAR, ZONE.get()), moment))


def instant(moment: Expr) -> Expr:
    """The inverse of `local`."""
    return Call(TIMESTAMPTZ, "timezone", (Literal(VARCHAR, ZONE.get()), moment))


def since_utc(micros: int) -> int:
    """A local time in UTC. One that occurs twice is the second; one that is skipped has the offset before."""
    if is_utc():
        return micros
    clock, zone = _EPOCH + micros * _MICROSECOND, ZoneInfo(ZONE.get())
    offsets = [clock.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1)]
    return micros - min(offsets) // _MICROSECOND


def cast(expr: Expr, type_: SqlType, safe: bool) -> Expr | None:
    """A cast from or to TIMESTAMPTZ in the session's zone; None if the zone does not matter."""
    if is_utc() or isinstance(expr, Literal):
        return None
    if type_ == TIMESTAMPTZ and expr.type.is_text:
        has_zone = Call(BOOLEAN, "regexp_matches", (expr, Literal(VARCHAR, _WITH_ZONE)))
        return Case(
            TIMESTAMPTZ, ((has_zone, Cast(TIMESTAMPTZ, expr, safe)),), instant(Cast(TIMESTAMP, expr, safe))
        )  # fmt: skip
    if type_ == TIMESTAMPTZ and expr.type.is_temporal:
        return instant(expr if expr.type == TIMESTAMP else Cast(TIMESTAMP, expr, safe))
    if expr.type != TIMESTAMPTZ:
        return None
    shown = local(expr)
    if type_.is_text:
        return _resolved("||", Cast(VARCHAR, shown), _offset(expr, shown))
    return shown if type_ == TIMESTAMP else Cast(type_, shown, safe)


def truncated(unit: str, moment: Expr) -> Expr:
    """`date_trunc` of a TIMESTAMPTZ in the session's zone."""
    shown = local(moment)
    start = Call(TIMESTAMP, "date_trunc", (Literal(VARCHAR, unit), shown))
    if unit != "hour":
        return instant(start)
    # what has passed of the hour is subtracted, so an hour that occurs twice stays the one it is
    return Call(TIMESTAMPTZ, "-", (moment, Call(INTERVAL, "-", (shown, start))))


def _offset(moment: Expr, shown: Expr) -> Expr:
    """How far clocks are ahead of UTC, as `+02` or `-03:30`."""
    micros = _resolved("epoch_us", _resolved("-", shown, Cast(TIMESTAMP, moment)))
    minutes = _resolved("//", micros, Literal(BIGINT, 60_000_000))
    absolute = _resolved("abs", minutes)
    sign = _either(_resolved("<", minutes, Literal(BIGINT, 0)), "-", Literal(VARCHAR, "+"))
    rest = _resolved("%", absolute, Literal(BIGINT, 60))
    hours = _two_digits(_resolved("//", absolute, Literal(BIGINT, 60)))
    tail = _resolved("||", Literal(VARCHAR, ":"), _two_digits(rest))
    ending = _either(_resolved("=", rest, Literal(BIGINT, 0)), "", tail)
    return _resolved("||", _resolved("||", sign, hours), ending)


def _two_digits(number: Expr) -> Expr:
    return _resolved("lpad", Cast(VARCHAR, number), Literal(BIGINT, 2), Literal(VARCHAR, "0"))


def _either(condition: Expr, yes: str, no: Expr) -> Expr:
    return Case(VARCHAR, ((condition, Literal(VARCHAR, yes)),), no)


def _resolved(name: str, *args: Expr) -> Expr:
    found = FUNCTIONS[name].rule(args)
    assert found is not None, name
    return found
