"""The subscription language: what every construct means, how it prints, what mistakes look like."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import FilterSyntaxError, FilterTypeError, InvalidValue
from stentor.filters.expression import (
    And,
    Arithmetic,
    Atom,
    Attribute,
    Compare,
    Constant,
    Expression,
    Not,
    Or,
    Truth,
)
from stentor.filters.language import (
    format_atom,
    format_expression,
    format_literal,
    format_name,
    parse,
)
from stentor.filters.language.compiler import MAX_DEPTH
from stentor.filters.language.parser import MAX_LENGTH
from stentor.filters.language.template import cached_template, compile_template
from stentor.filters.language.tokens import KEYWORDS, kinds, scan
from stentor.model.values import ValueType, register_value_type


class Release(tuple[int, ...]):
    """A registered value type, for the tests."""


register_value_type(
    ValueType(
        "release",
        (Release,),
        format=lambda v: ".".join(map(str, v)),
        parse=lambda text: Release(map(int, text.split("."))),
    )
)

X, Y = Attribute("x"), Attribute("y")


def atom(operator: str, *constants: Any, name: str = "x") -> Atom:
    return Atom(name, operator, constants)


# What the constructs mean

MEANINGS: list[tuple[str, Expression]] = [
    # scalars: every row of the operator table
    ("exists x", atom("exists")),
    ("x exists", atom("exists")),
    ("x is missing", atom("missing")),
    ("x is not missing", atom("exists")),
    ("x = 5", atom("=", 5)),
    ("x != 5", atom("!=", 5)),
    ("x <> 5", atom("!=", 5)),
    ("x < 5", atom("<", 5)),
    ("x <= 5", atom("<=", 5)),
    ("x > 5", atom(">", 5)),
    ("x >= 5", atom(">=", 5)),
    ("x between 1 and 5", atom("between", 1, 5)),
    ("x not between 1 and 5", atom("not between", 1, 5)),
    ("x in (1, 2)", atom("in", 1, 2)),
    ("x not in (1, 'a', true)", atom("not in", 1, "a", True)),
    # strings
    ("x prefix 'IB'", atom("prefix", "IB")),
    ("x suffix 'IB'", atom("suffix", "IB")),
    ("x contains 'IB'", atom("contains", "IB")),
    (r"x regex '^a\.b'", atom("regex", r"^a\.b")),
    ("x like 'a%'", atom("like", "a%")),
    ("x like '10!%' escape '!'", atom("like", "10!%", "!")),
    ("x not prefix 'IB'", atom("not prefix", "IB")),
    ("x not suffix 'IB'", atom("not suffix", "IB")),
    ("x not contains 'IB'", atom("not contains", "IB")),
    ("x not regex 'IB'", atom("not regex", "IB")),
    ("x not like 'a%'", atom("not like", "a%")),
    ("x not like 'a%' escape '!'", atom("not like", "a%", "!")),
    ("x prefix x'00ff'", atom("prefix", b"\x00\xff")),
    # collections
    ("x has 'a'", atom("has", "a")),
    ("x lacks 'a'", atom("lacks", "a")),
    ("x not has 'a'", atom("lacks", "a")),
    ("x overlaps ('a', 'b')", atom("overlaps", "a", "b")),
    ("x disjoint ('a')", atom("disjoint", "a")),
    ("x disjoint from ('a', 1)", atom("disjoint", "a", 1)),
    ("x not disjoint from ('a')", atom("overlaps", "a")),
    ("x superset of (1)", atom("superset", 1)),
    ("x superset (1)", atom("superset", 1)),
    ("x subset of (1)", atom("subset", 1)),
    ("x subset of ()", atom("subset")),
    ("x not superset of (1)", atom("not superset", 1)),
    ("x not subset of (1)", atom("not subset", 1)),
    # elements
    ("some x = 5", atom("some =", 5)),
    ("some x < -5", atom("some <", -5)),
    ("some x prefix 'a'", atom("some prefix", "a")),
    ("some x not in (1)", atom("some not in", 1)),
    ("some x between 1 and 2", atom("some between", 1, 2)),
    ("some x like 'a' escape 'b'", atom("some like", "a", "b")),
    ("some x is not int", atom("some is not", "int")),
    ("some x exists", atom("some exists")),
    ("some x within (1, 2, '[)')", atom("some within", 1, 2, "[)")),
    # types
    ("x is int", atom("is", "int")),
    ("x is not string", atom("is not", "string")),
    ("x is timestamp", atom("is", "time")),
    ("x is collection", atom("is", "collection")),
    ("x is release", atom("is", "release")),
    ("isa quote.stock", atom("isa", "quote.stock", name="_types")),
    ("isa 'quote.stock'", atom("isa", "quote.stock", name="_types")),
    ('isa "odd type"', atom("isa", "odd type", name="_types")),
    ("not isa quote", atom("not isa", "quote", name="_types")),
    ("not (isa quote)", Not(atom("isa", "quote", name="_types"))),
    # registered operators
    ("x divisible_by 3", atom("divisible_by", 3)),
    ("x inside (1, 2)", atom("inside", 1, 2)),
    ("x not inside 'a'", atom("not inside", "a")),
    ("x near time '2026-01-01'", atom("near", datetime(2026, 1, 1, tzinfo=UTC))),
    # the constant on the left, chains
    ("1 < x", atom(">", 1)),
    ("1 <= x", atom(">=", 1)),
    ("1 > x", atom("<", 1)),
    ("1 >= x", atom("<=", 1)),
    ("1 = x", atom("=", 1)),
    ("true != x", atom("!=", True)),
    ("1 < x <= 5", And((atom(">", 1), atom("<=", 5)))),
    ("x < y < 5", And((Compare("<", X, Y), atom("<", 5, name="y")))),
    # Boolean structure
    ("", Truth(True)),
    (" \n\t ", Truth(True)),
    ("true", Truth(True)),
    ("FALSE", Truth(False)),
    ("(true)", Truth(True)),
    ("not x = 1", Not(atom("=", 1))),
    ("not not x = 1", Not(Not(atom("=", 1)))),
    ("x = 1 or x = 2 and x = 3", Or((atom("=", 1), And((atom("=", 2), atom("=", 3)))))),
    ("(x = 1 or x = 2) and x = 3", And((Or((atom("=", 1), atom("=", 2))), atom("=", 3)))),
    ("not x = 1 and x = 2", And((Not(atom("=", 1)), atom("=", 2)))),
    ("x = 1 AnD x = 2", And((atom("=", 1), atom("=", 2)))),
    ("x between 1 and 2 and x = 3", And((atom("between", 1, 2), atom("=", 3)))),
    # terms
    ("x < y", Compare("<", X, Y)),
    ("x + y = 5", Compare("=", Arithmetic("+", X, Y), Constant(5))),
    ("x * y > 2 * 500", Compare(">", Arithmetic("*", X, Y), Constant(1000))),
    ("x = 1 + 2 * 3", atom("=", 7)),
    ("(1 + 2) * 3 = x", atom("=", 9)),
    ("x < 10 / 4", atom("<", 2.5)),
    ("x = -(2 + 3)", atom("=", -5)),
    ("x = +5", atom("=", 5)),
    ("-x < 5", Compare("<", Arithmetic("-", Constant(0), X), Constant(5))),
    (
        "x - 1 - 2 < y",
        Compare("<", Arithmetic("-", Arithmetic("-", X, Constant(1)), Constant(2)), Y),
    ),
    (
        "x + 1 between 2 and y",
        And(
            (
                Compare(">=", Arithmetic("+", X, Constant(1)), Constant(2)),
                Compare("<=", Arithmetic("+", X, Constant(1)), Y),
            )
        ),
    ),
    (
        "x not between y and 5",
        Or((Compare("<", X, Y), atom(">", 5))),
    ),
    ('x = ("y")', Compare("=", X, Y)),
    ("1 < 2", Truth(True)),
    ("'a' = 1", Truth(False)),
    ("'a' != 1", Truth(False)),
    # names
    ("Position.x = 1", atom("=", 1, name="Position.x")),
    ("a.0.b = 1", atom("=", 1, name="a.0.b")),
    ("$price_2 = 1", atom("=", 1, name="$price_2")),
    ("größe = 1", atom("=", 1, name="größe")),
    ("日本.x = 1", atom("=", 1, name="日本.x")),
    ('"odd ""name" = 1', atom("=", 1, name='odd "name')),
    ('"and" = 1', atom("=", 1, name="and")),
    ("time > 5", atom(">", 5, name="time")),
    # literals
    ("x = -9223372036854775808", atom("=", -(2**63))),
    ("x = 9223372036854775807", atom("=", 2**63 - 1)),
    ("x = 1.5", atom("=", 1.5)),
    ("x = .5e-3", atom("=", 0.0005)),
    ("x = 1e3", atom("=", 1000.0)),
    ("x = -1.5", atom("=", -1.5)),
    ("x = 'it''s'", atom("=", "it's")),
    ("x = ''", atom("=", "")),
    ("x = ''''", atom("=", "'")),
    (r"x = 'a\n'", atom("=", r"a\n")),
    ("x = 'two\nlines'", atom("=", "two\nlines")),
    ("x = true", atom("=", True)),
    ("x = x'00ff'", atom("=", b"\x00\xff")),
    ("x = X'00FF'", atom("=", b"\x00\xff")),
    ("x = time '2026-01-01T00:00:00Z'", atom("=", datetime(2026, 1, 1, tzinfo=UTC))),
    ("x = timestamp '2026-01-01T02:00:00+02:00'", atom("=", datetime(2026, 1, 1, tzinfo=UTC))),
    ("time '2026-01-01' <= x", atom(">=", datetime(2026, 1, 1, tzinfo=UTC))),
    ("x < number 'inf'", atom("<", float("inf"))),
    ("x in (release '1.2', -1)", atom("in", Release((1, 2)), -1)),
]


@pytest.mark.spec("02/T3", "R-02.09", "R-02.13", "R-02.21", "R-02.22", "R-07.24")
@pytest.mark.parametrize(("text", "expected"), MEANINGS, ids=[text for text, _ in MEANINGS])
def test_meaning(text: str, expected: Expression) -> None:
    assert_identical(parse(text), expected)
    assert_identical(parse(text), expected)  # now from the cache
    assert_identical(parse(format_expression(expected)), expected)


def assert_identical(found: Expression, expected: Expression) -> None:
    """Equal, and with the same types of constants: 1, 1.0 and True are different."""
    assert found == expected
    assert repr(found) == repr(expected)


@pytest.mark.spec("R-02.07")
@pytest.mark.parametrize("word", sorted(KEYWORDS))
def test_every_keyword_can_be_an_attribute_in_quotes(word: str) -> None:
    for spelling in (word, word.upper(), word.title()):
        assert format_name(spelling) == f'"{spelling}"'
        assert parse(f'"{spelling}" = 1') == Atom(spelling, "=", (1,))
        with pytest.raises(FilterSyntaxError):
            parse(f"{spelling} = 1 and {spelling} = 2 and x = 1 or {spelling} exists")


@pytest.mark.spec("R-02.11", "02/T4")
def test_negation_is_left_to_the_normalizer_except_in_negated_operators() -> None:
    assert parse("not (x < 10)") == Not(atom("<", 10))
    assert parse("not (x in (1))") == Not(atom("in", 1))
    assert parse("x not in (1)") == atom("not in", 1)


# Printing

names = st.one_of(
    st.sampled_from(["x", "a.b", "odd name", "and", "NULL", "größe", 'q"q', "1st", "_types", "a."]),
    st.text(min_size=1, max_size=6),
)
times = st.datetimes(
    min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)
).map(lambda t: t.replace(fold=0))
values = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=4),
    times,
    st.lists(st.integers(0, 99), min_size=1, max_size=3).map(Release),
)
strings = st.text(max_size=6)
signs = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
some = st.sampled_from(["", "some "])
negated = st.sampled_from(["", "not "])
several = st.lists(values, min_size=1, max_size=3).map(tuple)


def _operator(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map("".join)


atoms = st.one_of(
    st.builds(Atom, names, st.sampled_from(["exists", "missing", "some exists"])),
    st.builds(Atom, names, _operator(some, signs), values.map(lambda v: (v,))),
    st.builds(Atom, names, _operator(some, negated, st.just("between")), st.tuples(values, values)),
    st.builds(Atom, names, _operator(some, negated, st.just("in")), several),
    st.builds(
        Atom,
        names,
        _operator(some, negated, st.sampled_from(["prefix", "suffix", "contains", "regex"])),
        st.tuples(strings),
    ),
    st.builds(
        Atom,
        names,
        _operator(some, negated, st.just("like")),
        st.one_of(st.tuples(strings), st.tuples(strings, st.characters(codec="utf-8"))),
    ),
    st.builds(Atom, names, st.sampled_from(["has", "lacks"]), st.tuples(values)),
    st.builds(
        Atom,
        names,
        st.sampled_from(
            ["overlaps", "disjoint", "superset", "subset", "not superset", "not subset"]
        ),
        st.lists(values, max_size=3).map(tuple),
    ),
    st.builds(
        Atom,
        names,
        _operator(some, st.sampled_from(["is", "is not"])),
        st.sampled_from([("bool",), ("int",), ("collection",), ("release",)]),
    ),
    st.builds(Atom, st.just("_types"), st.sampled_from(["isa", "not isa"]), st.tuples(names)),
    st.builds(
        Atom, names, _operator(some, negated, st.sampled_from(["near", "geo.within"])), several
    ),
)
attributes = st.builds(Attribute, names)
numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)).map(Constant)
terms = st.recursive(
    attributes,
    lambda inner: st.builds(
        lambda sign, left, right, swap: (
            Arithmetic(sign, right, left) if swap else Arithmetic(sign, left, right)
        ),
        st.sampled_from("+-*/"),
        inner,
        st.one_of(inner, numbers),
        st.booleans(),
    ),
    max_leaves=4,
)
compares = st.one_of(
    st.builds(Compare, signs, terms, terms),
    st.builds(Compare, signs, terms.filter(lambda t: isinstance(t, Arithmetic)), numbers),
)
expressions = st.recursive(
    st.one_of(atoms, compares, st.builds(Truth, st.booleans())),
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Not, inner),
    ),
    max_leaves=6,
)


@given(expressions)
@settings(max_examples=180, deadline=None)
def test_what_is_printed_parses_to_the_same(expression: Expression) -> None:
    text = format_expression(expression)
    assert_identical(parse(text), expression)


@given(expressions, expressions)
@settings(max_examples=90, deadline=None)
def test_a_cached_template_gives_what_a_fresh_one_gives(
    expression: Expression, other: Expression
) -> None:
    """Whatever was parsed before, and whatever texts share the template."""
    text = format_expression(expression)
    parse(text)
    parse(format_expression(other))
    from_cache = parse(text)
    tokens = scan(text)
    fresh = compile_template(kinds(tokens))
    assert_identical(fresh.build(tokens), from_cache)
    assert_identical(fresh.run(tokens), from_cache)  # the full program, without the short one


def test_texts_of_one_shape_share_a_template() -> None:
    cached_template.cache_clear()
    for i in range(10):
        parse(f"name{i} = 'value{i}' and price{i} >= {i}.5 and \"odd {i}\" < {i}")
    found = cached_template.cache_info()
    assert (found.misses, found.hits) == (1, 9)


@given(values)
@settings(deadline=None)
def test_literals_come_back_exactly(value: Any) -> None:
    found = parse(f"x = {format_literal(value)}")
    assert isinstance(found, Atom)
    assert (repr(found.constants), type(found.constants[0])) == (repr((value,)), type(value))


@given(names)
@settings(deadline=None)
def test_names_come_back_exactly(name: str) -> None:
    assert parse(f"exists {format_name(name)}") == Atom(name, "exists")


def test_times_print_in_utc_with_microseconds() -> None:
    value = datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(microseconds=5)
    assert format_literal(value) == "time '2026-01-01T12:00:00.000005Z'"
    assert format_literal(float("-inf")) == "number '-inf'"


def test_trivial_nesting_is_printed_away() -> None:
    assert format_expression(And((atom("=", 1),))) == "x = 1"
    assert format_expression(And(())) == "true"
    assert format_expression(Or(())) == "false"
    assert format_expression(Atom("x", "not some =", (1,))) == "not some x = 1"


def test_what_cannot_be_written_is_refused() -> None:
    class Unwritable:
        pass

    register_value_type(ValueType("unwritable", (Unwritable,), ordered=False))
    with pytest.raises(FilterTypeError, match="register the type with format and parse"):
        format_literal(Unwritable())
    with pytest.raises(FilterTypeError, match="collection"):
        format_literal((1, 2))
    with pytest.raises(FilterTypeError, match="no way to write"):
        format_atom(Atom("x", "two words", (1,)))
    with pytest.raises(InvalidValue):
        format_name("")


# Mistakes

MISTAKES: list[tuple[str, int, int, str]] = [
    ("symbol == 'IBM'", 1, 8, "write = to test for equality"),
    ("x = 1 && y = 2", 1, 7, "write and"),
    ("x = 1 || y = 2", 1, 7, "write or"),
    ("!x = 1", 1, 1, "write not"),
    ('symbol = "IBM"', 1, 10, "double quotes name attributes"),
    ('symbol prefix "I\'s"', 1, 15, "write 'I''s' in single quotes"),
    ('x in ("a")', 1, 7, "write 'a' in single quotes"),
    ("x = 'abc", 1, 5, "this string is never closed"),
    ('"abc = 1', 1, 1, "this quoted name is never closed"),
    ("x = null", 1, 5, "x is missing"),
    ("x => 1", 1, 3, "write >="),
    ("x =< 1", 1, 3, "write <="),
    ("x = \u2018a\u2019", 1, 5, "straight quotes"),
    ("(x = 1 and (y = 2 or z = 3)", 1, 28, "the '(' at line 1, column 1 is never closed"),
    ("x = 1)", 1, 6, "no '(' is open here"),
    ("x = 1 and date(t) = 3", 1, 15, "filters call no functions; compare the attribute itself"),
    ("x between f(1) and 3", 1, 12, "filters call no functions"),
    ("exists(x)", 1, 7, "write exists and the name, without parentheses"),
    ("any line in lines line.sku = 1", 1, 10, "write any line in LIST: CONDITION, with the colon"),
    ("all x of lines: x > 1", 1, 7, "write all x in LIST"),
    ("x = NaN", 1, 5, "no attribute ever holds NaN"),
    ("x = number 'nan'", 1, 5, "NaN cannot be an attribute value"),
    ("x < infinity", 1, 5, "write number 'inf'"),
    ("x is integer", 1, 6, "there is no value type 'integer'; known are bool, bytes"),
    ("x = color 'red'", 1, 5, "there is no value type 'color'"),
    ("x = string 'red'", 1, 5, "not written with the name of the type"),
    ("x = time 'yesterday'", 1, 5, "'yesterday' is not a time"),
    ("x = x'0g'", 1, 5, "'0g' is not a bytes"),
    ("x = 9223372036854775808", 1, 5, "does not fit a 64-bit integer"),
    ("x = -9223372036854775809", 1, 6, "does not fit a 64-bit integer"),
    ("x = " + "9" * 5000, 1, 5, "does not fit a 64-bit integer"),
    ("x = 1e999", 1, 5, "too large for a float"),
    ("x = 1_000", 1, 5, "1_000 is not a number"),
    ("x = 1.2.3", 1, 5, "1.2.3 is not a number"),
    ("x = 1 / 0", 1, 7, "1 / 0 has no value"),
    ("x + 'a' = 1", 1, 3, "arithmetic needs numbers"),
    ("x + 1 = 'a'", 1, 7, "arithmetic needs numbers"),
    ("9223372036854775807 + 1 = x", 1, 21, "has no value that an attribute could hold"),
    ("active and x = 1", 1, 8, "write active = true"),
    ("from = 'me'", 1, 1, 'write "from" in double quotes'),
    ("1 prefix 'a'", 1, 1, "only an attribute can be tested"),
    ("x like 'a' escape 'ab'", 1, 19, "the escape is one character"),
    ("some x between y and 2", 1, 8, "constants only"),
    ("symbol prefix IB", 1, 15, "write 'IB' in single quotes"),
    ("x in (1, red, blue)", 1, 10, "write 'red' in single quotes"),
    ("x =", 1, 4, "the filter ends too early"),
    ("x = 1 and", 1, 10, "expected a condition"),
    ('"" = 1', 1, 1, "cannot be empty"),
    ("x # 1", 1, 3, "unexpected '#'"),
    ("x = 1 ²", 1, 7, "unexpected '²'"),
    ("x = 1\nand y == 2", 2, 7, "write ="),
    ("x = 1 and\r\n\ty === 2", 2, 4, "write ="),
]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"), MISTAKES, ids=[text[:30] for text, *_ in MISTAKES]
)
def test_mistake(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", ("a comparison such as = or <", "a test such as in, between or prefix")),
        ("x = ", ("a value or an attribute name",)),
        ("x in (1", ("',' or ')'",)),
        ("x in 1", ("'(' and a list of values",)),
        ("x prefix 5", ("a string in single quotes",)),
        ("x between 1 or 2", ("'and'",)),
        ("x is 5", ("missing, not or the name of a type",)),
        ("(x = 1", ("')'",)),
        ("(x = 1 y", ("'and' or 'or'", "')'")),
        ("x = 1 y", ("'and' or 'or'", "the end of the filter")),
        ("exists 5", ("an attribute name",)),
        ("isa 5", ("the name of an event type",)),
        ("and", ("a condition such as x > 1",)),
        ("x has y", ("a value",)),
    ],
)
def test_mistake_names_what_was_expected(text: str, expected: tuple[str, ...]) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert caught.value.expected == expected
    assert "expected " + expected[0] in str(caught.value)


def test_the_caret_stands_below_the_place() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse("a = 1 and\n\t日本 = 'x' == 'y'")
    assert str(caught.value).splitlines()[1:3] == [
        "    \t日本 = 'x' == 'y'",
        "    \t           ^",  # two columns for each of the wide characters
    ]


def test_a_long_line_is_shown_in_part() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse("x = 1 and " * 1000 + "y == 1" + " and x = 1" * 1000)
    shown, caret = str(caught.value).splitlines()[1:3]
    assert len(shown) < 140
    assert shown[caret.index("^") :].startswith("== 1 and x = 1")


def test_limits() -> None:
    text = "x in (" + ", ".join(["1"] * 50_000) + ")"
    found = parse(text)
    assert isinstance(found, Atom)
    assert len(found.constants) == 50_000
    with pytest.raises(FilterSyntaxError, match="characters; at most"):
        parse("x = '" + "a" * MAX_LENGTH + "'")


@pytest.mark.parametrize(
    ("before", "after"),
    [("(", ")"), ("not ", ""), ("not (", ")"), ("x = 1 and (y = 2 or (", "))")],
)
def test_nesting_is_limited_without_exhausting_the_stack(before: str, after: str) -> None:
    levels = before.count("(") if after else 1
    allowed = (MAX_DEPTH - 1) // levels
    parse(before * allowed + "x = 1" + after * allowed)
    with pytest.raises(FilterSyntaxError, match=str(MAX_DEPTH)):
        parse(before * 5_000 + "x = 1" + after * 5_000)


@pytest.mark.parametrize("step", [" + x", " * (x", " - -x"])
def test_terms_cannot_be_deep_either(step: str) -> None:
    close = ")" if "(" in step else ""
    parse("x" + step * 50 + close * 50 + " = y")
    with pytest.raises(FilterSyntaxError, match=str(MAX_DEPTH)):
        parse("x" + step * 10_000 + close * 10_000 + " = y")


def test_the_deepest_expression_prints_and_parses() -> None:
    expression: Expression = atom("=", 1)
    for i in range(MAX_DEPTH - 2):
        expression = And((expression, atom("=", i))) if i % 2 else Or((expression, atom("=", i)))
    text = format_expression(expression)
    assert format_expression(parse(text)) == text


@given(st.text(alphabet="xy=<>()'\"-+*/,.1e5 \nandotisbw#é", max_size=30))
@settings(max_examples=240, deadline=None)
def test_no_text_raises_anything_else(text: str) -> None:
    assert_read_or_explained(text)


def assert_read_or_explained(text: str) -> None:
    error = None
    expression = None
    try:
        expression = parse(text)
    except FilterSyntaxError as caught:
        error = caught
    if expression is not None:
        assert parse(format_expression(expression)) == expression
    if error is not None:
        message, _, caret, *_ = str(error).splitlines()
        assert message.startswith(f"line {error.line}, column {error.column}: ")
        assert caret.endswith("^")


words = st.sampled_from([*KEYWORDS, "x", "'a'", "1", "(", ")", ",", "=", "<", "-", '"q"', "time"])


@given(st.lists(words, max_size=12).map(" ".join))
@settings(max_examples=240, deadline=None)
def test_no_sequence_of_words_raises_anything_else(text: str) -> None:
    assert_read_or_explained(text)


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(FilterSyntaxError, match="surrogate") as caught:
        parse("x = 1 and\ny = '\ud800'")
    assert (caught.value.line, caught.value.column) == (2, 6)


def test_parsing_does_not_depend_on_the_room_left_on_the_stack() -> None:
    text = "(" * MAX_DEPTH + "x = 1" + ")" * MAX_DEPTH

    def descend(levels: int) -> Expression:
        return descend(levels - 1) if levels else parse(text)

    parse(text)
    used = len(list(_frames()))
    assert descend(sys.getrecursionlimit() - used - 120) == atom("=", 1)


def _frames() -> Any:
    frame = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]


def test_a_known_shape_is_parsed_at_the_price_of_its_tokens() -> None:
    """A generous bound: a fresh parse takes about 20 times as long."""
    texts = [f"symbol = 'S{i}' and price >= {i}.5 and price <= {i}.75" for i in range(2000)]
    parse(texts[0])
    start = time.thread_time()
    for text in texts:
        parse(text)
    cached = time.thread_time() - start
    shape = kinds(scan(texts[0]))
    start = time.thread_time()
    for _ in range(100):
        compile_template(shape)
    fresh = (time.thread_time() - start) * 20
    assert cached < fresh / 4
