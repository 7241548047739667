"""The relations of one filter to a table of filters are those of testing every pair."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from strategies import filters

from stentor import Filter
from stentor.errors import DuplicateKey, UnknownKey
from stentor.filters.constraint import Constraint
from stentor.filters.witness import ABSENT, Absent, witness
from stentor.matching.relations import FilterTable, buckets
from stentor.matching.relations.point_index import accepts


def table_of(**texts: str) -> FilterTable[str]:
    table: FilterTable[str] = FilterTable()
    for key, text in texts.items():
        table.add(key, Filter(text))
    return table


@pytest.fixture(params=[1, buckets.LARGE], ids=["indexed early", "indexed late"])
def _large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with indexes in every bucket, once as it is."""
    monkeypatch.setattr(buckets, "LARGE", request.param)


def pairwise(held: dict[Any, Filter], probe: Filter) -> dict[str, set[Any]]:
    return {
        "coverers": {k for k, f in held.items() if f.covers(probe)},
        "covered": {k for k, f in held.items() if probe.covers(f)},
        "identical": {k for k, f in held.items() if f == probe},
        "overlapping": {k for k, f in held.items() if f.overlaps(probe)},
    }


def answers(table: FilterTable[Any], probe: Filter) -> dict[str, set[Any]]:
    assert set(table.may_overlap(probe)) >= table.overlapping(probe)
    return {
        "coverers": table.coverers(probe),
        "covered": table.covered(probe),
        "identical": table.identical(probe),
        "overlapping": table.overlapping(probe),
    }


# -- examples


@pytest.mark.spec("R-02.71", "02/P8")
def test_coverers_and_covered_of_a_small_table() -> None:
    table = table_of(
        all="",
        ibm="symbol = 'IBM'",
        high="symbol = 'IBM' and price > 100",
        band="symbol = 'IBM' and price between 120 and 130",
        prefix="symbol prefix 'IB'",
        other="symbol = 'SAP'",
        never="x = 1 and x = 2",
    )
    probe = Filter("symbol = 'IBM' and price > 110")
    assert table.coverers(probe) == {"all", "ibm", "high", "prefix"}
    assert table.covered(probe) == {"band", "never"}
    assert table.overlapping(probe) == {"all", "ibm", "high", "band", "prefix"}
    assert table.identical(probe) == set()
    assert table.identical(Filter("price > 100 and symbol = 'IBM'")) == {"high"}


@pytest.mark.spec("02/P8", "02/T2")
def test_the_empty_filter_covers_all_and_is_covered_by_itself_only() -> None:
    table = table_of(empty="", x="x > 1", union="x = 1 or y = 1", never="x = 1 and x = 2")
    assert table.covered(Filter()) == {"empty", "x", "union", "never"}
    assert table.coverers(Filter()) == {"empty"}
    assert "empty" in table.coverers(Filter("z contains 'q'"))
    assert table.overlapping(Filter()) == {"empty", "x", "union"}


@pytest.mark.spec("02/T7")
def test_a_filter_that_nothing_matches_is_covered_by_all_and_overlaps_none() -> None:
    table = table_of(empty="", x="x > 1", never="x = 1 and x = 2")
    never = Filter("y < 1 and y > 1")
    assert table.coverers(never) == {"empty", "x", "never"}
    assert table.covered(never) == table.identical(never) == {"never"}
    assert table.overlapping(never) == set()


def test_a_union_may_cover_what_none_of_its_conjuncts_covers() -> None:
    table = table_of(union="x < 5 and y = 1 or x > 3 and y = 1 and z > 0 or x >= 5 and y = 1")
    assert table.coverers(Filter("y = 1 and x between 0 and 9")) == {"union"}
    probe = Filter("x = 1 and y > 0 or x = 2 and y > 1")
    inside = table_of(both="x in (1, 2) and y > 1", one="x = 1 and y > 0", out="x = 2 and y > 0")
    assert inside.covered(probe) == {"both", "one"}


def test_a_single_value_may_be_written_as_a_pattern_or_an_integer() -> None:
    table = table_of(text="s = 'abc'", pattern="s like '%bc' and s regex '^a.c$'", number="x = 1")
    assert table.coverers(Filter("s prefix 'ab' and s like '%bc' and s like '___'")) == {
        "text",
        "pattern",
    }
    assert table.covered(Filter("s contains 'b'")) >= {"text"}
    assert table.coverers(Filter("x = 1 and x is int")) == {"number"}
    whole = table_of(int="x = 1 and x is int", three="s like '%bc' and s like 'ab_'")
    assert whole.covered(Filter("x = 1")) == {"int"}
    assert whole.covered(Filter("s = 'abc'")) == {"three"}


@pytest.mark.spec("R-02.13")
def test_comparisons_between_attributes_cover_only_themselves() -> None:
    table = table_of(plain="a = 1", spread="a = 1 and b < c", more="a = 1 and b < c and d > 1")
    probe = Filter("a = 1 and b < c")
    assert table.coverers(probe) == {"plain", "spread"}
    assert table.covered(probe) == {"spread", "more"}


