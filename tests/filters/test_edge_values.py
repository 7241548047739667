"""Values at the edges of their domains, and sets that can be written in several ways."""

import math
import operator
from datetime import UTC, datetime, timedelta

import pytest

from stentor.errors import FilterTypeError
from stentor.filters import Filter
from stentor.filters.expression import Atom
from stentor.filters.schema import typed

EXISTS = Filter("exists x")

FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

ORDERED = {
    "numbers": [
        -math.inf,
        -1.7976931348623157e308,
        -(2**63),
        -(2**53) - 1,
        -(2**53),
        -1,
        -5e-324,
        0,
        5e-324,
        1,
        2**53,
        2**53 + 1,
        2**53 + 2,
        2**63 - 1,
        float(2**63),
        1.7976931348623157e308,
        math.inf,
    ],
    "strings": ["", "\0", "\0\0", "a", "a\0", "a\0\0", "aa", "b", "\ud7ff", "\ue000", "\U0010ffff"],
    "bytes": [
        b"",
        b"\0",
        b"\0\0",
        b"a",
        b"a\0",
        b"a\xff",
        b"a\xff\xff",
        b"b",
        b"\xff",
        b"\xff\xff",
    ],
    "times": [FIRST, FIRST + MICROSECOND, LAST - MICROSECOND, LAST],
    "bools": [False, True],
}


OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def atom(name: str, *constants: object) -> Filter:
    return Filter.of_expression(Atom("x", name, constants))


@pytest.mark.spec("02/P2", "02/P6", "02/T9", "R-02.20")
@pytest.mark.parametrize("kind", ORDERED)
class TestOrder:
    def test_comparisons_match(self, kind):
        values = ORDERED[kind]
        for name, test in OPERATORS.items():
            for constant in values:
                f = atom(name, constant)
                for value in values:
                    assert f.matches({"x": value}) is test(value, constant), (
                        value,
                        operator,
                        constant,
                    )
                assert Filter(str(f)) == f

    def test_relations_are_sound(self, kind):
        values = ORDERED[kind]
        filters = [atom(op, c) for op in OPERATORS for c in values]
        accepted = [{v for v in values if f.matches({"x": v})} for f in filters]
        for i, (f, mine) in enumerate(zip(filters, accepted, strict=True)):
            for j, (g, theirs) in enumerate(zip(filters, accepted, strict=True)):
                if f.covers(g):
                    assert mine >= theirs
                assert f.overlaps(g) or not mine & theirs
                if (i + j) % 7:
                    continue
                assert {v for v in values if (f & g).matches({"x": v})} == mine & theirs
                assert {v for v in values if (f | g).matches({"x": v})} == mine | theirs

    def test_sets_have_one_form(self, kind):
        values = ORDERED[kind]
        everything = atom("in", *values)
        assert everything == atom("in", *reversed(values))
        for value in values:
            single = atom("=", value)
            assert single == atom("between", value, value) == atom("in", value, value)
            assert single.conjuncts[0].constraints["x"].is_single
            assert everything.covers(single)
            rest = [v for v in values if v != value]
            merged = atom("in", *rest).merge(single)
            # A list of all there is asks for nothing but the attribute; its parts ask for the type.
            assert everything == (merged if everything != EXISTS else typed(merged, {"x": "bool"}))


@pytest.mark.spec("02/T9")
class TestNumbers:
    def test_negative_zero_is_zero(self):
        assert Filter("x = -0.0") == Filter("x = 0")
        assert hash(Filter("x = -0.0")) == hash(Filter("x = 0"))
        assert Filter("x = 0").matches({"x": -0.0})
        assert Filter("x < 0 or x > 0") == Filter("x != -0.0")

    def test_large_integers_are_compared_exactly(self):
        assert not Filter("x = 9007199254740993").matches({"x": 9007199254740992.0})
        assert Filter("x = 9007199254740992").matches({"x": 9007199254740992.0})
        assert Filter("x > 9007199254740992").matches({"x": 9007199254740993})
        assert not Filter("x is int and x < 9223372036854775807").matches({"x": 2**63 - 1})

    def test_the_integers_end(self):
        assert Filter("x is int and x >= 9223372036854775807") == Filter(
            "x is int and x = 9223372036854775807"
        )
        assert Filter("x is int and x > 9223372036854775807").is_never
        assert Filter("x is int and x < -9223372036854775808").is_never
        assert Filter("x is int and x < 1e300") == Filter("x is int")
        assert Filter("x is int and x > -1e300 and x != 1e300") == Filter("x is int")
        assert not Filter("x > 9223372036854775807").is_never

    def test_infinity_is_a_float(self):
        assert Filter("x is int and x = number 'inf'").is_never
        assert Filter("x is float and x = number 'inf'") == Filter("x = number 'inf'")

    def test_nan_is_no_constant(self):
        with pytest.raises(FilterTypeError):
            atom("=", math.nan)

    def test_what_is_said_of_both_kinds_of_numbers_is_said_of_numbers(self):
        assert Filter("x is int and x > 3 or x is float and x > 3") == Filter("x > 3")
        assert Filter("x is int and x >= 4 or x is float and x > 3") == Filter("x > 3")
        assert Filter("x is int and x = 4 or x is float and x = 4") == Filter("x = 4")
        assert Filter("x is int and x > 3.5") == Filter("x is int and x >= 4")
        assert Filter("x > 3").covers(Filter("x is int and x > 2 and x != 3"))
        assert not Filter("x is int").overlaps(Filter("x is float"))
        assert not Filter("x is int").overlaps(Filter("x > 3 and x < 4"))


