"""Events and filters for `match`, and the answer of brute force.

Events have all that tables can have: nulls and NaN, records inside of records, collections, names
with dots, an attribute that has its value in one of two columns of different types, decimals, the
reserved columns, and a column that filters must not see. Filters ask for all of it, and for what is
not there.
"""

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import Row
from strategies import CONDITIONS

from stentor.filters import Filter
from stentor.model import NotificationId
from stentor.model.event_types import event_types

SCHEMA = (
    "n long, x long, y double, s string, b boolean, tags array<string>, at timestamp, m string, "
    "pos struct<x: int, name: string, deep: struct<z: double, `q.r`: string>>, `dot.ted` string, "
    "two struct<kind: int>, `two.kind` string, cost decimal(10, 2), small float, data binary, "
    "other map<string, int>, _type string, _id string, _time timestamp, _offset long"
)

#: Conditions on the further columns, besides those on x, y, s, b, tags, at and m.
_FURTHER = (
    "pos.x = 1",
    "pos.x > 0",
    "pos.name prefix 'a'",
    "pos.deep.z < 2",
    "exists pos.deep.z",
    "pos.deep.q.r = 'b'",
    "exists pos",
    "pos is missing",
    "dot.ted = 'a'",
    "dot.ted is missing",
    "two.kind = 1",
    "two.kind = 'a'",
    "two.kind is string",
    "exists two.kind",
    "cost > 1.5",
    "cost = 2.25",
    "small >= 0.5",
    "exists data",
    "_type = 'quote'",
    "isa quote",
    "isa matching_alert",
    "_types has 'quote'",
    "exists _type",
    "_producer = 'p:1'",
    "_producer prefix 'q'",
    "_time > time '2024-01-02'",
    "exists _offset",
    "_offset > 0",
    "exists nowhere",
    "nowhere is missing",
)
_TYPES = ("quote", "quote.stock", "quote.halt", "trade", None)


def declare_types() -> None:
    """Event types that paths do not tell about; declaring them again changes nothing."""
    event_types.declare("quote.halt", parents=["matching_alert"])


def texts(seed: int, count: int) -> list[str]:
    """Filters: conjunctions, disjunctions and negations of conditions."""
    choose = random.Random(seed)

    def condition() -> str:
        return choose.choice(_FURTHER if choose.random() < 0.5 else CONDITIONS)

    found = ["", "x = 1 and x = 2"]
    while len(found) < count:
        parts = [condition() for _ in range(choose.choice((1, 1, 2, 2, 3)))]
        shape = choose.random()
        text = (" or " if shape < 0.25 else " and ").join(f"({part})" for part in parts)
        found.append(f"not ({text})" if shape > 0.85 else text)
    return found


def rows(seed: int, count: int) -> list[tuple[Any, ...]]:
    """Events, by the columns of `SCHEMA`."""
    choose = random.Random(seed)

    def maybe(*values: Any) -> Any:
        return choose.choice((None, *values))

    def deep() -> Any:
        return maybe((maybe(0.5, 2.0, math.nan), maybe("a", "b")))

    def time(day: int) -> datetime:
        return datetime(2024, 1, day, tzinfo=UTC)

    return [
        (
            n,
            maybe(0, 1, 2, 3, -1, 2**53 + 1, 2**53),
            maybe(0.0, -0.0, 1.0, 2.5, 3.0, math.nan, math.inf),
            maybe("", "a", "b", "ab", "ba", "abc", "abab"),
            maybe(True, False),
            maybe([], ["a"], ["a", "b"], ["c", None, "ab"]),
            maybe(time(1), time(2), time(3), time(4)),
            maybe("", "a", "abc"),
            maybe((maybe(0, 1, 2), maybe("a", "ab", "b"), deep())),
            maybe("a", "b"),
            maybe((maybe(1, 2),)),
            maybe("a", "1"),
            maybe(Decimal("1.50"), Decimal("2.25"), Decimal("-1.00")),
            maybe(0.5, 0.25, math.nan),
            maybe(bytearray(b"a")),
            maybe({"k": 1}),
            maybe(*_TYPES),
            maybe("p:1:0:7", "q:2:8", "no id"),
            maybe(time(1), time(3)),
            maybe(1, 2),
        )
        for n in range(count)
    ]


def expected(filters: dict[Any, str], events: list[Row]) -> set[tuple[Any, int]]:
    """The pairs of ids and numbers of events that match, one by one."""
    parsed = [(id, Filter(text)) for id, text in filters.items()]
    found: set[tuple[Any, int]] = set()
    for event in events:
        facts = dict(_facts(event))
        found.update((id, event.n) for id, filter_ in parsed if filter_.matches(facts))
    return found


def _facts(event: Row) -> Iterator[tuple[str, Any]]:
    """What a broker would show to filters of the notification that the row stands for."""
    for name, value in event.asDict(recursive=True).items():
        if name.startswith("_") or name == "other":
            continue
        known = _known(value)
        if known is not None:
            yield name, known
    if event["_type"] is not None:
        yield "_type", event["_type"]
        yield "_types", event_types.ancestors(event["_type"])
    if event["_time"] is not None:
        yield "_time", event["_time"].astimezone(UTC)
    if event["_id"] is not None and event["_id"].count(":") >= 2:
        yield "_producer", NotificationId.parse(event["_id"]).producer


def _known(value: Any) -> Any:
    if value is None or value != value:
        return None
    if isinstance(value, dict):
        return {name: _known(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [one for one in value if one is not None]
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return float(value) if isinstance(value, Decimal) else value