def test_keys_come_and_go() -> None:
    table = table_of(a="x > 1", b="1 < x")
    with pytest.raises(DuplicateKey):
        table.add("a", Filter("y = 1"))
    with pytest.raises(UnknownKey):
        table.remove("c")
    assert table.coverers(Filter("x > 2")) == {"a", "b"}
    table.remove("a")
    assert table.coverers(Filter("x > 2")) == {"b"}
    assert (len(table), "a" in table, table.get("b")) == (1, False, Filter("x > 1"))


# -- equality with testing every pair


@settings(max_examples=48)
@given(held=st.lists(filters, max_size=14), probes=st.lists(filters, min_size=1, max_size=4))
@pytest.mark.spec("02/P8", "R-02.71")
@pytest.mark.parametrize("large", [1, buckets.LARGE])
def test_answers_are_those_of_testing_every_pair(
    large: int, held: list[Filter], probes: list[Filter]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "LARGE", large)
        table: FilterTable[int] = FilterTable()
        for key, filter in enumerate(held):
            table.add(key, filter)
        for probe in (*probes, *held[:3]):
            assert answers(table, probe) == pairwise(dict(enumerate(held)), probe)


STOCK_TEXTS = [
    *[f"s = '{s}' and p between {p} and {p + 2}" for s in "ABC" for p in range(0, 9, 2)],
    *[f"s = '{s}' and v > {v}" for s in "ABC" for v in range(5)],
    *[f"s prefix '{s}' and e = {e} and v > {v}" for s in "AB" for e in (1, 2) for v in (1, 3)],
    *[f"e = {e} and p > {p} and c < {c}" for e in (1, 2, 3) for p in (1, 4) for c in (-2, -4)],
    *[f"p between {p} and {p + 4} and c not between 0 and {p}" for p in range(8)],
    *[f"p > {p}" for p in range(6)],
    *[f"tags has '{t}' and p > {p}" for t in "ab" for p in (1, 2)],
    *[f"tags overlaps ('a', '{t}')" for t in "bcd"],
    *[f"s suffix '{s}' and c = 1" for s in ("A", "BA", "CBA")],
    *[f"x is missing and p > {p}" for p in (1, 4)],
    *[f"s = 'A' and p < {p} or s = 'B' and v > {p}" for p in (1, 5)],
]


@pytest.mark.spec("02/P8")
@pytest.mark.usefixtures("_large")
def test_every_filter_of_a_structured_table_against_all_others() -> None:
    held = {text: Filter(text) for text in STOCK_TEXTS}
    table: FilterTable[str] = FilterTable()
    for key, filter in held.items():
        table.add(key, filter)
    for text in [*STOCK_TEXTS, "s = 'A'", "p between 1 and 8", "e = 2", "s in ('A', 'B')", "c < 0"]:
        assert answers(table, Filter(text)) == pairwise(held, Filter(text)), text
    for key in STOCK_TEXTS[::2]:
        table.remove(key)
        del held[key]
    for text in STOCK_TEXTS:
        assert answers(table, Filter(text)) == pairwise(held, Filter(text)), text


@pytest.mark.spec("02/P8")
def test_covering_seen_from_both_sides() -> None:
    held = {text: Filter(text) for text in STOCK_TEXTS}
    table: FilterTable[str] = FilterTable()
    for key, filter in held.items():
        table.add(key, filter)
    above = {(a, b) for b, f in held.items() for a in table.coverers(f)}
    below = {(a, b) for a, f in held.items() for b in table.covered(f)}
    assert above == below


class AgreesWithPairs(RuleBasedStateMachine):
    """Adds, removes and questions in any order."""

    @initialize()
    def start(self) -> None:
        self.table: FilterTable[int] = FilterTable()
        self.held: dict[int, Filter] = {}

    @rule(key=st.integers(0, 20), filter=filters)
    def add(self, key: int, filter: Filter) -> None:
        if key not in self.held:
            self.table.add(key, filter)
            self.held[key] = filter

    @rule(key=st.integers(0, 20))
    def remove(self, key: int) -> None:
        if key in self.held:
            self.table.remove(key)
            del self.held[key]

    @rule(probe=filters)
    def ask(self, probe: Filter) -> None:
        assert answers(self.table, probe) == pairwise(self.held, probe)


@pytest.mark.spec("02/P8", "02/P9")
@pytest.mark.usefixtures("_large")
def test_any_sequence_of_changes_agrees_with_testing_every_pair() -> None:
    case = AgreesWithPairs.TestCase
    case.settings = settings(max_examples=30, stateful_step_count=30)
    case("runTest").runTest()


@pytest.mark.spec("02/P9")
@pytest.mark.usefixtures("_large")
def test_removing_all_leaves_nothing_behind() -> None:
    table: FilterTable[str] = FilterTable()
    empty = {name: len(held) for name, held in _containers(table).items()}
    for text in STOCK_TEXTS:
        table.add(text, Filter(text))
    for text in STOCK_TEXTS:
        table.covered(Filter(text))
    for text in reversed(STOCK_TEXTS):
        table.remove(text)
    assert {name: len(held) for name, held in _containers(table).items()} == empty


