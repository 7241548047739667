"""The covering reducer against brute force: what is announced is what nothing else covers."""

from collections.abc import Callable, Iterable
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from strategies import filters as any_filters

from stentor.filters import Filter
from stentor.filters.effort import effort
from stentor.matching.commons import SharedRelations
from stentor.routing import FilterId, Strategy, TreeRouter
from stentor.routing.reducers import CoveringReducer, PlainReducer, covering
from stentor.routing.reducers.slots import REFERENCE, slots_of

SLOTS = (1, 2, 3)


@cache
def chosen(number: int) -> Filter:
    return Filter(FILTERS[number])


def _interval(low: int, high: int) -> str:
    return f"x between {low} and {high}"


#: Chains, antichains, disjunctions that cover what says less, and what nothing matches.
FILTERS = (
    *(_interval(low, high) for low in range(4) for high in range(low, 5)),
    "",
    "y = 1",
    "y > 0",
    "x > 1 and y = 1",
    "x > 1 or y > 0",
    "x > 3 or y = 1",
    "x between 0 and 1 or x between 3 and 4",
    "x != 2",
    "x = 1 and x = 2",
)


def maximal(wanted: Iterable[Filter]) -> set[Filter]:
    """By definition: those that no other one covers."""
    distinct = {filter for filter in wanted if not filter.is_never}
    return {f for f in distinct if not any(g != f and g.covers(f) for g in distinct)}


class Reducing(RuleBasedStateMachine):
    """Filters come to be wanted here and there, neighbors come and go."""

    filter_numbers = st.integers(0, len(FILTERS) - 1)
    #: How many one step looks at anew.
    at_once: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.reducer = CoveringReducer(self.at_once, self.visible())
        self.wanted: dict[Filter, int] = {}
        self.slots: set[int] = set()
        #: What the neighbors hold, learned from the changes alone.
        self.told: dict[int, set[Filter]] = {}
        #: What new neighbors are still to be told.
        self.unfilled: dict[int, list[Filter]] = {}

    def visible(self) -> covering.Visible | None:
        """Where announced filters are searched, if that is not the reducer's own."""
        return None

    @rule(number=filter_numbers, mask=st.integers(0, 7), local=st.booleans())
    def want(self, number: int, mask: int, local: bool) -> None:
        filter = chosen(number)
        wanted = sum(1 << slot for slot in self.slots if mask >> (slot - 1) & 1)
        if wanted or local:
            wanted |= REFERENCE
        self.reducer.want(filter, filter, wanted)
        self._note(filter, wanted)

    def _note(self, filter: Filter, wanted: int) -> None:
        if wanted:
            self.wanted[filter] = wanted
        else:
            self.wanted.pop(filter, None)

    @precondition(lambda self: len(self.slots) < len(SLOTS))
    @rule(which=st.integers(0, 2), chance=st.randoms(use_true_random=False), all_=st.booleans())
    def add_slot(self, which: int, chance: Random, all_: bool) -> None:
        free = [slot for slot in SLOTS if slot not in self.slots]
        slot = free[which % len(free)]
        self.slots.add(slot)
        self.told[slot] = set()
        first = self.reducer.announced(0)
        keys = sorted(self.wanted, key=lambda filter: filter not in first)
        self.unfilled[slot] = [f for f in keys if all_ or chance.random() < 0.7]
        if chance.random() < 0.5:
            while self.unfilled[slot]:
                self._fill(slot, len(self.unfilled[slot]))

    @precondition(lambda self: self.slots)
    @rule(which=st.integers(0, 2), most=st.integers(1, 5))
    def fill_slot(self, which: int, most: int) -> None:
        """A new neighbor is told some more, while other things happen."""
        self._fill(sorted(self.slots)[which % len(self.slots)], most)

    def _fill(self, slot: int, most: int) -> None:
        some = [f for f in self.unfilled[slot][:most] if f in self.wanted]
        wanted = [(f, f, self.wanted[f] | 1 << slot | REFERENCE) for f in some]
        done = self.reducer.fill_slot(slot, wanted)
        assert done or not wanted
        for filter, _, where in wanted[:done]:
            self.wanted[filter] = where
        rest = [filter for filter, *_ in wanted[done:]]
        self.unfilled[slot] = rest + self.unfilled[slot][most:]

    @precondition(lambda self: self.slots)
    @rule(which=st.integers(0, 2))
    def drop_slot(self, which: int) -> None:
        slot = sorted(self.slots)[which % len(self.slots)]
        self.slots.remove(slot)
        del self.told[slot], self.unfilled[slot]
        self.reducer.drop_slot(slot)
        for filter, wanted in self.wanted.items():
            self.wanted[filter] = wanted & ~(1 << slot)

    @rule()
    def work(self) -> None:
        assert self.at_once or not self.reducer.has_work
        self.reducer.work()

    @rule()
    def take(self) -> None:
        """Neighbors are told; what they are told fits what they hold."""
        for slot, change in self.reducer.announcements.take().items():
            if slot == 0:
                continue
            held = self.told[slot]
            assert not held & set(change.added.values())
            assert held >= set(change.removed.values())
            self.told[slot] = (held | set(change.added.values())) - set(change.removed.values())
        for slot in self.slots:
            assert self.told[slot] == set(self.reducer.announced(slot).values())

    @invariant()
    def announces_the_maximal(self) -> None:
        for slot in self.slots:
            here = [f for f, wanted in self.wanted.items() if wanted >> slot & 1]
            announced = self.reducer.announced(slot)
            assert list(announced) == list(announced.values())
            if self.reducer.has_work:
                # Too much is announced, but nothing wanted is missing.
                assert all(f.is_never or any(g.covers(f) for g in announced) for f in here)
            else:
                assert set(announced) == maximal(here)
            assert len(announced) == len(set(announced))

    @invariant()
    def holds_what_is_wanted(self) -> None:
        held = {f for f, wanted in self.wanted.items() if wanted and not f.is_never}
        assert len(self.reducer) == len(held)

    def teardown(self) -> None:
        for filter in list(self.wanted):
            self.reducer.want(filter, filter, 0)
        while self.reducer.has_work:
            self.reducer.work()
        assert len(self.reducer) == 0
        assert all(not self.reducer.announced(slot) for slot in self.slots)


