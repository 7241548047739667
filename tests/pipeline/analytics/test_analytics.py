"""The tables of the analytics against plain Python, on small data."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from stentor.errors import PipelineDefinitionError
from stentor.filters import Filter
from stentor.pipeline.analytics import (
    covering_potential,
    distinct_filters,
    hot_attributes,
    hot_constants,
    popularity,
    report,
    selectivity,
    traffic,
)
from stentor.pipeline.analytics.potential import (
    Last,
    deal,
    merge_loosely,
    potential_of,
    reduce_by,
    reduce_rest,
    reduce_shard,
)
from stentor.pipeline.matching.vocabulary import Vocabulary

START = datetime(2024, 3, 1, 12, tzinfo=UTC)
BAD = "price >"

# The same in different words: a conjunction, and a union.
TEXTS = [
    "symbol = 'IBM' and price > 10",
    "price > 10 and symbol = 'IBM'",
    "symbol = 'IBM' or volume > 100",
    "volume > 100 or symbol = 'IBM'",
    *(f"symbol = '{s}' and price > {p}" for s in ("IBM", "SAP", "HP") for p in (5, 10, 20)),
    *(f"symbol in ('{s}', 'SUN')" for s in ("IBM", "SAP")),
    "price between 1 and 5",
    "price between 5 and 9 or price > 100",
    "exists volume",
    "color = 'red'",
    "pos.x > 0.5",
    "_types contains 'quote' and price < 8",
    "_producer = 'p1'",
    "price > 3 and price < 3",
    BAD,
]


def _events() -> list[dict[str, Any]]:
    random = Random(5)
    return [
        {
            "symbol": random.choice(["IBM", "SAP", "HP", None]),
            "price": random.choice([math.nan, *range(0, 30, 3)]) * 1.0,
            "volume": random.choice([None, 50, 150, 250]),
            "pos": random.choice([None, {"x": random.random(), "y": None}]),
            "note": f"n{i}",
            "_id": f"p{i % 3}:0:{i}",
            "_type": random.choice(["quote.stock", "trade"]),
            "_time": None if i == 7 else START + timedelta(seconds=17 * i),
            "_broker": random.choice(["north", "south"]),
            "_offset": i,
            "_payload": b"x" * (i % 5),
        }
        for i in range(240)
    ]


ROWS = _events()


def _seen(row: dict[str, Any]) -> dict[str, Any]:
    """The row as filters see it."""
    facts = {k: v for k, v in row.items() if v is not None and v == v and k[0] != "_"}
    kind = row["_type"]
    facts["_types"] = frozenset({kind, kind.partition(".")[0]})
    facts["_producer"] = row["_id"].split(":")[0]
    return facts


SEEN = [_seen(row) for row in ROWS]


@pytest.fixture(scope="module")
def events(spark):
    frame = spark.createDataFrame(pa.Table.from_pylist(ROWS)).cache()
    yield frame
    frame.unpersist()


@pytest.fixture(scope="module")
def texts() -> list[str]:
    random = Random(6)
    return [random.choice(TEXTS) for _ in range(150)] + TEXTS


@pytest.fixture(scope="module")
def subscriptions(spark, texts):
    rows = [*enumerate(texts), (1000, None)]
    frame = spark.createDataFrame(rows, "subscription_id long, filter string").cache()
    yield frame
    frame.unpersist()


@pytest.fixture(scope="module")
def filters(subscriptions):
    """Parsed once; what the functions for users do first."""
    return distinct_filters(subscriptions).localCheckpoint()


@pytest.fixture(scope="module")
def distinct(texts) -> Counter[Filter]:
    return Counter(Filter(text) for text in texts if text != BAD)


@pytest.mark.slow
def test_popularity(subscriptions, texts, distinct):
    rows = popularity(subscriptions).collect()
    good = [row for row in rows if row["problem"] is None]
    assert {Filter(row["filter"]): row["subscriptions"] for row in good} == dict(distinct)
    assert len(good) == len(distinct)
    counts = [row["subscriptions"] for row in rows]
    assert counts == sorted(counts, reverse=True)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    problems = {row["filter"]: row for row in rows if row["problem"] is not None}
    assert problems[BAD]["subscriptions"] == texts.count(BAD)
    assert "ends too early" in problems[BAD]["problem"]
    assert problems[None]["problem"] == "there is no filter"


@pytest.mark.slow
def test_selectivity(events, filters, distinct):
    rows = selectivity(events, filters).collect()
    for row in rows:
        if row["problem"] is not None:
            assert row["matches"] is None
            continue
        filter = Filter(row["filter"])
        expected = sum(filter.matches(facts) for facts in SEEN)
        assert row["matches"] == expected, filter
        assert row["share"] == pytest.approx(expected / len(ROWS))
        assert row["deliveries"] == expected * distinct[filter]
    assert len(rows) == len(distinct) + 2
    assert any(row["matches"] == 0 for row in rows)


@pytest.mark.slow
def test_hot_attributes(events, filters, distinct):
    rows = {row["attribute"]: row for row in hot_attributes(filters, events).collect()}
    names = {name for filter in distinct for name in filter.names}
    carried = {"symbol", "price", "volume", "pos.x", "pos.y", "note"}
    if "pos.y" not in rows:  # all null: Arrow gives the field no type that could hold a value
        carried.discard("pos.y")
    assert set(rows) == names | carried
    # Reserved names are there because they are asked for.
    assert names >= {"_types", "_producer"}
    carried |= {"_types", "_producer"}
    total = sum(distinct.values())
    for name, row in rows.items():
        asking = sum(count for filter, count in distinct.items() if name in filter.names)
        assert row["subscriptions"] == asking, name
        assert row["filters"] == sum(name in filter.names for filter in distinct)
        assert row["asked"] == pytest.approx(asking / total)
        present = [facts for facts in SEEN if _value(facts, name) is not None]
        if name in carried:
            assert row["events"] == len(present)
            assert row["carried"] == pytest.approx(len(present) / len(ROWS))
            assert row["absent"] == pytest.approx(1 - len(present) / len(ROWS))
            values = {_value(facts, name) for facts in present}
            assert row["distinct_values"] == pytest.approx(len(values), rel=0.15)
        else:
            assert (row["events"], row["absent"]) == (0, 1.0)
    assert rows["note"]["subscriptions"] == 0
    pinned = Filter("symbol = 'IBM' or volume > 100")
    listed = [f for f in distinct if "symbol" in f.names and f != pinned]
    assert rows["symbol"]["pinned"] == sum(distinct[f] for f in listed)
    assert rows["price"]["pinned"] == 0


def _value(facts: dict[str, Any], name: str) -> Any:
    if "." in name:
        head, tail = name.split(".")
        return (facts.get(head) or {}).get(tail)
    return facts.get(name)


def test_of_no_events_every_share_is_unknown(events, filters):
    none = events.limit(0)
    rows = {row["attribute"]: row for row in hot_attributes(filters, none).collect()}
    assert {"symbol", "color", "_types"} <= set(rows)
    for row in rows.values():
        assert (row["events"], row["carried"], row["absent"]) == (0, None, None)
    alone = hot_attributes(events=none).collect()
    assert {row["attribute"] for row in alone} >= {"symbol", "price", "note"}
    assert not any(row["attribute"].startswith("_") for row in alone)
    assert {(row["events"], row["carried"], row["absent"]) for row in alone} == {(0, None, None)}


def test_hot_constants(filters, distinct):
    rows = hot_constants(filters).collect()
    found = {(r["attribute"], r["operator"], r["constant"]): r["subscriptions"] for r in rows}
    assert len(found) == len(rows)

    def asking(*texts: str) -> int:
        return sum(distinct[filter] for filter in {Filter(text) for text in texts})

    assert found["color", "=", "'red'"] == asking("color = 'red'")
    sun = ("symbol in ('IBM', 'SUN')", "symbol in ('SAP', 'SUN')")
    assert found["symbol", "=", "'SUN'"] == asking(*sun)
    twenty = [f"symbol = '{s}' and price > 20" for s in ("IBM", "SAP", "HP")]
    assert found["price", ">", "20"] == asking(*twenty)
    counts = [row["subscriptions"] for row in rows]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("shards", [1, 3])
def test_covering_potential(events, filters, distinct, shards):
    """One shard is the local computation; with more of them, covering is the same."""
    found = potential_of(filters, events, budget=0.3, shards=shards).collect()
    rows = {row["strategy"]: row for row in found}
    wanted = [f for f in distinct if not f.is_never]
    in_order = sorted(wanted, key=str)
    merged = reduce_by("merging", in_order)
    assert rows["simple"]["filters"] == sum(distinct.values())
    assert rows["identity"]["filters"] == len(wanted)
    assert rows["covering"]["filters"] == len(reduce_by("covering", in_order))
    if shards == 1:
        assert rows["merging"]["filters"] == len(merged)
    assert rows["merging"]["filters"] <= rows["covering"]["filters"] < len(wanted)
    assert rows["imperfect merging"]["filters"] <= rows["merging"]["filters"]
    assert {row["strategy"]: row["certainty"] for row in found} == {
        "simple": "exact",
        "identity": "exact",
        "covering": "exact",
        "merging": "reachable",
        "imperfect merging": "estimate",
    }
    assert rows["covering"]["share"] == pytest.approx(
        rows["covering"]["filters"] / sum(distinct.values())
    )


@pytest.mark.parametrize("limit", [3, 100])
def test_what_is_too_much_for_one_task_is_a_bound(distinct, limit):
    """The steps of the workers, without Spark: filters in three shards that have nothing to say."""
    texts = sorted(str(f) for f in distinct if not f.is_never)
    vocabulary = Vocabulary.of_this_process()
    left = pa.concat_tables(
        reduce_shard(pa.table({"filter": texts[start::3]}), vocabulary) for start in range(3)
    )
    covering = left.filter(pc.field("strategy") == "covering")
    last = Last(again=True, limit=limit, budget=0.0, sample=())
    (row,) = reduce_rest(covering, last, vocabulary).to_pylist()
    exact = len(reduce_by("covering", map(Filter, texts)))
    assert covering.num_rows > exact
    if limit == 3:
        assert row == {
            "strategy": "covering",
            "filters": covering.num_rows,
            "certainty": "upper bound",
        }
    else:
        assert row == {"strategy": "covering", "filters": exact, "certainty": "exact"}


@pytest.mark.parametrize("seed", range(3))
def test_filters_that_can_cover_each_other_are_dealt_together(seed):
    """As far as they are fixed to one value."""
    random = Random(seed)
    texts = [
        f"symbol = '{random.choice('ABCDEFGH')}' and price > {random.randrange(9)}"
        for _ in range(60)
    ] + [f"price > {i}" for i in range(20)]
    vocabulary = Vocabulary.of_this_process()
    batch = pa.record_batch({"filter": texts})
    (dealt,) = deal([batch], shards=4, vocabulary=vocabulary)
    homes: dict[str, set[int]] = {}
    for row in dealt.to_pylist():
        homes.setdefault(row["filter"].partition(" and")[0], set()).add(row["shard"])
    assert all(len(home) == 1 for home in homes.values())
    assert {shard for home in homes.values() for shard in home} == {0, 1, 2, 3}


def test_looseness_keeps_to_its_budget():
    """What is merged imperfectly matches all that its parts match, and little more."""
    filters = [Filter(f"x between {low} and {low + 3}") for low in range(0, 100, 5)]
    sample = [{"x": x} for x in range(100)]
    loose = merge_loosely(filters, 0.25, sample)
    assert len(loose) < len(filters) == len(reduce_by("merging", filters))
    wanted = {e["x"] for e in sample if any(f.matches(e) for f in filters)}
    got = {e["x"] for e in sample if any(f.matches(e) for f in loose)}
    assert wanted < got
    assert len(got - wanted) <= 0.25 * len(got)
    assert len(merge_loosely(filters, 0.0, sample)) == len(filters)


def test_traffic(events):
    rows = traffic(events, "10 minutes").toArrow().to_pylist()
    expected: dict[tuple[Any, str, str], list[int]] = {}
    for row in ROWS:
        time = row["_time"]
        start = time and datetime.fromtimestamp(time.timestamp() // 600 * 600, UTC)
        sizes = expected.setdefault((start, row["_broker"], row["_type"]), [0, 0])
        sizes[0] += 1
        sizes[1] += len(row["_payload"])
    found = {(r["start"], r["_broker"], r["_type"]): [r["events"], r["bytes"]] for r in rows}
    assert found == expected
    for row in rows:
        rate = None if row["start"] is None else pytest.approx(row["events"] / 600)
        assert row["per_second"] == rate


def test_traffic_without_a_broker(events):
    frame = events.drop("_broker", "_payload")
    assert traffic(frame, by="_broker").columns == ["start", "events", "per_second"]
    with pytest.raises(PipelineDefinitionError, match="no column _time"):
        traffic(events.drop("_time"))


def test_mistakes_are_told(events, subscriptions):
    with pytest.raises(PipelineDefinitionError, match="no column 'wants', only subscription_id"):
        popularity(subscriptions, filter="wants")
    with pytest.raises(PipelineDefinitionError, match="budget=2"):
        covering_potential(subscriptions, events, budget=2)
    with pytest.raises(PipelineDefinitionError, match="measured on events"):
        covering_potential(subscriptions, budget=0.1)
    with pytest.raises(PipelineDefinitionError, match="give subscriptions, events, or both"):
        hot_attributes()


@pytest.mark.slow
def test_a_page(events, subscriptions, tmp_path):
    page = report(events, subscriptions, tmp_path / "page.html", every="10 minutes")
    text = page.read_text()
    assert "<h1>Events and subscriptions</h1><p>240 events; " in text
    assert "<code>price &gt;</code>" in text
    assert "ends too early" in text
    assert text.count("src='data:image/png;base64,") == 6
    without = report(events.limit(0), subscriptions, tmp_path / "without.html")
    assert "<p>0 events; " in without.read_text()
