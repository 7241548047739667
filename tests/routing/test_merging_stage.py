"""The merging stage against finite domains: mergers stand for their parts, and for nothing else."""

from collections.abc import Callable
from functools import cache
from itertools import permutations, product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import InvalidConfiguration
from stentor.filters import Filter, merge_all
from stentor.routing.reducers import MergingStage, Sample
from stentor.routing.reducers import merging as merging_module
from stentor.routing.reducers.merging import LARGEST
from stentor.routing.reducers.sample import OBSERVED

#: All that notifications of these tests say; x has values of several types, and may be missing.
DOMAIN: list[dict[str, Any]] = [
    {name: value for name, value in (("x", x), ("y", y)) if value is not None}
    for x in (0, 1, 2, 2.5, 3, 4, 5, 6, "a", "z", True, None)
    for y in (0, 1, 2, None)
    if (x, y) != (None, None)
]


def _texts() -> list[str]:
    texts = ["", "x < 3", "x >= 3", "x > 4", "x != 3", "x is number", "x is string", "x < 'm'"]
    texts += ["x in (0, 5)", "exists x", "y = 1 or x = 3", "x = 1 and x = 2", "x is int and x < 4"]
    for low in range(6):
        for high in range(low, 7):
            texts.append(f"x between {low} and {high}")
            texts += [f"x between {low} and {high} and y = {y}" for y in (0, 1)]
    texts += [f"x = {x} and y between {y} and {y + 1}" for x in range(3) for y in (0, 1)]
    return texts


TEXTS = _texts()


@cache
def chosen(number: int) -> Filter:
    return Filter(TEXTS[number])


@cache
def matched(filter: Filter) -> frozenset[int]:
    return frozenset(n for n, values in enumerate(DOMAIN) if filter.matches(values))


def matched_by(filters: list[Filter]) -> frozenset[int]:
    return frozenset().union(*map(matched, filters))


#: Numbers of filters: to add, or to remove the one that was added before if it is held.
histories = st.lists(st.integers(0, len(TEXTS) - 1), max_size=25)


class Tracked:
    """A stage, what was asked of it, and what it said about its mergers."""

    def __init__(self, looseness: float = 0.0) -> None:
        self.sample = Sample(DOMAIN)
        self.looseness = looseness
        self.stage = MergingStage(looseness, self.sample)
        self.held: list[Filter] = []
        self.mergers: set[Filter] = set()

    def add(self, part: Filter, *, merge: bool = True) -> None:
        self.held.append(part)
        self._note(self.stage.add(part, merge=merge))

    def remove(self, part: Filter) -> None:
        self.held.remove(part)
        self._note(self.stage.remove(part))

    def _note(self, delta: Any) -> None:
        added, removed = set(delta.added), set(delta.removed)
        assert not added & removed
        assert not added & self.mergers
        assert removed <= self.mergers
        self.mergers = (self.mergers | added) - removed

    def check(self) -> None:
        stage = self.stage
        mergers = stage.mergers
        assert len(mergers) == len(set(mergers))
        assert set(mergers) == self.mergers
        assert set(stage.all_parts) == set(self.held)
        assert len(stage) == len(set(self.held))
        groups = [stage.parts(merger) for merger in mergers]
        in_groups = [part for parts in groups for part in parts]
        assert len(in_groups) == len(set(self.held))
        assert set(in_groups) == set(self.held)
        for mine in mergers:
            assert not any(mine.covers(other) for other in mergers if other is not mine)
        for merger, parts in zip(mergers, groups, strict=True):
            assert all(merger.covers(part) for part in parts)
            if matched(merger) != matched_by(parts):
                assert self.looseness
                assert self.sample.imperfection(merger, parts) <= self.looseness
        if not self.looseness:
            assert matched_by(mergers) == matched_by(self.held)

    def run(self, history: list[int], *, merge: bool = True) -> None:
        for number in history:
            part = chosen(number)
            if part in self.held:
                self.remove(part)
            else:
                self.add(part, merge=merge)
            self.check()

    def empty(self, chance: Random) -> None:
        chance.shuffle(self.held)
        while self.held:
            self.remove(self.held[-1])
            self.check()
        assert self.stage.mergers == []
        assert not len(self.stage)


@pytest.mark.spec("R-03.20", "03/P9", "03/P13", "03/A7", "R-08.60")
@given(histories, st.randoms(use_true_random=False))
def test_perfect_mergers_match_what_their_parts_match(history: list[int], chance: Random) -> None:
    tracked = Tracked()
    tracked.run(history)
    tracked.empty(chance)


@pytest.mark.spec("R-03.21", "03/A8", "03/P13", "R-08.61", "08/8.12")
@settings(max_examples=40)
@given(histories, st.sampled_from((0.1, 0.3, 0.6, 1.0)), st.randoms(use_true_random=False))
def test_imperfect_mergers_keep_to_their_budget(
    history: list[int], looseness: float, chance: Random
) -> None:
    tracked = Tracked(looseness)
    tracked.run(history)
    tracked.empty(chance)