class ReducingStepwise(Reducing):
    """The same, with next to nothing done in one step."""

    at_once = 1


class ReducingInCommon(Reducing):
    """The same, where another reducer holds what it announces in the same place."""

    at_once = 2

    def visible(self) -> covering.Visible:
        relations = SharedRelations()
        self.other = CoveringReducer(visible=relations)
        return relations

    @rule(number=Reducing.filter_numbers, wanted=st.booleans())
    def want_elsewhere(self, number: int, wanted: bool) -> None:
        self.other.want(chosen(number), chosen(number), REFERENCE if wanted else 0)


class ReducingWithLittleEffort(Reducing):
    """The same, where a step is over after one search."""

    at_once = 8

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(covering, "EFFORT", -1)

    def teardown(self) -> None:
        super().teardown()
        self.patch.undo()


TestReducingInCommon = ReducingInCommon.TestCase
TestReducingWithLittleEffort = ReducingWithLittleEffort.TestCase
TestReducingStepwise = pytest.mark.spec("R-03.19", "R-03.06")(ReducingStepwise.TestCase)
TestReducing = pytest.mark.spec(
    "R-03.19", "R-03.22", "03/P7", "03/P9", "08/6.4", "08/6.5", "08/6.7"
)(Reducing.TestCase)


@pytest.mark.spec("R-03.19", "R-03.22", "08/6.4", "08/8.15")
@given(st.lists(any_filters, max_size=12), st.randoms(use_true_random=False))
def test_filters_of_all_kinds_announce_their_maximal_ones(
    wanted: list[Filter], chance: Random
) -> None:
    reducer = CoveringReducer()
    for filter in wanted:
        reducer.want(filter, filter, REFERENCE | 0b10)
    assert set(reducer.announced(1).values()) == maximal(wanted)
    left = list(dict.fromkeys(wanted))
    chance.shuffle(left)
    while left:
        filter = left.pop()
        reducer.want(filter, filter, 0)
        assert set(reducer.announced(1).values()) == maximal(left)
    assert len(reducer) == 0


@pytest.mark.spec("03/P8", "07/T-04")
def test_a_withdrawal_and_what_it_uncovers_are_one_change() -> None:
    reducer = CoveringReducer()
    large, small, tiny = Filter("x > 0"), Filter("x > 5"), Filter("x > 7")
    for filter in (tiny, small, large):
        reducer.want(filter, filter, REFERENCE | 0b10)
    reducer.announcements.take()
    reducer.want(large, large, 0)
    change = reducer.announcements.take()[1]
    assert list(change.added) == [small]
    assert list(change.removed) == [large]


