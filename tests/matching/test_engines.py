"""What holds for every matching engine, held against brute force."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from strategies import CONDITIONS, ENGINES, VALUES, engine_name, events, filter_of, filters

from stentor import Filter, Notification
from stentor.errors import DuplicateKey, InvalidValue, UnknownKey
from stentor.matching.brute import BruteForce
from stentor.matching.protocol import Matcher, gather

Make = Callable[[], Matcher[Any]]

every_engine = pytest.mark.parametrize("make", ENGINES, ids=engine_name)


def holding(make: Make, **texts: str) -> Matcher[Any]:
    engine = make()
    for key, text in texts.items():
        engine.add(key, Filter(text))
    return engine


def pairs(matches: tuple[Any, Any]) -> list[tuple[int, Any]]:
    rows, keys = matches
    return sorted(zip(rows.tolist(), keys.tolist(), strict=True))


STOCKS = {
    "F1": "Stock = 'Foo Inc.' and Price < 15",
    "F2": "Stock = 'Foo Inc.' and Price < 12",
    "F3": "Stock = 'AB Inc.' and Price > 16",
}


@every_engine
@pytest.mark.spec("02/5.5")
def test_the_counting_example(make: Make) -> None:
    engine = holding(make, **STOCKS)
    assert engine.match({"Stock": "Foo Inc.", "Price": 14}) == ["F1"]


@every_engine
@pytest.mark.spec("02/5.6")
@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"Stock": "Foo Inc.", "Price": 11, "Volume": 500}, {"F1", "F2"}),
        ({"Stock": "Foo Inc.", "Price": 14, "Volume": 2_000_000}, {"F1", "F4"}),
        ({"Stock": "Foo Inc.", "Price": 12}, {"F1"}),
        ({"Stock": "Foo Inc.", "Price": 15}, set()),
        ({"Stock": "AB Inc.", "Price": 17}, {"F3"}),
        ({"Stock": "AB Inc.", "Price": 16}, set()),
        ({"Volume": 1_000_000}, set()),
        ({"Volume": 1_000_001}, {"F4"}),
    ],
)
def test_the_decision_tree_example(make: Make, event: dict[str, Any], expected: set[str]) -> None:
    engine = holding(make, **STOCKS, F4="Volume > 1000000")
    assert set(engine.match(event)) == expected


@every_engine
@pytest.mark.spec("R-02.10", "02/T2")
def test_the_empty_filter_matches_everything_and_a_contradiction_nothing(make: Make) -> None:
    engine = holding(make, all="", none="x = 1 and x = 2", one="x = 1")
    assert set(engine.match({"x": 1})) == {"all", "one"}
    assert engine.match({"y": 1}) == ["all"]


@every_engine
@pytest.mark.spec("R-02.08", "02/T3")
def test_a_missing_attribute_satisfies_no_comparison_not_even_a_negative_one(make: Make) -> None:
    engine = holding(
        make,
        ne="x != 3",
        nin="x not in (3, 4)",
        out="x not between 1 and 2",
        lacks="tags lacks 'a'",
        missing="x is missing",
        both="x != 3 and y = 1",
    )
    assert set(engine.match({"y": 1})) == {"missing"}
    assert set(engine.match({"y": 1, "x": None})) == {"missing"}
    assert set(engine.match({"y": 1, "x": 5})) == {"ne", "nin", "out", "both"}
    assert set(engine.match({"y": 1, "x": 3})) == {"out"}
    assert set(engine.match({"y": 1, "x": "5"})) == set()
    assert set(engine.match({"tags": []})) == {"lacks", "missing"}


@every_engine
@pytest.mark.spec("R-02.11", "02/P7")
def test_a_key_is_delivered_once_however_many_disjuncts_match(make: Make) -> None:
    engine = holding(make, either="x > 1 or y > 1 or s prefix 'a'")
    assert engine.match({"x": 2, "y": 2, "s": "ab"}) == ["either"]


@every_engine
@pytest.mark.spec("02/T9")
def test_true_one_and_the_text_1_are_three_values_and_one_is_also_1_0(make: Make) -> None:
    engine = holding(make, number="x = 1", bool="x = true", text="x = '1'", member="x has 1")
    assert engine.match({"x": 1}) == engine.match({"x": 1.0}) == ["number"]
    assert engine.match({"x": True}) == ["bool"]
    assert engine.match({"x": "1"}) == ["text"]
    assert engine.match({"x": [True]}) == []
    assert engine.match({"x": [1.0]}) == ["member"]


@every_engine
@pytest.mark.spec("R-02.13")
def test_comparisons_between_attributes_are_evaluated(make: Make) -> None:
    engine = holding(make, spread="bid < ask and symbol = 'IBM'", sum="x + y = 5")
    assert engine.match({"bid": 1, "ask": 2, "symbol": "IBM"}) == ["spread"]
    assert engine.match({"bid": 2, "ask": 2, "symbol": "IBM"}) == []
    assert engine.match({"x": 2, "y": 3}) == ["sum"]


@every_engine
@pytest.mark.spec("R-02.07")
def test_nested_records_and_notifications_with_a_type(make: Make) -> None:
    engine = holding(make, near="position.x < 5", quotes="isa quote")
    assert engine.match({"position": {"x": 1}}) == ["near"]
    assert engine.match({"position.x": 1}) == ["near"]
    both = Notification({"position": {"x": 1}}, type="quote.stock")
    assert set(engine.match(both)) == {"near", "quotes"}


@every_engine
@pytest.mark.spec("R-02.18")
def test_equal_filters_under_two_keys_live_and_die_apart(make: Make) -> None:
    engine = holding(make, a="x > 1", b="1 < x")
    assert set(engine.match({"x": 2})) == {"a", "b"}
    engine.remove("a")
    assert engine.match({"x": 2}) == ["b"]
    assert (len(engine), "a" in engine, "b" in engine) == (1, False, True)


@every_engine
def test_a_key_that_is_taken_is_refused_and_nothing_changes(make: Make) -> None:
    engine = holding(make, a="x > 1")
    with pytest.raises(DuplicateKey, match="'a'"):
        engine.add("a", Filter("x < 1"))
    assert len(engine) == 1
    assert engine.match({"x": 2}) == ["a"]
    assert engine.match({"x": 0}) == []


@every_engine
def test_an_unknown_key_is_refused_and_nothing_changes(make: Make) -> None:
    engine = holding(make, a="x > 1")
    with pytest.raises(UnknownKey, match="'b'"):
        engine.remove("b")
    assert len(engine) == 1
    assert engine.match({"x": 2}) == ["a"]


@every_engine
def test_a_value_that_no_attribute_can_hold_is_refused_where_a_filter_reads_it(make: Make) -> None:
    engine = holding(make, a="x > 1")
    with pytest.raises(InvalidValue):
        engine.match({"x": float("nan")})
    assert engine.match({"x": 2, "unread": float("nan")}) == ["a"]


@every_engine
def test_a_batch_gives_parallel_arrays(make: Make) -> None:
    engine = make()
    engine.add(("k", 1), Filter("x > 1"))
    engine.add(("k", 2), Filter("x > 2"))
    rows, keys = engine.match_batch([{"x": 2}, {"y": 1}, Notification({"x": 3})])
    assert rows.dtype == np.int64
    assert pairs((rows, keys)) == [(0, ("k", 1)), (2, ("k", 1)), (2, ("k", 2))]
    rows, keys = engine.match_batch([])
    assert len(rows) == len(keys) == 0


def test_keys_that_are_sequences_stay_whole_in_a_batch() -> None:
    rows, keys = gather([(4, [(1, 2), (3, 4)])])
    assert rows.tolist() == [4, 4]
    assert keys.tolist() == [(1, 2), (3, 4)]


@every_engine
@pytest.mark.spec("02/P1", "R-02.62")
def test_every_condition_on_every_value(make: Make) -> None:
    engine = make()
    for text in CONDITIONS:
        engine.add(text, filter_of(text))
    for name, values in VALUES.items():
        for value in values:
            event = {name: value}
            expected = {text for text in CONDITIONS if filter_of(text).matches(event)}
            found = engine.match(event)
            assert set(found) == expected, event
            assert len(found) == len(expected), event


# -- any sequence of changes


class AgreesWithBruteForce(RuleBasedStateMachine):
    """Adds, removes and matches in any order; the answer is always that of brute force."""

    make: Make

    @initialize()
    def start(self) -> None:
        self.engine = self.make()
        self.oracle: BruteForce[int] = BruteForce()

    @rule(key=st.integers(0, 9), filter=filters)
    def add(self, key: int, filter: Filter) -> None:
        if key in self.oracle:
            with pytest.raises(DuplicateKey):
                self.engine.add(key, filter)
        else:
            self.engine.add(key, filter)
            self.oracle.add(key, filter)

    @rule(key=st.integers(0, 9))
    def remove(self, key: int) -> None:
        if key in self.oracle:
            self.engine.remove(key)
            self.oracle.remove(key)
        else:
            with pytest.raises(UnknownKey):
                self.engine.remove(key)

    @rule(event=events)
    def match(self, event: dict[str, Any]) -> None:
        found = self.engine.match(event)
        assert len(found) == len(set(found))
        assert set(found) == set(self.oracle.match(event))

    @rule(batch=st.lists(events, max_size=4))
    def match_batch(self, batch: list[dict[str, Any]]) -> None:
        assert pairs(self.engine.match_batch(batch)) == pairs(self.oracle.match_batch(batch))

    @invariant()
    def same_keys(self) -> None:
        assert len(self.engine) == len(self.oracle)
        assert all((key in self.engine) == (key in self.oracle) for key in range(10))


@every_engine
@pytest.mark.spec("02/P1", "R-02.60", "R-02.61", "R-02.18")
def test_any_sequence_of_changes_agrees_with_brute_force(make: Make) -> None:
    machine: Any = type("Machine", (AgreesWithBruteForce,), {"make": staticmethod(make)})
    case = machine.TestCase
    case.settings = settings(max_examples=40, stateful_step_count=25)
    case("runTest").runTest()


@every_engine
@settings(max_examples=36)
@given(held=st.lists(filters, min_size=5, max_size=12), seen=st.lists(events, max_size=6))
@pytest.mark.spec("02/P1")
def test_many_filters_at_once_agree_with_brute_force(
    make: Make, held: list[Filter], seen: list[dict[str, Any]]
) -> None:
    engine, oracle = make(), BruteForce[int]()
    for key, filter in enumerate(held):
        engine.add(key, filter)
        oracle.add(key, filter)
    assert pairs(engine.match_batch(seen)) == pairs(oracle.match_batch(seen))
    for event in seen:
        if any(value is not None for value in event.values()):
            assert set(engine.match(Notification(event))) == set(oracle.match(event))