@pytest.mark.spec("R-08.17", "R-02.20")
class TestStrings:
    @pytest.mark.parametrize(
        ("prefix", "inside", "outside"),
        [
            ("a", ["a", "a\0", "a\U0010ffff\U0010ffff"], ["", "b", "A", "`\U0010ffff"]),
            ("\ud7ff", ["\ud7ff", "\ud7ff\U0010ffff"], ["\ue000", "\ud7fe\U0010ffff"]),
            ("\U0010ffff", ["\U0010ffff", "\U0010ffff" * 3], ["", "\U0010fffe\U0010ffff"]),
            ("a\U0010ffff", ["a\U0010ffff", "a\U0010ffffz"], ["a", "b", "a\U0010fffe"]),
            ("\0", ["\0", "\0\0", "\0a"], ["", "\x01", "a"]),
        ],
    )
    def test_prefixes(self, prefix, inside, outside):
        f = atom("prefix", prefix)
        assert all(f.matches({"x": v}) for v in inside)
        assert not any(f.matches({"x": v}) for v in outside)
        assert f == atom("regex", "^" + prefix) == atom("like", prefix + "%")
        assert Filter(str(f)) == f
        assert atom("not prefix", prefix) == Filter(f"not ({f})")

    def test_the_first_string_above_another_one(self):
        assert Filter("s > 'a'") == Filter("s >= 'a\0'")
        assert Filter("s <= 'a'") == Filter("s < 'a\0'")
        assert Filter("s > 'a' and s <= 'a\0'") == Filter("s = 'a\0'")
        assert Filter("s > ''") == Filter("s != ''") == Filter("s like '_%'")

    @pytest.mark.parametrize(
        ("a", "b"),
        [
            ("s regex '^(a|b)'", "s prefix 'a' or s prefix 'b'"),
            ("s regex '^(ab|cd)$'", "s in ('ab', 'cd')"),
            ("s regex '^[^a]'", "s > '' and s not prefix 'a'"),
            ("s regex '^a{2,3}$'", "s in ('aa', 'aaa')"),
            ("s regex '(a|b)c$'", "s suffix 'ac' or s suffix 'bc'"),
            ("s regex 'abc'", "s contains 'abc'"),
            ("s regex 'a+b'", "s contains 'ab'"),
            ("s not contains 'a' and s not suffix 'xa'", "s not contains 'a'"),
            ("s like '%a%' or s suffix 'ba'", "s contains 'a'"),
            ("s prefix 'a' and s like '_'", "s = 'a'"),
            ("s like 'a%' and s like '%b'", "s like 'a%b'"),
            ("s suffix 'ab' or s not suffix 'b'", "not (s suffix 'b' and s not suffix 'ab')"),
            ("not (s suffix 'a' or s prefix 'b')", "s not suffix 'a' and s not prefix 'b'"),
            ("s suffix 'a' and s < 'b' or s suffix 'a' and s >= 'b'", "s suffix 'a'"),
        ],
    )
    def test_one_form_for_equal_sets(self, a, b):
        assert Filter(a) == Filter(b)
        assert hash(Filter(a)) == hash(Filter(b))
        assert Filter(a).covers(Filter(b))
        assert Filter(b).covers(Filter(a))

    def test_patterns_that_cannot_match(self):
        assert Filter("s like '_' and s like '__'").is_never
        assert Filter("s prefix 'a' and s suffix 'b' and s not contains 'b'").is_never
        assert Filter("s suffix 'a' and s suffix 'b'").is_never

    def test_more_patterns_than_automata_can_hold_stay_on_the_safe_side(self):
        parts = [f"s contains 'k{i}'" for i in range(30)]
        f = Filter(" and ".join(parts))
        assert f.matches({"s": "".join(f"k{i}" for i in range(30))})
        assert not f.matches({"s": "k1"})
        assert f == Filter(" and ".join(reversed(parts)))
        assert Filter("s contains 'k3'").covers(f)
        assert f.overlaps(Filter("s prefix 'q'"))
        assert Filter(str(f)) == f