@pytest.mark.spec("03/8.12", "08/8.14")
@pytest.mark.parametrize("make", [PlainReducer, CoveringReducer])
def test_what_comes_and_goes_between_two_messages_is_not_mentioned(
    make: Callable[[], PlainReducer | CoveringReducer],
) -> None:
    reducer = make()
    filter = Filter("x > 0")
    reducer.want(filter, filter, REFERENCE | 0b10)
    reducer.want(filter, filter, 0)
    assert reducer.announcements.take().get(1) is None
    reducer.want(filter, filter, REFERENCE | 0b10)
    reducer.announcements.take()
    reducer.want(filter, filter, 0)
    reducer.want(filter, filter, REFERENCE | 0b10)
    assert reducer.announcements.take().get(1) is None
    assert set(reducer.announced(1)) == {filter}


@pytest.mark.spec("08/6.6")
@given(st.lists(st.integers(0, len(FILTERS) - 1), unique=True), st.randoms(use_true_random=False))
def test_what_is_announced_does_not_depend_on_history(numbers: list[int], chance: Random) -> None:
    announced = []
    for _ in range(2):
        chance.shuffle(numbers)
        reducer = CoveringReducer()
        passing = chosen(chance.randrange(len(FILTERS)))
        for number in numbers:
            reducer.want(chosen(number), chosen(number), REFERENCE | 0b10)
        if passing not in map(chosen, numbers):
            reducer.want(passing, passing, REFERENCE | 0b10)
            reducer.want(passing, passing, 0)
        announced.append(set(reducer.announced(1)))
    assert announced[0] == announced[1]


