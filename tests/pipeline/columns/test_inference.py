"""Schemas that are inferred from samples."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import PipelineError
from stentor.model import Notification, encode
from stentor.pipeline.columns import BatchMaker, all_attributes, infer

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def inferred(*events: dict[str, object], declared: dict[str, str] | None = None) -> str:
    items = [encode(Notification(event)) for event in events]
    return infer(all_attributes(items), declared).simpleString()


def test_one_column_per_attribute() -> None:
    event = {"s": "x", "i": 1, "f": 0.5, "b": True, "raw": b"x", "at": NOW, "set": {"a"}}
    assert inferred(event) == (
        "struct<at:timestamp,b:boolean,f:double,i:bigint,raw:binary,s:string,set:array<string>>"
    )


def test_numbers_widen() -> None:
    assert inferred({"a": 1}, {"a": 2.5}) == "struct<a:double>"
    assert inferred({"a": [1, 2]}, {"a": [2.5]}, {"a": []}) == "struct<a:array<double>>"
    assert inferred({"a": []}) == "struct<a:array<string>>"


def test_the_majority_decides() -> None:
    assert inferred({"a": 1}, {"a": 2}, {"a": "x"}) == "struct<a:bigint>"
    assert inferred({"a": "y"}, {"a": 2}, {"a": "x"}) == "struct<a:string>"


def test_dotted_names_nest_unless_events_disagree() -> None:
    assert inferred({"p.x": 1, "p.q.r": "a"}, {"p.y": 0.5}) == (
        "struct<p:struct<q:struct<r:string>,x:bigint,y:double>>"
    )
    found = inferred({"p": 1}, {"p.x": "a"}, {"q.z": 1})
    assert found == "struct<p:bigint,p.x:string,q:struct<z:bigint>>"


def test_declared_attributes_settle_what_the_sample_leaves_open() -> None:
    declared = {"price": "number", "note": "string", "when": "time", "tags": "collection"}
    assert inferred({"price": 1, "note": 5}, declared=declared) == (
        "struct<note:string,price:bigint,tags:array<string>,when:timestamp>"
    )
    assert infer([], {"price": "number"}).simpleString() == "struct<price:double>"


def test_nothing_to_infer_from_is_said() -> None:
    with pytest.raises(PipelineError, match="give one"):
        infer([])


def test_names_that_spark_takes_for_the_same_are_said() -> None:
    with pytest.raises(PipelineError, match="'Price' and 'price' differ in case only"):
        inferred({"Price": 1}, {"price": 1})
    with pytest.raises(PipelineError, match="'Pos' and 'pos' differ in case only"):
        inferred({"Pos.x": 1}, {"pos.y": 1})


_values = st.one_of(
    st.booleans(), st.integers(-9, 9), st.floats(-1, 1), st.text(max_size=3), st.just(NOW)
)
_events = st.dictionaries(st.sampled_from(["a", "b", "b.c", "d.e", "d.f"]), _values).filter(
    lambda e: e and not {"b", "b.c"} <= e.keys()
)


@given(st.lists(_events, min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter_and_the_schema_reads_them(
    events: list[dict[str, object]], random: random.Random
) -> None:
    schema = infer(events)
    shuffled = events.copy()
    random.shuffle(shuffled)
    assert infer(shuffled) == schema
    items = [encode(Notification(event)) for event in events]
    maker = BatchMaker(schema)
    maker.batch(items, list(range(len(items))), stream="s#1", broker="s")
    # Most of what was seen has a place, attribute by attribute.
    for name in {name for event in events for name in event}:
        one = BatchMaker(infer([{name: e[name]} for e in events if name in e]))
        mine = [encode(Notification({name: e[name]})) for e in events if name in e]
        one.batch(mine, list(range(len(mine))), stream="s#1", broker="s")
        assert one.corrupt <= len(mine) * 3 / 4
