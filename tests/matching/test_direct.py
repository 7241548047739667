"""Filters tested directly: one by one, on single notifications and on columns."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import events, filter_of, filter_texts

from stentor import Filter, Notification
from stentor.filters.facts import facts_of
from stentor.matching.index import Index, select
from stentor.matching.index.columns import ArrowSource
from stentor.matching.index.direct import Direct
from stentor.matching.index.index import FEW, SINGLY
from stentor.model import decode_headers, encode

#: Of each kind of value one or two, None for an absent attribute.
MIXED: list[Any] = [
    *(None, True, False, 0, 1, 2, -0.0, 1.0, 1.5, float("inf"), float("-inf")),
    *(2**53 + 1, 2.0**53, -(2**63), "", "1", "S17", "S1", b"S17", (1,), frozenset({"S17"})),
]


def expected(filter: Filter, rows: list[Any]) -> list[int]:
    return [i for i, row in enumerate(rows) if filter.matches(row)]


@pytest.mark.spec("02/P1")
@settings(max_examples=180)
@given(filter_texts(), st.lists(events, max_size=6))
@example("m = 1", [{"m": True}, {"m": 1.0}, {"m": "1"}, {}])
@example("m > 1 and s = 'a'", [{"m": "2", "s": "a"}, {"m": 2, "s": "a"}])
def test_equal_to_the_filter_itself(text: str, published: list[dict[str, Any]]) -> None:
    filter = filter_of(text)
    direct = Direct(filter)
    for event in published:
        assert direct.matches(facts_of(event, filter.names)) == filter.matches(event)
    assert select(filter, published) == expected(filter, published)


@pytest.mark.parametrize(
    "text",
    [
        *(f"v {op} {end}" for op in ("=", "!=", "<", "<=", ">", ">=") for end in (1, 1.5, "'S17'")),
        *(
            "v = true",
            "v between 1 and 2",
            "v > 1 and v < 9007199254740993",
            "v = 9007199254740993",
        ),
        *("v not between 0 and 1", "v in (1, 2)", "v in ('S1', 'S17')", "v = ''", "v > ''"),
        *(
            "v is missing",
            "exists v",
            "v is number",
            "v is int",
            "v prefix 'S1'",
            "v = 1 or v = 'S1'",
        ),
        *("v has 1", "v + 1 = 2", "true", "v = 1 and v = 2"),
    ],
)
def test_values_of_all_types_in_one_column_and_in_columns_of_their_own(text: str) -> None:
    filter = Filter(text)
    rows = [{"v": value} for value in MIXED]
    assert select(filter, rows) == expected(filter, rows)
    for kind in {type(value) for value in MIXED}:
        alike = [{"v": value} for value in MIXED if type(value) is kind]
        assert select(filter, alike) == expected(filter, alike)
        assert select(filter, [*alike, {}]) == expected(filter, [*alike, {}])


def test_later_conditions_look_at_what_the_first_has_left() -> None:
    filter = Filter("symbol = 'S17' and price > 12 and price <= 20")
    rows: list[dict[str, Any]] = [
        *({"symbol": "S17", "price": price} for price in (12, 12.5, 20, 20.5, "15", True, None)),
        *({"symbol": "S18", "price": 15}, {"price": 15}, {"symbol": "S17"}, {"symbol": 17}),
    ]
    assert select(filter, rows) == [1, 2]


def test_envelopes_notifications_and_mappings_mean_the_same() -> None:
    texts = (
        "price > 12",
        "_producer = 'p'",
        "isa quote",
        "isa quote and price > 12",
        "_channel = 'c'",
    )
    ns = [
        Notification({"price": 9.5}, type="quote.stock"),
        Notification({"price": 15.0}, type="quote.bond", channel="c"),
        Notification({"price": 15.0}),
    ]
    envelopes = decode_headers([encode(n) for n in ns])
    for text in texts:
        filter = Filter(text)
        assert select(filter, envelopes) == select(filter, ns) == expected(filter, ns)
        assert select(filter, [*envelopes, ns[1]]) == expected(filter, [*ns, ns[1]])


def test_on_the_columns_of_a_record_batch() -> None:
    batch = pa.record_batch({"s": ["a", None, "b"], "x": [1.0, 2.0, float("nan")]})
    for text, rows in [("s = 'a'", [0]), ("x > 1", [1]), ("x is missing", [2]), ("z = 1", [])]:
        assert Direct(Filter(text)).rows(ArrowSource(batch)) == rows


@settings(max_examples=60)
@given(filter_texts(), st.lists(events, min_size=1, max_size=6))
def test_what_arrives_encoded_matches_as_what_was_sent(
    text: str, published: list[dict[str, Any]]
) -> None:
    ns = [Notification({**event, "always": 1}) for event in published]
    filter = filter_of(text)
    assert select(filter, decode_headers([encode(n) for n in ns])) == expected(filter, ns)


@settings(max_examples=120)
@given(
    st.lists(st.tuples(filter_texts(), st.booleans()), max_size=2 * FEW),
    st.lists(events, min_size=1, max_size=9),
    st.one_of(st.none(), st.integers(1, 9)),
)
def test_an_index_tests_few_filters_as_it_searches_many(
    texts: list[tuple[str, bool]], published: list[dict[str, Any]], most: int | None
) -> None:
    index: Index[int] = Index()
    held: dict[int, Filter] = {}
    for key, (text, stays) in enumerate(texts):
        held[key] = filter_of(text)
        index.add(key, held[key])
        if not stays:
            index.remove(key)
            del held[key]
    for event in published:
        assert sorted(index.match(event)) == [k for k, f in held.items() if f.matches(event)]
    count, found = index.match_leading(published, most)
    assert count >= 1
    assert dict(found) == {
        k: rows for k, f in held.items() if (rows := expected(f, published[:count]))
    }
    if len(published) > SINGLY and most is not None:
        matches = [sum(f.matches(event) for f in held.values()) for event in published]
        assert count == 1 or sum(matches[:count]) <= most
        assert count == len(published) or sum(matches[: count + 1]) > most
