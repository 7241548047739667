"""The algebra as a whole against enumeration (sheet 02 §6, P2 to P7 and P14; sheet 07 P-13).

Filters are generated as text over a few attributes and mixed types. The oracle evaluates their
parse trees; the truth of a relation is found by enumerating notifications over values that include
one of every kind the constants can tell apart.
"""

import pickle
from datetime import UTC, datetime, timedelta
from itertools import combinations, product

import pytest
from filter_oracle import evaluate
from hypothesis import assume, given
from hypothesis import strategies as st

from stentor.filters import Filter, merge_all, merge_within_budget
from stentor.filters.language import format_literal, parse
from stentor.model.values import ValueType, register_value_type

T0 = datetime(2024, 1, 1, tzinfo=UTC)
STEP = timedelta(microseconds=1)


class Ink:
    """A value of a registered type."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ink) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


# -- values: constants, and around them what lies between and beyond

NUMBER_CONSTANTS = [0, 1, 1.5, 2]
NUMBERS = [-1, -0.5, 0, 0.0, 0.5, 1, 1.0, 1.25, 1.5, 1.75, 2, 2.0, 2.5, 3]
STRING_CONSTANTS = ["a", "b", "ab", "ba"]
STRINGS = ["".join(p) for n in range(6) for p in product("Aabc", repeat=n)]
STRINGS += [s[:i] + "\0" + s[i:] for s in STRINGS if len(s) < 4 for i in range(len(s) + 1)]
BYTES_CONSTANTS = [b"a", b"b", b"ab"]
BYTES = [s.encode() for s in STRINGS if len(s) < 5] + [b"\xff", b"a\xff", b"b\xff", b"\xffab"]
TIME_CONSTANTS = [T0, T0 + 2 * STEP]
TIMES = [T0 + i * STEP for i in range(-1, 5)]
register_value_type(ValueType("ink", (Ink,), ordered=False, format=lambda ink: ink.text, parse=Ink))
INK = Ink("red")
INK_CONSTANTS = [INK, Ink("blue")]
ELEMENT_CONSTANTS = [1, 2, "a"]
ELEMENTS = [0, 1, 1.5, 2, 3, "", "a", "b", True]
COLLECTIONS = [x for size in range(10) for x in combinations(ELEMENTS, size)]

DOMAINS = {
    "number": NUMBERS,
    "string": STRINGS,
    "bytes": BYTES,
    "time": TIMES,
    "bool": [False, True],
    "collection": COLLECTIONS,
}
EVERYTHING = [None, *(v for values in DOMAINS.values() for v in values[:300])]
FEW = [None, -1, 0, 1, 1.0, 1.5, 2, 3, "", "a", "ab", "b", "ba", "c", True, False, b"", b"a", b"b"]
FEW += [T0, T0 + STEP, T0 + 3 * STEP, (), (1,), (1, 2), ("a",), (2, "a"), (0, 1, 2, "a", "b")]


def literals(constants):
    return st.sampled_from(constants).map(format_literal)


def listed(strategy, low=1, high=3):
    return st.lists(strategy, min_size=low, max_size=high).map(lambda v: "(" + ", ".join(v) + ")")


def comparisons(constants):
    one = literals(constants)
    return st.one_of(
        st.tuples(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), one).map(" ".join),
        st.tuples(
            st.sampled_from(["between", "not between"]),
            st.lists(st.sampled_from(constants), min_size=2, max_size=2).map(sorted),
        ).map(lambda t: f"{t[0]} {format_literal(t[1][0])} and {format_literal(t[1][1])}"),
        st.tuples(st.sampled_from(["in", "not in"]), listed(one)).map(" ".join),
    )


def texts(operators, constants):
    return st.tuples(
        st.sampled_from([n + o for o in operators for n in ("", "not ")]), literals(constants)
    ).map(" ".join)


number_tests = st.one_of(
    comparisons(NUMBER_CONSTANTS), st.sampled_from(["is int", "is float", "is number"])
)
string_tests = st.one_of(
    comparisons(STRING_CONSTANTS),
    texts(["prefix", "suffix", "contains"], STRING_CONSTANTS),
    texts(["like"], ["a%b", "_a", "a_%", "%a%b", "_%", "%ab%", "__"]),
)
bytes_tests = st.one_of(
    comparisons(BYTES_CONSTANTS), texts(["prefix", "suffix", "contains"], BYTES_CONSTANTS)
)
time_tests = comparisons(TIME_CONSTANTS)
ink_tests = st.one_of(
    st.tuples(st.sampled_from(["=", "!="]), literals(INK_CONSTANTS)).map(" ".join),
    st.tuples(st.sampled_from(["in", "not in"]), listed(literals(INK_CONSTANTS))).map(" ".join),
    st.sampled_from(["is ink", "is not ink", "is not string", "is number"]),
)
bool_tests = st.sampled_from(["= true", "= false", "!= true"])
collection_tests = st.one_of(
    st.tuples(st.sampled_from(["has", "lacks"]), literals(ELEMENT_CONSTANTS)).map(" ".join),
    st.tuples(
        st.sampled_from(
            ["overlaps", "disjoint from", "superset of", "subset of", "not superset of"]
        ),
        listed(literals(ELEMENT_CONSTANTS)),
    ).map(" ".join),
)
some_tests = st.one_of(
    comparisons([1, 2]), comparisons(["a"]), st.sampled_from(["is number", "is not number"])
)

TESTS = {
    "number": number_tests,
    "string": string_tests,
    "bytes": bytes_tests,
    "time": time_tests,
    "bool": bool_tests,
    "collection": collection_tests,
}


def atoms(name: str, types=tuple(TESTS)):
    options = [TESTS[t].map(lambda test: f"{name} {test}") for t in types]
    if "collection" in types:
        options.append(some_tests.map(lambda test: f"some {name} {test}"))
    options.append(st.sampled_from([f"exists {name}", f"{name} is missing"]))
    return st.one_of(options)


def expressions(leaves, size=4):
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda p: "(" + " and ".join(p) + ")"),
            st.lists(inner, min_size=2, max_size=3).map(lambda p: "(" + " or ".join(p) + ")"),
            inner.map(lambda p: f"not ({p})"),
        ),
        max_leaves=size,
    )


def _of_type(type_name):
    # Distinguishing two longer combinations of patterns takes longer strings than are enumerated.
    text = expressions(atoms("x", (type_name,)), 2 if type_name in ("string", "bytes") else 4)
    return st.tuples(st.just(type_name), text, text)


ONE_ATTRIBUTE = st.sampled_from(list(TESTS)).flatmap(_of_type)
MIXED = expressions(st.sampled_from("xyz").flatmap(atoms), 6)
ANY_ATOM = st.one_of(atoms("x"), ink_tests.map(lambda test: f"x {test}"))
#: Two to four filters that often have a merger: they differ in what they say on one attribute.
MERGED = st.one_of(
    st.lists(MIXED, min_size=2, max_size=3),
    st.lists(expressions(ANY_ATOM, 2), min_size=2, max_size=4),
    st.tuples(MIXED, st.lists(ANY_ATOM, min_size=2, max_size=4)).map(
        lambda t: [f"({t[0]}) and {atom}" for atom in t[1]]
    ),
)
#: Small enough that all notifications can be enumerated, rich enough for boxes and pinwheels.
GRID = expressions(
    st.tuples(
        st.sampled_from("xyz"),
        st.sampled_from(["= 0", "= 1", "= 2", "< 1", "> 0", "in (0, 2)", "between 0 and 1"]),
    ).map(" ".join),
    10,
)
GRID_FACTS = [
    {k: v for k, v in zip("xyz", values, strict=True) if v is not None}
    for values in product([None, -1, 0, 0.5, 1, 1.5, 2, 3], repeat=3)
]


def facts_over(values, names="x"):
    return [
        {k: v for k, v in zip(names, row, strict=True) if v is not None}
        for row in product(values, repeat=len(names))
    ]


def truth(text: str, facts) -> list[bool]:
    expression = parse(text)
    return [evaluate(expression, f) for f in facts]


def implies(a, b) -> bool:
    return all(y or not x for x, y in zip(a, b, strict=True))


class TestMatching:
    @pytest.mark.spec("02/P7", "R-02.08", "R-02.11", "R-02.15", "02/T3", "02/T4")
    @given(MIXED, st.lists(st.tuples(*[st.sampled_from(EVERYTHING)] * 3), min_size=20, max_size=20))
    def test_a_filter_matches_what_its_expression_says(self, text, rows):
        f = Filter(text)
        for row in rows:
            facts = {k: v for k, v in zip("xyz", row, strict=True) if v is not None}
            assert f.matches(facts) is evaluate(parse(text), facts)

    @pytest.mark.spec("02/P7", "R-02.12")
    @given(ONE_ATTRIBUTE)
    def test_on_one_attribute_for_every_value(self, case):
        type_name, text, _ = case
        f = Filter(text)
        assert len(f.conjuncts) <= 1
        for facts in facts_over([None, True, 1, "a", *DOMAINS[type_name]]):
            assert f.matches(facts) is evaluate(parse(text), facts)

    @pytest.mark.spec("02/P14")
    @given(MIXED, *[st.sampled_from(EVERYTHING)] * 3)
    def test_more_attributes_never_hurt_a_conjunctive_filter(self, text, x, y, z):
        f = Filter(text)
        assume(len(f.conjuncts) == 1)
        assume(not any(c.absent for c in f.conjuncts[0].constraints.values()))
        facts = {k: v for k, v in zip("xyz", (x, y, z), strict=True) if v is not None}
        for less in combinations(facts.items(), max(0, len(facts) - 1)):
            assert f.matches(facts) or not f.matches(dict(less))

    @pytest.mark.spec("02/P14", "R-02.10")
    @given(MIXED, *[st.sampled_from(EVERYTHING)] * 3)
    def test_attributes_that_a_filter_does_not_name_do_not_matter(self, text, x, y, z):
        f = Filter(text)
        facts = {k: v for k, v in zip("xyz", (x, y, z), strict=True) if v is not None}
        named = {k: v for k, v in facts.items() if k in f.names}
        assert f.matches(facts) is f.matches(named)
        assert f.matches(facts | {"w": 1}) is f.matches(facts)


class TestOneAttribute:
    """Exact: the sets of values are decided, so relations equal the set-theoretic truth."""

    @pytest.mark.spec("02/P2", "02/P3", "02/P4", "R-02.20", "R-02.24", "R-02.25", "R-02.26")
    @given(ONE_ATTRIBUTE)
    def test_relations_are_the_truth(self, case):
        type_name, one, two = case
        facts = facts_over([None, True, 1, "a", b"a", T0, (1,), *DOMAINS[type_name]])
        a, b = Filter(one), Filter(two)
        mine, theirs = truth(one, facts), truth(two, facts)
        assert a.covers(b) is implies(theirs, mine)
        assert b.covers(a) is implies(mine, theirs)
        assert a.overlaps(b) is any(x and y for x, y in zip(mine, theirs, strict=True))
        assert (a == b) is (mine == theirs)
        assert a.is_never is not any(mine)
        if a == b:
            assert hash(a) == hash(b)
            assert a.key == b.key

    @pytest.mark.spec("02/P6", "02/P7")
    @given(ONE_ATTRIBUTE)
    def test_and_or(self, case):
        type_name, one, two = case
        a, b = Filter(one), Filter(two)
        both, either = a & b, a | b
        for facts in facts_over([None, *DOMAINS[type_name]]):
            x, y = a.matches(facts), b.matches(facts)
            assert both.matches(facts) is (x and y)
            assert either.matches(facts) is (x or y)
        assert both == Filter(f"({one}) and ({two})")
        assert either == Filter(f"({one}) or ({two})")
        assert a.covers(both)
        assert either.covers(a)
        assert (a | both) == a == (a & either)

    @pytest.mark.spec("02/P5", "R-02.29", "R-02.30")
    @given(ONE_ATTRIBUTE)
    def test_a_perfect_merger_matches_exactly_the_union(self, case):
        type_name, one, two = case
        a, b = Filter(one), Filter(two)
        merged = a.merge(b)
        assert (merged is None) is (b.merge(a) is None)
        if merged is not None:
            for facts in facts_over([None, *DOMAINS[type_name]]):  # a name has one type
                assert merged.matches(facts) is (a.matches(facts) or b.matches(facts))
            assert merged.covers(a)
            assert merged.covers(b)
        if a.covers(b):
            assert merged == a


class TestMixed:
    """Sound always, over several attributes of any types."""

    @pytest.mark.spec("02/P2", "02/P3", "02/P4", "07/P-13", "R-07.18", "R-07.19")
    @given(MIXED, MIXED, st.lists(st.tuples(*[st.sampled_from(FEW)] * 3), min_size=60, max_size=60))
    def test_relations_are_sound(self, one, two, rows):
        a, b = Filter(one), Filter(two)
        facts = [{k: v for k, v in zip("xyz", r, strict=True) if v is not None} for r in rows]
        mine = [a.matches(f) for f in facts]
        theirs = [b.matches(f) for f in facts]
        if a.covers(b):
            assert implies(theirs, mine)
            assert b.is_never or a.overlaps(b)
        if not a.overlaps(b):
            assert not any(x and y for x, y in zip(mine, theirs, strict=True))
        if a == b:
            assert mine == theirs
            assert hash(a) == hash(b)
        assert a.overlaps(b) is b.overlaps(a)
        assert (a.covers(b) and b.covers(a)) is (a == b)
        assert [(a & b).matches(f) for f in facts] == [
            x and y for x, y in zip(mine, theirs, strict=True)
        ]
        assert [(a | b).matches(f) for f in facts] == [
            x or y for x, y in zip(mine, theirs, strict=True)
        ]

    @pytest.mark.spec("02/P3", "02/P4")
    @given(MIXED, MIXED, MIXED)
    def test_covering_is_a_partial_order(self, one, two, three):
        a, b, c = Filter(one), Filter(two), Filter(three)
        assert a.covers(a)
        both = a & b
        assert a.covers(both)
        assert (a | c).covers(both)
        if a.covers(b) and b.covers(c):
            assert a.covers(c)
        if a.covers(b) and not a.overlaps(c):
            assert not b.overlaps(c)
        assert Filter().covers(a)
        assert Filter("false").covers(a) is a.is_never

    @pytest.mark.spec("R-02.24", "02/P3")
    @given(MIXED)
    def test_text_and_pickle_give_an_equal_filter(self, text):
        f = Filter(text)
        again = Filter(str(f))
        assert again == f, str(f)
        assert hash(again) == hash(f)
        if len(f.conjuncts) == 1:
            assert str(again) == str(f)
        copy = pickle.loads(pickle.dumps(f))
        assert copy == f
        assert hash(copy) == hash(f)
        assert copy.names == f.names
        assert Filter.of_expression(f.expression) == f

    @pytest.mark.spec("02/P7", "R-02.11")
    @given(MIXED)
    def test_double_negation_and_de_morgan(self, text):
        f, opposite = Filter(text), Filter(f"not ({text})")
        assert Filter(f"not (not ({text}))") == f
        assert Filter(f"({text}) and not ({text})") == (f & opposite)

    @pytest.mark.spec("02/P5")
    @given(
        MERGED, st.lists(st.tuples(*[st.sampled_from([*FEW, INK])] * 3), min_size=60, max_size=60)
    )
    def test_a_merger_matches_exactly_what_its_parts_match(self, texts_given, rows):
        parts = [Filter(text) for text in texts_given]
        merged = parts[0].merge(*parts[1:])
        greedy = merge_all(parts)
        if merged is not None:
            assert all(merged.covers(part) for part in parts)
        for row in rows:
            facts = {k: v for k, v in zip("xyz", row, strict=True) if v is not None}
            wanted = any(part.matches(facts) for part in parts)
            assert merged is None or merged.matches(facts) is wanted
            assert any(m.matches(facts) for m in greedy) is wanted


class TestUnions:
    """Filters that are unions of conjuncts, decided exactly."""

    @pytest.mark.spec("02/P2", "02/P3", "R-02.24")
    @given(GRID, GRID)
    def test_relations_are_the_truth(self, one, two):
        a, b = Filter(one), Filter(two)
        mine = [a.matches(f) for f in GRID_FACTS]
        theirs = [b.matches(f) for f in GRID_FACTS]
        assert mine == truth(one, GRID_FACTS)
        assert a.covers(b) is implies(theirs, mine)
        assert a.overlaps(b) is any(x and y for x, y in zip(mine, theirs, strict=True))
        assert (a == b) is (mine == theirs)
        assert (a == b) is (a.key == b.key)
        assert a.is_always is all(mine)
        assert a.is_never is not any(mine)

    @pytest.mark.spec("R-02.24", "02/5.7")
    def test_two_pinwheels_are_one_square(self):
        """Different boxes, no two of which can be joined, that fill the same square."""
        right = ["x < 2 and y < 1", "x >= 2 and y < 2", "x >= 1 and y >= 2", "x < 1 and y >= 1"]
        left = ["x < 1 and y < 2", "x < 2 and y >= 2", "x >= 2 and y >= 1", "x >= 1 and y < 1"]
        middle = "x >= 1 and x < 2 and y >= 1 and y < 2"
        a, b = (Filter(" or ".join([*boxes, middle])) for boxes in (right, left))
        assert a == b == Filter("x is number and y is number")
        assert hash(a) == hash(b)
        ring, other = Filter(" or ".join(right)), Filter(" or ".join(left))
        assert ring == other
        assert hash(ring) == hash(other)
        assert ring.covers(other)
        assert other.covers(ring)
        assert not ring.covers(a)

    @pytest.mark.spec("02/P3")
    @given(
        st.permutations(["x = 0 and y = 1", "y = 0 and z = 1", "x = 1", "z = 0", "x = 2 and z = 2"])
    )
    def test_the_order_of_disjuncts_does_not_matter(self, parts):
        reference = Filter(
            "x = 0 and y = 1 or y = 0 and z = 1 or x = 1 or z = 0 or x = 2 and z = 2"
        )
        shuffled = Filter(" or ".join(parts))
        assert shuffled == reference
        assert hash(shuffled) == hash(reference)


class TestMergingMany:
    @pytest.mark.spec("02/P5", "R-02.31")
    @given(st.lists(GRID, min_size=1, max_size=6))
    def test_merge_all_matches_the_union(self, texts_given):
        filters = [Filter(t) for t in texts_given]
        merged = merge_all(filters)
        assert len(merged) <= len(filters)
        for facts in GRID_FACTS:
            assert any(m.matches(facts) for m in merged) is any(f.matches(facts) for f in filters)
        for f in filters:
            assert f.is_never or any(m.covers(f) for m in merged) or len(f.conjuncts) > 1

    @pytest.mark.spec("02/P5", "R-02.33", "R-02.34", "R-02.35", "R-02.36")
    @given(
        st.lists(GRID, min_size=1, max_size=5),
        st.lists(st.sampled_from(GRID_FACTS), max_size=20),
        st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    )
    def test_imperfect_mergers_cover_their_originals_within_the_budget(
        self, texts_given, sample, budget
    ):
        filters = [Filter(t) for t in texts_given]
        mergers = merge_within_budget(filters, sample, budget=budget)
        originals = {o for m in mergers for o in m.originals}
        assert originals >= {f for f in filters if not f.is_never}
        for merger in mergers:
            assert all(merger.filter.covers(o) for o in merger.originals)
            vain = [
                f
                for f in sample
                if merger.filter.matches(f) and not any(o.matches(f) for o in merger.originals)
            ]
            assert merger.looseness == (len(vain) / len(sample) if sample else 0.0)
            assert merger.looseness <= budget
            if merger.perfect:
                for facts in GRID_FACTS:
                    assert merger.filter.matches(facts) is any(
                        o.matches(facts) for o in merger.originals
                    )