@pytest.mark.spec("R-03.07", "03/P12")
@given(st.lists(st.integers(0, 20), max_size=20), st.randoms(use_true_random=False))
def test_parts_are_counted(numbers: list[int], chance: Random) -> None:
    """A destination may ask for the same several times: two clients' filters, two ids."""
    tracked = Tracked()
    for number in numbers:
        tracked.add(chosen(number))
        tracked.check()
    tracked.empty(chance)


@pytest.mark.spec("03/A7")
@given(histories)
def test_without_merging_the_maximal_parts_stand_for_themselves(history: list[int]) -> None:
    tracked = Tracked()
    once = list(dict.fromkeys(history))
    tracked.run(once, merge=False)
    assert set(tracked.stage.mergers) <= set(tracked.held)


@pytest.mark.spec("03/A7")
def test_a_part_that_others_make_up_for_leaves_its_place_to_them() -> None:
    """Nothing changes for those outside, so nothing is to be said."""
    stage = MergingStage()
    for low, high in ((0, 3), (3, 6), (0, 6)):
        stage.add(Filter(f"x between {low} and {high}"), merge=False)
    assert stage.remove(Filter("x between 0 and 6")) == ([], [])
    assert stage.mergers == [Filter("x between 0 and 6")]


def within(low: int, high: int) -> Filter:
    return Filter(f"x is int and x between {low} and {high}")


@pytest.mark.spec("03/X-03.20", "R-03.20")
def test_a_part_inside_a_merger_outlives_those_that_made_it() -> None:
    tracked = Tracked()
    for low, high in ((0, 1), (2, 3), (1, 1)):
        tracked.add(within(low, high))
    assert tracked.stage.mergers == [within(0, 3)]
    tracked.remove(within(2, 3))
    tracked.remove(within(0, 1))
    assert tracked.stage.mergers == [within(1, 1)]


@pytest.mark.spec("03/X-03.21", "R-03.20")
def test_the_other_half_of_a_merger_stays() -> None:
    tracked = Tracked()
    tracked.add(Filter("x between 0 and 5"))
    tracked.add(Filter("x between 5 and 10"))
    assert tracked.stage.mergers == [Filter("x between 0 and 10")]
    tracked.remove(Filter("x between 0 and 5"))
    assert tracked.stage.mergers == [Filter("x between 5 and 10")]


@pytest.mark.spec("03/X-03.22", "R-03.20")
def test_rectangles_that_were_merged_across_each_other_in_any_order() -> None:
    k, g, a1, a2 = (
        Filter(f"x between {x} and y between {y}")
        for x, y in (
            ("2 and 4", "1 and 3"),
            ("2 and 4", "0 and 1"),
            ("0 and 3", "0 and 1"),
            ("3 and 5", "0 and 1"),
        )
    )
    for order in permutations((k, g, a1, a2)):
        stage = MergingStage()
        for filter in order:
            stage.add(filter)
        stage.remove(a1)
        assert any(merger.matches({"x": 2.5, "y": 0.5}) for merger in stage.mergers)
        assert not any(merger.matches({"x": 1, "y": 0.5}) for merger in stage.mergers)


@pytest.mark.spec("03/X-03.23", "R-03.20")
def test_filters_under_a_dissolved_merger_come_back() -> None:
    p1, p2, p3, p4 = (
        Filter(text)
        for text in (
            "x = 2 and y between 0 and 3",
            "x between 0 and 3 and y = 1",
            "x between 0 and 2 and y = 1",
            "x between 0 and 1 and y between 0 and 3",
        )
    )
    stage = MergingStage()
    for filter in (p1, p2, p3, p4):
        stage.add(filter)
    stage.remove(p2)
    stage.remove(p4)
    assert all(any(m.matches({"x": x, "y": 1}) for m in stage.mergers) for x in (0, 1, 2))
    assert not any(m.matches({"x": 3, "y": 1}) for m in stage.mergers)


@pytest.mark.spec("03/X-03.24", "R-03.21")
def test_the_budget_of_a_merger_is_kept_when_it_loses_a_part() -> None:
    sample = Sample([{"x": x} for x in range(10)])
    low, high, both = (Filter(f"x between {e}") for e in ("0 and 3", "6 and 9", "0 and 9"))
    assert sample.imperfection(both, [low, high]) == 0.2
    assert sample.imperfection(both, [low]) == 0.6
    stage = MergingStage(0.25, sample)
    stage.add(low)
    assert stage.add(high) == ([both], [low])
    assert stage.remove(high) == ([low], [both])
    strict = MergingStage(0.1, sample)
    strict.add(low)
    assert strict.add(high) == ([high], [])


@pytest.mark.spec("R-03.21")
def test_a_merger_within_its_budget_hides_that_a_part_went() -> None:
    """Lazy updates: what is announced stays the same."""
    sample = Sample([{"x": x} for x in range(10)])
    parts = [Filter(f"x between {e}") for e in ("0 and 3", "5 and 6", "8 and 9")]
    stage = MergingStage(0.5, sample)
    for part in parts:
        stage.add(part)
    (merger,) = stage.mergers
    assert stage.remove(parts[1]) == ([], [])
    assert stage.mergers == [merger]


