"""The event algebra by its definition: streams are bags of events, and every operator looks at all of them.

Events are values of columns and the time from a start to an end. `following` is S1 ;θ S2, `folded` is μ, `combined`
is β.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Values = dict[str, Any]


@dataclass(frozen=True)
class Happened:
    """An event."""

    values: Values
    start: int
    end: int

    @property
    def duration(self) -> int:
        return self.end - self.start


Stream = list[Happened]
Condition = Callable[[Values, int], bool]
"""of the values that it reads and of how long the whole lasts"""


def filtered(stream: Iterable[Happened], condition: Condition) -> Stream:
    return [event for event in stream if condition(event.values, event.duration)]


def mapped(stream: Iterable[Happened], columns: Callable[[Values], Values]) -> Stream:
    return [Happened(columns(event.values), event.start, event.end) for event in stream]


def candidates(start: int, after: int, second: Stream, holds: Callable[[Happened, int], bool]) -> Iterator[Happened]:
    """Of the events that start after an instant and meet a condition, those that end first."""
    met = [event for event in second if event.start > after and holds(event, event.end - start)]
    first = min((event.end for event in met), default=None)
    return (event for event in met if event.end == first)


def following(first: Stream, second: Stream, condition: Condition) -> Stream:
    """S1 ;θ S2; no name is in both."""
    return [
        Happened({**one.values, **two.values}, one.start, two.end)
        for one in first
        for two in candidates(
            one.start,
            one.end,
            second,
            lambda event, duration, one=one: condition({**one.values, **event.values}, duration),  # type: ignore[misc]
        )
    ]


Update = tuple[str, Any, Callable[[Values], Any]]
"""a name, what it is before the first iteration, and what becomes of it; `$.x` are the values of the last one"""


def folded(first: Stream, second: Stream, condition: Condition, continues: Condition, updates: list[Update]) -> Stream:
    """μ: columns of the second stream that the first has, too, are called x_1 for what they were there. `condition`,
    `continues` and updates read those, the new event's by their names, and those of the last iteration as `$.x`."""
    names = list(second[0].values) if second else []
    again = [*names, *(name for name, _, _ in updates)]
    current = []
    for event in first:
        own = {f"{name}_1" if name in again else name: value for name, value in event.values.items()}
        last = {f"$.{name}": event.values[name] for name in names}
        last |= {f"$.{name}": event.values.get(name, begin) for name, begin, _ in updates}
        current.append((own, last, event.start, event.end))
    found: Stream = []
    while current:
        after = []
        for own, last, start, end in current:

            def seen(event: Happened, own: Values = own, last: Values = last) -> Values:
                return {**own, **last, **event.values}

            for event in candidates(start, end, second, lambda e, d, seen=seen: condition(seen(e), d)):  # type: ignore[misc]
                if continues(seen(event), event.end - start):
                    made = {name: becomes(seen(event)) for name, _, becomes in updates}
                    found.append(Happened({**own, **event.values, **made}, start, event.end))
                    goes_on = {f"$.{name}": value for name, value in {**event.values, **made}.items()}
                    after.append((own, goes_on, start, event.end))
        current = after
    return found


def combined(stream: Stream, keys: list[str], combine: Callable[[list[Values]], Values]) -> Stream:
    """β: one event for all that end at the same time and agree in `keys`."""
    groups: dict[Any, list[Values]] = {}
    for event in stream:
        groups.setdefault((event.end, *(event.values[key] for key in keys)), []).append(event.values)
    return [
        Happened({**dict(zip(keys, own, strict=True)), **combine(values)}, end, end)
        for (end, *own), values in groups.items()
    ]