@pytest.mark.spec("R-02.20")
class TestBytes:
    def test_patterns_know_that_there_are_only_256_bytes(self):
        assert Filter("x prefix x'ff'") == Filter("x >= x'ff'")
        assert Filter("x suffix x'ff'").covers(Filter("x suffix x'00ff'"))
        assert Filter("x suffix x'61' and x prefix x'62'").matches({"x": b"ba"})
        assert not Filter("x suffix x'61'").overlaps(Filter("x suffix x'62'"))
        assert Filter("x suffix x'61' or x not suffix x'61'") == Filter("x is bytes")
        assert not Filter("x suffix x'61'").overlaps(Filter("x suffix 'a'"))
        assert Filter("x contains x'61' and x = x'6162'") == Filter("x = x'6162'")

    def test_a_set_of_all_first_bytes_is_everything_but_empty(self):
        text = " or ".join(f"x prefix x'{b:02x}'" for b in range(256))
        assert Filter(text) == Filter("x != x''")


@pytest.mark.spec("R-02.20")
class TestTimes:
    def test_the_first_and_the_last_instant(self):
        assert atom("<=", FIRST) == atom("=", FIRST)
        assert atom(">=", LAST) == atom("=", LAST)
        assert atom("<", FIRST).is_never
        assert atom(">", LAST).is_never
        assert atom(">", FIRST) == atom("!=", FIRST)

    def test_instants_are_discrete(self):
        t = datetime(2024, 1, 1, tzinfo=UTC)
        assert (atom(">", t) & atom("<", t + 2 * MICROSECOND)) == atom("=", t + MICROSECOND)
        assert atom(">", t) == atom(">=", t + MICROSECOND)
        assert atom("<=", t).merge(atom(">=", t + MICROSECOND)) == Filter("x is time")


@pytest.mark.spec("02/P3", "02/T5")
class TestCollections:
    @pytest.mark.parametrize(
        ("a", "b"),
        [
            ("x has 1 or x lacks 1", "x is collection"),
            ("x lacks 1 or x lacks 2 or x superset of (1, 2)", "x is collection"),
            ("x has 1 and x has 2 or x has 1 and x lacks 2", "x has 1"),
            ("x has 1 or x lacks 1 and x has 2", "x overlaps (1, 2)"),
            ("x has 1 and x lacks 2 or x lacks 1", "x lacks 1 or x lacks 2"),
            ("x lacks 1 or x has 1 and x lacks 2", "x has 2 and x lacks 1 or x lacks 2"),
            ("x has 1 or x has 2 and x has 3", "x overlaps (1, 2) and x overlaps (1, 3)"),
            (
                "x subset of (1) or x subset of (2)",
                "x subset of (1, 2) and not x superset of (1, 2)",
            ),
            ("some x > 1 or some x <= 1", "some x is number"),
            ("x subset of ()", "x is collection and not (some x exists)"),
            ("not (some x is not number)", "x subset of () or not (some x is not number)"),
            ("some x is int or some x is float", "some x is number"),
            (
                "x lacks 1 and x has 2 or x has 1 and x lacks 2 or x has 1 and x has 2",
                "x overlaps (1, 2)",
            ),
            (
                "x has 1 and x lacks 2 or x has 2 and x lacks 3 or x has 3 and x lacks 1",
                "x has 1 and x lacks 3 or x has 2 and x lacks 1 or x has 3 and x lacks 2",
            ),
        ],
    )
    def test_equal_unions_of_cells_are_equal(self, a, b):
        assert Filter(a) == Filter(b)
        assert hash(Filter(a)) == hash(Filter(b))
        assert Filter(a).covers(Filter(b))
        assert Filter(b).covers(Filter(a))

    def test_an_element_is_never_a_collection(self):
        assert Filter("some x is collection").is_never
        assert Filter("some x is not collection") == Filter("some x exists")

    def test_types_within_collections_are_told_apart(self):
        assert not Filter("x has 1").matches({"x": [True, "1"]})
        assert Filter("x has 1").matches({"x": [1.0]})
        assert Filter("x subset of (1, true)").matches({"x": [True, 1, 1]})
        assert not Filter("x subset of (1)").matches({"x": [True]})
        assert not Filter("x = 1").matches({"x": [1]})
        assert not Filter("x has 1").matches({"x": 1})

    def test_comparisons_do_not_take_collections(self):
        with pytest.raises(FilterTypeError, match="has"):
            atom("=", (1, 2))


@pytest.mark.parametrize(
    "text", ["x within (1, 2)", "x within (1, 2, '<>')", "x within (1, 'a', '[]')"]
)
def test_the_operator_of_half_open_intervals_checks_its_constants(text):
    with pytest.raises(FilterTypeError):
        Filter(text)