class _Counting:
    """Counts how often a filter is compared with another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compared = 0
        covers = Filter.covers

        def counted(filter: Filter, other: Filter) -> bool:
            self.compared += 1
            return covers(filter, other)

        monkeypatch.setattr(Filter, "covers", counted)


def stocks(count: int) -> list[Filter]:
    """Price limits on many symbols: for each symbol a chain of filters."""
    return [Filter(f"symbol = 'S{n // 10}' and price > {n % 10}") for n in range(count)]


@pytest.mark.spec("R-03.19", "R-03.23")
def test_a_change_does_not_look_at_all_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = []
    for size in (200, 2000):
        reducer = CoveringReducer()
        for filter in stocks(size):
            reducer.want(filter, filter, REFERENCE | 0b110)
        counting = _Counting(monkeypatch)
        visits = 0
        place = CoveringReducer._place

        def counted(self: CoveringReducer, node: Any, where: int, place: Any = place) -> None:
            nonlocal visits
            visits += 1
            place(self, node, where)

        monkeypatch.setattr(CoveringReducer, "_place", counted)
        for filter in stocks(100):  # withdraw largest first, which uncovers the next
            reducer.want(filter, filter, 0)
        for filter in stocks(100):
            reducer.want(filter, filter, REFERENCE | 0b110)
        monkeypatch.undo()
        spent.append((counting.compared, visits))
        assert len(reducer.announced(1)) == size // 10
    (few_compared, few_visits), (many_compared, many_visits) = spent
    assert many_visits == few_visits
    assert many_compared <= 2 * few_compared


@pytest.mark.spec("R-03.38")
def test_a_new_neighbor_is_told_the_maximal_ones_without_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reducer = CoveringReducer()
    for filter in stocks(500):
        reducer.want(filter, filter, REFERENCE)
    first = reducer.announced(0)
    keys = sorted(stocks(500), key=lambda filter: filter not in first)
    counting = _Counting(monkeypatch)
    reducer.fill_slot(1, [(filter, filter, REFERENCE | 0b10) for filter in keys])
    assert counting.compared == 0
    assert set(reducer.announced(1)) == set(stocks(500)[::10])


@pytest.mark.spec("R-03.19", "R-03.38")
def test_a_new_neighbor_where_only_some_filters_are_wanted() -> None:
    """What hides a filter elsewhere is not wanted there, but something that says more is."""
    wide, between, narrow = Filter("x > 1 or y > 1"), Filter("x > 3"), Filter("x > 5")
    reducer = CoveringReducer()
    for filter in (between, narrow, wide):
        reducer.want(filter, filter, REFERENCE)
    here, elsewhere = REFERENCE | 0b10, REFERENCE
    wanted = ((wide, here), (between, elsewhere), (narrow, here))
    reducer.fill_slot(1, [(filter, filter, where) for filter, where in wanted])
    assert set(reducer.announced(1)) == {wide}


@pytest.mark.spec("R-03.17", "R-03.18")
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 7)),
        max_size=30,
    )
)
def test_the_plain_reducer_announces_exactly_what_is_wanted(
    changes: list[tuple[int, int]],
) -> None:
    reducer = PlainReducer()
    wanted: dict[int, int] = {}
    for key, mask in changes:
        wanted[key] = mask << 1
        reducer.want(key, chosen(key), mask << 1 | (REFERENCE if mask else 0))
    for slot in SLOTS:
        here = {key: chosen(key) for key, mask in wanted.items() if slot in slots_of(mask)}
        assert reducer.announced(slot) == here
    reducer.drop_slot(2)
    assert not reducer.announced(2)
    reducer.fill_slot(2, [(key, chosen(key), mask | REFERENCE) for key, mask in wanted.items()])
    assert set(reducer.announced(2)) == {k for k, m in wanted.items() if m >> 2 & 1}
    assert len(reducer) == sum(mask > 0 for mask in wanted.values())


@pytest.mark.spec("R-03.19", "R-03.23")
@pytest.mark.parametrize("largest_first", [True, False])
def test_nested_filters_are_withdrawn_without_looking_at_all_that_are_left(
    monkeypatch: pytest.MonkeyPatch, largest_first: bool
) -> None:
    spent = []
    covers = Filter.covers
    for size in (100, 800):
        nested = [Filter(f"x > {i}") for i in range(size)]
        reducer = CoveringReducer()
        for filter in nested:
            reducer.want(filter, filter, REFERENCE | 0b10)
        tests = 0

        def counted(self: Filter, other: Filter) -> bool:
            nonlocal tests
            tests += 1
            return covers(self, other)

        monkeypatch.setattr(Filter, "covers", counted)
        for filter in nested if largest_first else reversed(nested):
            reducer.want(filter, filter, 0)
        monkeypatch.undo()
        assert len(reducer) == 0
        spent.append(tests / size)
    assert spent[1] < 2 * spent[0] + 1


def test_where_searches_take_long_few_are_placed_in_one_step() -> None:
    """Half of all boxes have to be looked at for each of them."""
    sides = [i * 7 % 1_000 for i in range(1_000)]
    boxes = [Filter(f"x > {i} and y < {i}") for i in sides]
    reducer = CoveringReducer(at_once=64)
    all_ = Filter("")
    for filter in (all_, *boxes):
        reducer.want(filter, filter, REFERENCE | 0b10)
    reducer.want(all_, all_, 0)
    steps = []
    before = effort.left
    while reducer.has_work:
        reducer.work()
        steps.append(before - effort.left)
        before = effort.left
    assert max(steps) < 2 * covering.EFFORT < sum(steps)
    assert set(reducer.announced(1)) == set(boxes)


def test_what_hides_many_goes_when_the_last_of_them_is_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where there is no time to place all that one step has looked at."""
    monkeypatch.setattr(covering, "EFFORT", -1)
    reducer = CoveringReducer(at_once=8)
    small = [Filter(f"x = {i}") for i in range(5)]
    for filter in (Filter(""), *small):
        reducer.want(filter, filter, REFERENCE | 0b10)
    reducer.announcements.take()
    told = {Filter("")}
    reducer.want(Filter(""), Filter(""), 0)
    steps = 0
    while True:
        for change in [c for slot, c in reducer.announcements.take().items() if slot == 1]:
            told = (told | set(change.added.values())) - set(change.removed.values())
        assert all(any(other.covers(filter) for other in told) for filter in small)
        if not reducer.has_work:
            break
        reducer.work()
        steps += 1
    assert steps > 1
    assert told == set(small)


def test_a_new_neighbor_is_told_everything_however_little_fits_into_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(covering, "EFFORT", -1)
    router = TreeRouter(1, Strategy("covering"), at_once=1)
    filters = [Filter(f"x = {x}") for x in range(5)]
    for number, filter in enumerate(filters):
        router.subscribe(FilterId("ann", number), filter)
    told = router.link_up(2)
    assert router.is_joining(2)
    while router.has_work:
        told += router.work()
    assert {f for send in told for _, f in send.message.added} == set(filters)
