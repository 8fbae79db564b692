"""Functions that generated kernels call; each stands alone, as its source text may travel into a kernel.

They mean the same compiled and as plain Python, where integers are of any size: nothing here relies on wrapping.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

Number = Any
"""int64 or float64 in a kernel."""


def k_add(a: int, b: int) -> int:
    if b >= 0:
        if a > 9223372036854775807 - b:
            raise OverflowError("the result does not fit BIGINT")
    elif a < -9223372036854775808 - b:
        raise OverflowError("the result does not fit BIGINT")
    return a + b


def k_subtract(a: int, b: int) -> int:
    if b >= 0:
        if a < -9223372036854775808 + b:
            raise OverflowError("the result does not fit BIGINT")
    elif a > 9223372036854775807 + b:
        raise OverflowError("the result does not fit BIGINT")
    return a - b


def k_multiply(a: int, b: int) -> int:
    if -2147483648 <= a <= 2147483647 and -2147483648 <= b <= 2147483647:
        return a * b
    product = float(a) * float(b)
    # Within a few units of the limits a float cannot tell; division can.
    if -9.22e18 < product < 9.22e18:
        return a * b
    if a == -9223372036854775808 or b == -9223372036854775808:
        if a == 1 or b == 1:
            return a * b
        raise OverflowError("the result does not fit BIGINT")
    low, high = abs(a), abs(b)
    if low > high:
        low, high = high, low
    most = 9223372036854775807 // high
    if low <= most:
        return a * b
    if low == most + 1 and 9223372036854775807 - most * high + 1 == high and (a < 0) != (b < 0):
        return -9223372036854775808
    raise OverflowError("the result does not fit BIGINT")


def k_divide(a: int, b: int) -> int:
    """Integer division towards zero; b is not 0."""
    if b == -1:
        if a == -9223372036854775808:
            raise OverflowError("the result does not fit BIGINT")
        return -a
    quotient = a // b
    if quotient < 0 and quotient * b != a:
        quotient += 1
    return quotient


def k_modulo(a: int, b: int) -> int:
    """What k_divide leaves, with the sign of a; b is not 0."""
    if b == -1:
        return 0
    rest = a % b
    if rest != 0 and (a < 0) != (b < 0):
        rest -= b
    return rest


def k_negate(a: int) -> int:
    if a == -9223372036854775808:
        raise OverflowError("the result does not fit BIGINT")
    return -a


def k_absolute(a: int) -> int:
    if a == -9223372036854775808:
        raise OverflowError("the result does not fit BIGINT")
    return -a if a < 0 else a


def k_in_range(a: int, low: int, high: int) -> int:
    """a, which must lie within the bounds of its type."""
    if a < low or a > high:
        raise OverflowError("a value does not fit the type it is cast to")
    return a


def k_total(high: int, low: int, least: int, most: int) -> int:
    """A sum from its upper and lower half."""
    if high < -2147483648 or high > 2147483647:
        raise OverflowError("the result does not fit its type")
    total = (high << 32) + low
    if total < least or total > most:
        raise OverflowError("the result does not fit its type")
    return total


def k_add_fails(a: int, b: int) -> bool:
    if b >= 0:
        return a > 9223372036854775807 - b
    return a < -9223372036854775808 - b


def k_subtract_fails(a: int, b: int) -> bool:
    if b >= 0:
        return a < -9223372036854775808 + b
    return a > 9223372036854775807 + b


def k_multiply_fails(a: int, b: int) -> bool:
    product = float(a) * float(b)
    if -9.22e18 < product < 9.22e18:
        return False
    if a == -9223372036854775808 or b == -9223372036854775808:
        return not (a == 1 or b == 1)
    low, high = abs(a), abs(b)
    if low > high:
        low, high = high, low
    most = 9223372036854775807 // high
    if low <= most:
        return False
    is_least = low == most + 1 and 9223372036854775807 - most * high + 1 == high and (a < 0) != (b < 0)
    return not is_least


def k_divide_fails(a: int, b: int) -> bool:
    return b == -1 and a == -9223372036854775808


def k_negate_fails(a: int) -> bool:
    return a == -9223372036854775808


def k_absolute_fails(a: int) -> bool:
    return a == -9223372036854775808


def k_in_range_fails(a: int, low: int, high: int) -> bool:
    return a < low or a > high


def k_to_integer_fails(a: float, low: float, high: float) -> bool:
    nearest = np.rint(a)
    return not (nearest >= low and nearest < high)


def k_total_fails(high: int, low: int, least: int, most: int) -> bool:
    if high < -2147483648 or high > 2147483647:
        return True
    total = (high << 32) + low
    return total < least or total > most


def k_equal(a: float, b: float) -> bool:
    """NaN equals NaN."""
    return a == b or (a != a and b != b)


def k_less(a: float, b: float) -> bool:
    """NaN is greater than every other number."""
    return a < b or (b != b and a == a)


def k_greatest(a: Number, a_null: bool, b: Number, b_null: bool) -> Number:
    if a_null or (not b_null and (b > a or b != b)):
        return b
    return a


def k_least(a: Number, a_null: bool, b: Number, b_null: bool) -> Number:
    if a_null or (not b_null and (b < a or a != a)):
        return b
    return a


def k_round(a: float) -> float:
    """The nearest whole number, halves away from zero."""
    size = abs(a)
    if not size < 4503599627370496.0:
        return a
    whole: float = np.floor(size)
    if size - whole >= 0.5:
        whole += 1.0
    return -whole if a < 0.0 else whole


def k_round_to(a: float, factor: float) -> float:
    """a rounded to digits after the point: factor is 10 to their number."""
    scaled = a * factor
    size = abs(scaled)
    if size < 4503599627370496.0:
        whole = np.floor(size)
        if size - whole >= 0.5:
            whole += 1.0
        scaled = -whole if scaled < 0.0 else whole
    result = scaled / factor
    return result if abs(result) < np.inf else a


def k_round_off(a: float, factor: float) -> float:
    """a rounded to digits before the point: factor is 10 to their number."""
    scaled = a / factor
    size = abs(scaled)
    if size < 4503599627370496.0:
        whole = np.floor(size)
        if size - whole >= 0.5:
            whole += 1.0
        scaled = -whole if scaled < 0.0 else whole
    result = scaled * factor
    return result if abs(result) < np.inf else a


def k_fits(a: float, low: float, high: float) -> bool:
    """Whether a, rounded, is an integer from low up to, and without, high."""
    return bool(np.rint(a) >= low and np.rint(a) < high)


def k_to_integer(a: float, low: float, high: float) -> int:
    """The nearest integer, halves to even."""
    nearest = np.rint(a)
    if not (nearest >= low and nearest < high):
        raise OverflowError("a value does not fit the type it is cast to")
    return int(nearest)


def k_sign(a: Number) -> int:
    if a > 0:
        return 1
    return -1 if a < 0 else 0


def k_year(day: int) -> int:
    """The year of a day counted from 1970-01-01."""
    from_march = day + 719468  # days since 0000-03-01: years that start in March end with the leap day
    era = from_march // 146097
    in_era = from_march - era * 146097
    year = (in_era - in_era // 1460 + in_era // 36524 - in_era // 146096) // 365
    in_year = in_era - (365 * year + year // 4 - year // 100)
    return year + era * 400 + (1 if (5 * in_year + 2) // 153 >= 10 else 0)


def k_month(day: int) -> int:
    """The month of a day counted from 1970-01-01."""
    from_march = day + 719468
    in_era = from_march - from_march // 146097 * 146097
    year = (in_era - in_era // 1460 + in_era // 36524 - in_era // 146096) // 365
    month = (5 * (in_era - (365 * year + year // 4 - year // 100)) + 2) // 153
    return month + 3 if month < 10 else month - 9


def k_day(day: int) -> int:
    """The day of the month of a day counted from 1970-01-01."""
    from_march = day + 719468
    in_era = from_march - from_march // 146097 * 146097
    year = (in_era - in_era // 1460 + in_era // 36524 - in_era // 146096) // 365
    in_year = in_era - (365 * year + year // 4 - year // 100)
    return in_year - (153 * ((5 * in_year + 2) // 153) + 2) // 5 + 1


HELPERS: dict[str, Callable[..., Any]] = {
    name: value for name, value in list(globals().items()) if name.startswith("k_")
}
"""Every helper by the name generated source calls it."""

RAISING = frozenset(name.removesuffix("_fails") for name in HELPERS if name.endswith("_fails"))
"""those that raise OverflowError for some values; `<name>_fails` says for which"""


def helper_source(names: Iterable[str]) -> str:
    """The source text of helpers, for a kernel that is sent as text; it needs `import numpy as np`."""
    return "\n\n".join(
        inspect.getsource(HELPERS[name]).replace(": Number", "").replace(" -> Number", "") for name in sorted(names)
    )