def _containers(table: FilterTable[Any]) -> dict[str, Any]:
    unions = vars(table._unions)
    own = {k: v for k, v in vars(table).items() if k not in ("_unions", "_posted", "_number")}
    return {**own, **unions}


def test_most_of_a_large_table_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    table: FilterTable[int] = FilterTable()
    held = [
        Filter(f"symbol = 'S{i % 500}' and price between {i} and {i + 9}") for i in range(2_000)
    ]
    for key, filter in enumerate(held):
        table.add(key, filter)
    tested = 0
    covers = Filter.covers

    def counting(self: Filter, other: Filter) -> bool:
        nonlocal tested
        tested += 1
        return covers(self, other)

    monkeypatch.setattr(Filter, "covers", counting)
    assert table.coverers(Filter("symbol = 'S7' and price = 1010")) == {1007}
    assert table.covered(Filter("symbol = 'S7' and price > 1000")) == {1007, 1507}
    assert table.covered(Filter("price between 1000 and 1011")) == {1000, 1001, 1002}
    assert tested < 40


def test_boxes_of_which_no_side_says_much_are_not_tested_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of them meet the probe on either attribute, and none on both."""
    table: FilterTable[int] = FilterTable()
    for i in range(0, 2_000, 2):
        table.add(i, Filter(f"x > {i} and y < {i}"))
    tested = 0

    def counting(constraint: Constraint, state: Any) -> bool:
        nonlocal tested
        tested += 1
        return accepts(constraint, state)

    monkeypatch.setattr(buckets, "accepts", counting)
    assert table.coverers(Filter("x > 1001 and y < 1001")) == set()
    assert table.covered(Filter("x > 1001 and y < 1001")) == set()
    assert table.coverers(Filter("x > 1003 and y < 999")) == {1000, 1002}
    assert table.covered(Filter("x > 999 and y < 1003")) == {1000, 1002}
    assert tested < 40


def test_filters_of_many_conjuncts_are_not_compared_conjunct_by_conjunct(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table: FilterTable[int] = FilterTable()
    parts = [f"(a has 'k{i}' and b in ({i}, 8, 'k{i}'))" for i in range(100)]
    table.add(1, Filter(" or ".join(parts[:90])))
    tested = 0

    def counting(constraint: Constraint, state: Any) -> bool:
        nonlocal tested
        tested += 1
        return accepts(constraint, state)

    monkeypatch.setattr(buckets, "accepts", counting)
    assert table.covered(Filter(" or ".join(parts[10:]))) == set()
    assert table.covered(Filter(" or ".join([*parts, "a has 'z'"]))) == {1}
    assert tested < 1_000


# -- witnesses


@settings(max_examples=120)
@given(filter=filters)
def test_a_witness_is_accepted(filter: Filter) -> None:
    for conjunct in filter.conjuncts:
        for constraint in conjunct.constraints.values():
            sample = witness(constraint)
            if isinstance(sample, Absent):
                assert constraint.absent
            elif sample is not None:
                assert constraint.accepts(sample[1])


def constraint_of(text: str) -> Constraint:
    (constraint,) = Filter(text).conjuncts[0].constraints.values()
    return constraint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 5", ("number", 5.000000000000001)),
        ("x < 5", ("number", 4.999999999999999)),
        ("x between 2 and 3", ("number", 2)),
        ("x > 2 and x < 3 and x is int or x = 9", ("number", 9)),
        ("s > 'a'", ("string", "a\0")),
        ("s regex '^(b|c)d$'", ("string", "bd")),
        ("tags superset of ('a', 'b')", ("collection", ("a", "b"))),
        ("b = false", ("bool", False)),
        ("exists x", ("number", 0)),
        ("x is not number", ("string", "")),
        ("x is missing", ABSENT),
    ],
)
def test_witnesses_lie_at_the_edge(text: str, expected: Any) -> None:
    found = witness(constraint_of(text))
    if isinstance(found, tuple) and found[0] == "collection":
        found = ("collection", tuple(sorted(found[1])))
    assert found == expected


def test_where_there_is_no_witness_the_search_does_without() -> None:
    between = f"x > {2.0**53} and x < {2.0**53 + 2} and x != {2**53 + 1}"
    assert witness(constraint_of(between)) is None
    assert witness(constraint_of("x multiple_of 2")) is None
    table = table_of(
        same=between,
        around=f"x > {2.0**53}",
        point=f"x = {2**53 + 1}",
        union=f"x > {2.0**52} or y = 2",
        even="x multiple_of 2",
        even_or_not="x multiple_of 2 and y = 1 or z = 1",
        any="exists x",
    )
    assert table.coverers(Filter(between)) == {"same", "around", "union", "any"}
    assert table.covered(Filter(f"x >= {2.0**53}")) == {"same", "around", "point"}
    assert table.coverers(Filter("x multiple_of 2 and y = 1")) == {"even", "even_or_not", "any"}
