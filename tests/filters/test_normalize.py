"""From expressions to conjuncts (sheet 02, algorithm 4.5, R-02.11, R-02.12) and its limits."""

import time

import pytest

from stentor.errors import FilterTooComplex
from stentor.filters import Filter
from stentor.filters.expression import And, Atom, Not, Or, Truth


def conjuncts(text: str) -> int:
    return len(Filter(text).conjuncts)


class TestNegation:
    @pytest.mark.spec("02/T3", "02/T4", "R-02.08", "R-02.11")
    @pytest.mark.parametrize(
        ("negated", "plain"),
        [
            ("not x < 5", "x >= 5"),
            ("not x = 5", "x != 5"),
            ("not x between 1 and 5", "x < 1 or x > 5"),
            ("not x in (1, 2)", "x not in (1, 2)"),
            ("not x prefix 'a'", "x not prefix 'a'"),
            ("not x suffix 'a'", "x not suffix 'a'"),
            ("not x has 1", "x lacks 1"),
            ("not x overlaps (1, 2)", "x disjoint from (1, 2)"),
            ("not exists x", "x is missing"),
            ("not x is missing", "exists x"),
            ("not x is int", "x is not int"),
            ("not (x < 5 and y = 1)", "x >= 5 or y != 1"),
            ("not (x < 5 or y = 1)", "x >= 5 and y != 1"),
            ("not not x = 1", "x = 1"),
            ("not true", "false"),
            ("not (some x > 1)", "x is collection and not (some x > 1)"),
        ],
    )
    def test_is_pushed_to_the_atoms(self, negated, plain):
        assert Filter(negated) == Filter(plain)

    @pytest.mark.spec("02/T3", "02/T4", "R-02.08")
    @pytest.mark.parametrize(
        "text",
        [
            "x != 5",
            "not x = 5",
            "x not in (1, 2)",
            "x not between 1 and 5",
            "x lacks 1",
            "x disjoint from (1)",
            "not (some x > 1)",
            "not x has 1",
            "not x prefix 'a'",
            "not (x < y)",
        ],
    )
    def test_a_missing_attribute_satisfies_no_comparison(self, text):
        assert not Filter(text).matches({"z": 1})
        assert not Filter(text).matches({"x": None, "z": 1})


class TestFolding:
    @pytest.mark.spec("R-02.12", "02/5.3", "02/T1")
    @pytest.mark.parametrize(
        ("text", "folded"),
        [
            ("x > 1 and x > 2 and x < 9 and x <= 5", "x > 2 and x <= 5"),
            ("x != 1 and x != 2 and x in (1, 2, 3)", "x = 3"),
            ("s prefix 'a' and s prefix 'ab'", "s prefix 'ab'"),
            ("s suffix 'a' and s suffix 'ba'", "s suffix 'ba'"),
            ("x has 1 and x has 2", "x superset of (1, 2)"),
            ("x subset of (1, 2) and x subset of (2, 3)", "x subset of (2)"),
            ("exists x and x = 1", "x = 1"),
            ("x = 1 and (x = 1 or y = 2)", "x = 1"),
            ("x = 1 and y = 1 or x = 1 and y != 1", "x = 1 and y is number"),
            ("x = 1 or x = 1 and y = 2", "x = 1"),
        ],
    )
    def test_one_constraint_per_attribute(self, text, folded):
        f = Filter(text)
        assert f == Filter(folded)
        assert len(f.conjuncts) == 1

    @pytest.mark.spec("R-02.12", "02/T7")
    def test_contradictions_are_dropped(self):
        assert Filter("x = 1 and x = 2").is_never
        assert Filter("x = 1 and x = 2 or y = 1") == Filter("y = 1")
        assert Filter("s prefix 'a' and s suffix 'b' and s = 'aa'").is_never
        assert Filter("exists x and x is missing").is_never

    def test_nodes_of_any_shape(self):
        deep = Atom("x", "=", (1,))
        for _ in range(100):
            deep = Not(And((Or((deep,)),)))
        assert Filter.of_expression(deep) == Filter("x = 1")
        assert Filter.of_expression(And(())).is_always
        assert Filter.of_expression(Or(())).is_never
        assert Filter.of_expression(Not(Truth(True))).is_never


def seconds(build) -> float:
    start = time.process_time()
    build()
    return time.process_time() - start


class TestLimits:
    @pytest.mark.spec("R-02.11")
    @pytest.mark.parametrize(
        "text",
        [
            " and ".join(f"(a{i} = 1 or b{i} = 1)" for i in range(13)),
            " and ".join(f"(a{i} = 1 or b{i} = 1)" for i in range(90)),
            " and ".join(
                "(" + " or ".join(f"a{i}_{j} = 1" for j in range(100)) + ")" for i in range(3)
            ),
            "not (" + " or ".join(f"a{i} = 1 and b{i} = 1" for i in range(40)) + ")",
        ],
    )
    def test_too_many_alternatives_are_refused_at_once(self, text):
        def build():
            with pytest.raises(FilterTooComplex, match="several subscriptions"):
                Filter(text)

        assert seconds(build) < 5

    @pytest.mark.spec("R-02.11", "R-02.12")
    def test_alternatives_on_one_attribute_are_one_constraint(self):
        either = [" or ".join(f"{name} = {i}" for i in range(100)) for name in "xyz"]
        text = " and ".join(f"({part})" for part in either)
        assert conjuncts(text) == 1

    @pytest.mark.parametrize(
        "terms",
        [
            [f"x = {i}" for i in range(2000)],
            [f"x = 'n{i}'" for i in range(2000)],
            [f"x between {3 * i} and {3 * i + 1}" for i in range(2000)],
            [f"x suffix 'n{i}z'" for i in range(2000)],
            [f"x has {i}" for i in range(2000)],
            [f"x = {i}" for i in range(6000)],
        ],
        ids=["numbers", "strings", "intervals", "patterns", "collections", "more than the limit"],
    )
    def test_long_disjunctions_take_no_time(self, terms):
        f = None

        def build():
            nonlocal f
            f = Filter(" or ".join(terms))

        assert seconds(build) < 5
        assert len(f.conjuncts) == 1
        assert len(f.conjuncts[0].constraints) == 1

    def test_many_alternatives_over_two_attributes(self):
        text = " or ".join(f"x = {i} and y = {i}" for i in range(1000))
        f = None

        def build():
            nonlocal f
            f = Filter(text)

        assert seconds(build) < 5
        assert len(f.conjuncts) == 1000
        assert f.matches({"x": 999, "y": 999})
        assert not f.matches({"x": 999, "y": 998})

    def test_long_lists(self):
        f = Filter(f"x in ({', '.join(map(str, range(0, 20000, 2)))})")
        assert f.matches({"x": 19998})
        assert not f.matches({"x": 19997})
        assert f.covers(Filter("x in (2, 4)"))
        assert Filter(str(f)) == f
        outside = Filter(f"not ({f})")
        assert outside.matches({"x": 19997})
        assert not outside.overlaps(f)

    def test_a_product_of_collections_is_limited_too(self):
        many = ", ".join(map(str, range(12)))
        parts = [f"x superset of ({many}, {100 + i})" for i in range(4)]
        with pytest.raises(FilterTooComplex):
            Filter(f"not ({' or '.join(parts)})")
        union = Filter(" or ".join(parts))
        assert union.covers(union)
        assert not union.covers(Filter("x has 1"))
        assert Filter("x has 1").covers(union)
