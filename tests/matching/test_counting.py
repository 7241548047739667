"""The counting engine: shared predicates, value structures, and nothing left behind."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import filters

from stentor import Filter
from stentor.filters import Operator, register_operator
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint
from stentor.filters.domains import REAL, domain
from stentor.filters.ranges import Ranges
from stentor.matching.counting import Counting
from stentor.matching.counting.conjunct_index import ConjunctIndex, states_of
from stentor.matching.counting.interval_tree import IntervalTree
from stentor.matching.counting.structure import Affixes, Substrings
from stentor.model.values import ValueType, register_value_type


def engine_of(*texts: str) -> Counting[int]:
    engine: Counting[int] = Counting()
    for key, text in enumerate(texts):
        engine.add(key, Filter(text))
    return engine


def snapshot(engine: Counting[int]) -> Any:
    """All that the engine holds, without regard to which object holds it."""
    index = engine._index
    predicates = {
        use: (
            {c.conjunct for c in predicate.credits},
            {c.conjunct for c in predicate.debits},
        )
        for use, predicate in index.predicates.items()
    }
    conjuncts = {
        conjunct: (counted.target, set(counted.keys), tuple(counted.guards))
        for conjunct, counted in index.conjuncts.items()
    }
    always = {counted.conjunct for counted in index.always}
    return predicates, conjuncts, always, engine.sizes, dict(engine._names), len(engine)


# -- predicates


@pytest.mark.spec("02/5.5", "R-02.61")
def test_shared_predicates_are_held_once() -> None:
    engine = engine_of(
        "Stock = 'Foo Inc.' and Price < 15",
        "Stock = 'Foo Inc.' and Price < 12",
        "Stock = 'AB Inc.' and Price > 16",
    )
    assert engine.predicate_count == 5
    counters = _counters(engine, {"Stock": "Foo Inc.", "Price": 14})
    assert counters == {0: (2, 2), 1: (1, 2)}
    assert engine.match({"Stock": "Foo Inc.", "Price": 14}) == [0]


def satisfied(index: ConjunctIndex[int], name: str, state: Any) -> list[Any]:
    """The predicates on the name that accept the state."""
    return index.values[name].find(*state) if name in index.values else []


def _counters(engine: Counting[int], event: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Hits and target of each filter that is touched."""
    index: ConjunctIndex[int] = engine._index
    hits: dict[int, tuple[int, int]] = {}
    for name, state in states_of(event).items():
        for predicate in satisfied(index, name, state):
            for counted in predicate.credits:
                for key in counted.keys:
                    hits[key] = (hits.get(key, (0, 0))[0] + 1, counted.target)
    return hits


@pytest.mark.spec("R-02.61")
def test_each_distinct_predicate_is_evaluated_at_most_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Any] = []
    original = ConjunctIndex._remembered

    def watching(self: Any, *args: Any) -> Any:
        result = original(self, *args)
        found.extend(result)
        return result

    monkeypatch.setattr(ConjunctIndex, "_remembered", watching)
    engine = engine_of(*[f"x > 1 and s contains 'a' and y = {i}" for i in range(20)])
    assert engine.match({"x": 2, "s": "banana", "y": 7}) == [7]
    assert len(found) == len(set(found)) == 3


@pytest.mark.spec("R-02.61")
def test_a_value_that_repeats_in_a_batch_is_tested_once() -> None:
    asked: list[float] = []

    def seen_above(value: float, low: float) -> bool:
        asked.append(value)
        return value > low

    register_operator(Operator("seen_above", "number", seen_above))
    engine = engine_of("x seen_above 3", "x seen_above 3 and y = 1")
    rows, _ = engine.match_batch([{"x": 5}] * 10 + [{"x": 5.0}, {"x": 1}])
    assert len(rows) == 11
    assert asked == [5, 5.0, 1]


@pytest.mark.spec("R-02.62")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x = 1", "number point"),
        ("x in (1, 2)", "number point"),
        ("x < 1", "number below"),
        ("x >= 1", "number above"),
        ("x between 1 and 2", "number interval"),
        (" or ".join(f"x between {4 * i} and {4 * i + 1}" for i in range(70)), "number test"),
        ("x is number", "number any"),
        ("x is int and x = 3", "number/int point"),
        ("exists x", "rest"),
        ("x prefix 'ab'", "string prefix"),
        ("x suffix 'ab'", "string suffix"),
        ("x contains 'ab'", "string contains"),
        ("x like 'a%b'", "string checked"),
        ("x like '%a%b%'", "string checked"),
        ("x regex '[ab]$'", "string test"),
        ("x has 1", "collection elements"),
        ("x subset of (1, 2)", "collection elements"),
    ],
)
def test_every_kind_of_test_has_its_structure(text: str, kind: str) -> None:
    assert kind in engine_of(text).sizes["x"]


@pytest.mark.spec("02/5.12")
@pytest.mark.parametrize(
    ("template", "hit", "other"),
    [
        ("x != {}", 7, 10_000),
        ("x not in ({}, -1)", 7, 10_000),
        ("s not suffix '<{}>'", "<7>", "none"),
        ("tags lacks {}", [7], [10_000]),
        ("x is missing or x != {}", 7, 10_000),
    ],
)
def test_what_accepts_almost_everything_is_counted_by_what_it_rejects(
    template: str, hit: Any, other: Any
) -> None:
    name = "tags" if "tags" in template else "s" if "s not" in template else "x"
    engine = engine_of(*[f"y = {i} and ({template.format(i)})" for i in range(50)])
    index = engine._index
    touched = sum(p.uses for p in satisfied(index, name, states_of({name: other})[name]))
    assert touched == 0
    assert sum(p.uses for p in satisfied(index, name, states_of({name: hit})[name])) == 1
    assert engine.match({"y": 7, name: hit}) == []
    assert engine.match({"y": 8, name: hit}) == [8]