@pytest.mark.spec("R-03.20")
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [("x < 5", "x >= 5"), ("x != 3", "x = 3"), ("x <= 'm'", "x > 'm'")],
)
def test_a_merger_of_all_values_of_one_type_matches_no_other_type(mine: str, theirs: str) -> None:
    stage = MergingStage()
    parts = [Filter(mine), Filter(theirs)]
    for part in parts:
        stage.add(part)
    for x in (1, 5, 7.5, "a", "z", True, ["a"]):
        wanted = any(part.matches({"x": x}) for part in parts)
        assert any(m.matches({"x": x}) for m in stage.mergers) is wanted
    assert not any(m.matches({"y": 1}) for m in stage.mergers)


@pytest.mark.spec("R-03.21")
def test_without_a_given_sample_the_latest_notifications_count() -> None:
    sample = Sample()
    low, high, both = (Filter(f"x between {e}") for e in ("0 and 3", "6 and 9", "0 and 9"))
    assert sample.imperfection(both, [low, high]) == 1.0  # nothing is known: assume the worst
    for x in (1, 2, 7, 8):
        sample.observe({"x": x})
    assert sample.imperfection(both, [low, high]) == 0.0
    for _ in range(OBSERVED):
        sample.observe({"x": 5})
    assert sample.imperfection(both, [low, high]) == 1.0


@pytest.mark.spec("R-03.20", "R-03.23")
def test_a_merger_does_not_grow_with_the_number_of_its_parts() -> None:
    stage = MergingStage()
    values = [7 * number for number in range(3 * LARGEST)]
    for value in values:
        stage.add(Filter(f"x = {value}"))
    assert all(any(m.matches({"x": value}) for m in stage.mergers) for value in values)
    for merger in stage.mergers:
        assert sum(merger.matches({"x": value}) for value in values) <= LARGEST


def ladders(count: int) -> list[Filter]:
    """For each symbol a ladder of prices of its own, with gaps between the rungs."""
    return [
        Filter(f"symbol = 'S{n // 10}' and price between {10 * n} and {10 * n + 4}")
        for n in range(count)
    ]


@pytest.mark.spec("R-03.20", "R-03.23")
def test_a_new_part_looks_at_a_few_others_only(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = []
    tried: Callable[[Filter, Filter, str], Filter | None] = merging_module.perfect_merger
    for size in (100, 1000):
        stage = MergingStage()
        for part in ladders(size):
            stage.add(part)
        assert len(stage.mergers) == size
        calls = 0

        def counted(mine: Filter, theirs: Filter, name: str) -> Filter | None:
            nonlocal calls
            calls += 1
            return tried(mine, theirs, name)

        monkeypatch.setattr(merging_module, "perfect_merger", counted)
        added = stage.add(Filter("symbol = 'S3' and price between 314 and 320"))
        monkeypatch.undo()
        assert added.added == [Filter("symbol = 'S3' and price between 310 and 324")]
        spent.append(calls)
    assert spent[1] == spent[0]


@pytest.mark.spec("R-03.21")
@pytest.mark.parametrize("looseness", [-0.1, 1.5])
def test_a_budget_is_a_share(looseness: float) -> None:
    with pytest.raises(InvalidConfiguration, match="looseness is a share from 0 to 1"):
        MergingStage(looseness)


@pytest.mark.spec("R-02.71", "02/T17", "02/5.4")
def test_only_filters_that_differ_on_one_attribute_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[tuple[Filter, Filter, str]] = []

    def recorded(mine: Filter, theirs: Filter, name: str) -> Filter | None:
        tried.append((mine, theirs, name))
        return None

    monkeypatch.setattr(merging_module, "perfect_merger", recorded)
    stage = MergingStage()
    values = [v for v in product(range(3), repeat=3) if any(v)]
    for some in sorted(values, key=lambda v: v.count(0)):  # what says most comes first
        parts = [f"{name} = {v}" for name, v in zip("xyz", some, strict=True) if v]
        stage.add(Filter(" and ".join(parts)))
    assert tried
    for mine, theirs, name in tried:
        (one,), (other,) = mine.conjuncts, theirs.conjuncts
        assert one.without(name) == other.without(name)
        assert one.constraints.keys() == other.constraints.keys()


@pytest.mark.parametrize("looseness", [0.0, 0.5])
def test_records_whose_opposite_cannot_be_said_stay_apart(looseness: float) -> None:
    """A comparison of two fields of an element has none, and nobody knows what it would cover."""
    filters = [
        Filter("any r in a: r.b = 1 or r is record"),
        Filter("all r in a: r.b = 1 or (all q in r.l: q.x < q.z)"),
        Filter("all r in a: (all q in r.l: q.x < q.z) and r.b = 1"),
    ]
    for order in permutations(filters):
        stage = MergingStage(looseness)
        for filter in order:
            stage.add(filter)
        for filter in filters:
            stage.remove(filter)
        assert not len(stage)
    assert set(merge_all(filters)) <= set(filters)