# -- add and remove


@settings(max_examples=48)
@given(held=st.lists(filters, max_size=6), extra=st.lists(filters, min_size=1, max_size=4))
@pytest.mark.spec("02/P9")
def test_add_then_remove_leaves_everything_as_before(
    held: list[Filter], extra: list[Filter]
) -> None:
    engine: Counting[int] = Counting()
    for key, filter in enumerate(held):
        engine.add(key, filter)
    before = snapshot(engine)
    for key, filter in enumerate(extra, 100):
        engine.add(key, filter)
    for key in range(100, 100 + len(extra)):
        engine.remove(key)
    assert snapshot(engine) == before
    for key in range(len(held)):
        engine.remove(key)
    assert snapshot(engine) == snapshot(Counting())


class _Fickle(str):
    """A registered text that refuses to be compared with some others."""

    __slots__ = ()

    def __lt__(self, other: object) -> bool:
        if "!" in self or "!" in str(other):
            raise TypeError("not comparable")
        return str.__lt__(self, str(other))

    __hash__ = str.__hash__


@pytest.mark.spec("02/P9")
def test_a_filter_that_cannot_be_added_leaves_the_engine_as_it_was() -> None:
    register_value_type(ValueType("fickle", (_Fickle,)))

    def below(text: str) -> Constraint:
        return Constraint((("fickle", Ranges.below(domain("fickle"), _Fickle(text))),))

    engine: Counting[int] = Counting()
    good = Filter.of_conjuncts([Conjunct({"f": below("m"), "x": REAL_ABOVE})])
    bad = Filter.of_conjuncts([Conjunct({"e": REAL_ABOVE, "f": below("m!"), "x": REAL_ABOVE})])
    engine.add(1, good)
    before = snapshot(engine)
    with pytest.raises(TypeError, match="not comparable"):
        engine.add(2, bad)
    assert snapshot(engine) == before
    assert engine.match({"f": _Fickle("a"), "x": 2}) == [1]


REAL_ABOVE = Constraint((("number", Ranges.above(REAL, 1)),))


# -- structures


@settings(max_examples=36)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 1), st.integers(1, 8), st.booleans()),
        max_size=40,
    )
)
def test_the_interval_tree_finds_what_a_scan_finds(
    changes: list[tuple[int, int, int, bool]],
) -> None:
    tree: IntervalTree[Any] = IntervalTree()
    held: set[Any] = set()
    for low, side, length, stays in changes:
        interval = ((low, side), (low + length, 1 - side))
        tree.add(interval, interval)
        held.add(interval)
        if not stays:
            tree.remove(interval, interval)
            held.discard(interval)
    assert len(tree) == len(held)
    for value in [n / 2 for n in range(-1, 46)]:
        found: list[Any] = []
        tree.find(value, found)
        assert len(found) == len(set(found))
        assert set(found) == {i for i in held if i[0] <= (value, 0) < i[1]}


def test_the_interval_tree_does_not_depend_on_the_order_of_changes() -> None:
    intervals = [((low, 0), (low + 5, 1)) for low in range(50)]

    def shape(node: Any) -> Any:
        return None if node is None else (node.key, node.top, shape(node.left), shape(node.right))

    def built(order: list[Any], passing: list[Any]) -> Any:
        tree: IntervalTree[int] = IntervalTree()
        for interval in [*passing, *order]:
            tree.add(1, interval)
        for interval in passing:
            tree.remove(1, interval)
        return shape(tree._root)

    others = [((low, 1), (low + 3, 0)) for low in range(0, 50, 3)]
    assert built(intervals, []) == built(intervals[::-1], others)


def test_the_interval_tree_stays_shallow() -> None:
    tree: IntervalTree[int] = IntervalTree()
    for low in range(4_000):
        tree.add(low, ((low, 0), (low + 2, 0)))

    def depth(node: Any) -> int:
        return 0 if node is None else 1 + max(depth(node.left), depth(node.right))

    assert depth(tree._root) < 60


_words = st.text("ab", max_size=5)


@settings(max_examples=48)
@given(
    held=st.sets(_words.filter(bool), max_size=12), gone=st.sets(_words, max_size=4), text=_words
)
@pytest.mark.parametrize(
    ("make", "test"),
    [
        (lambda: Affixes(at_end=False), lambda text, key: text.startswith(key)),
        (lambda: Affixes(at_end=True), lambda text, key: text.endswith(key)),
        (Substrings, lambda text, key: key in text),
    ],
    ids=["prefix", "suffix", "contains"],
)
def test_text_structures_find_what_a_scan_finds(
    make: Callable[[], Any],
    test: Callable[[str, str], bool],
    held: set[str],
    gone: set[str],
    text: str,
) -> None:
    structure = make()
    for key in held:
        structure.add(key, key)
    for key in held & gone:
        structure.remove(key, key)
    found: list[str] = []
    structure.find(text, found)
    assert sorted(found) == sorted(key for key in held - gone if test(text, key))
    for key in held - gone:
        structure.remove(key, key)
    assert len(structure) == 0
