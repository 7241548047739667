"""JMS selectors, held against a direct evaluation in SQL's three-valued logic."""

from __future__ import annotations

import itertools
import operator
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor import Filter
from stentor.errors import FilterSyntaxError
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
    Term,
    Truth,
)
from stentor.filters.selectors import MAX_DEPTH, parse_selector
from stentor.model.values import value_type_of

Message = dict[str, Any]

SIGNS: dict[str, Any] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def like(value: str, pattern: str, escape: str = "") -> bool:
    regex = ""
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            regex += re.escape(next(characters))
        else:
            regex += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return re.fullmatch(regex, value, re.DOTALL) is not None


# The reference: a selector as nested tuples, its text, and its value (true, false or unknown)


def text_of(node: Any) -> str:
    match node:
        case ("id", name):
            return str(name)
        case ("literal", bool(value)):
            return str(value).upper()
        case ("literal", str(value)):
            return "'" + value.replace("'", "''") + "'"
        case ("literal", value):
            return repr(value)
        case ("compute" | "compare", sign, left, right):
            return f"({text_of(left)} {sign} {text_of(right)})"
        case ("between", negated, subject, low, high):
            return f"{text_of(subject)} {negated}BETWEEN {text_of(low)} AND {text_of(high)}"
        case ("in", negated, name, values):
            return f"{name} {negated}IN ({', '.join(text_of(('literal', v)) for v in values)})"
        case ("like", negated, name, pattern):
            return f"{name} {negated}LIKE {text_of(('literal', pattern))}"
        case ("null", negated, name):
            return f"{name} IS {negated}NULL"
        case ("not", part):
            return f"NOT ({text_of(part)})"
        case (("and" | "or") as word, left, right):
            return f"({text_of(left)}) {word.upper()} ({text_of(right)})"
    raise AssertionError(node)


def term_value(node: Any, message: Message) -> Any:
    match node:
        case ("id", name):
            return message.get(name)
        case ("literal", value):
            return value
        case ("compute", sign, left, right):
            values = term_value(left, message), term_value(right, message)
            if any(v is None or value_type_of(v) != "number" for v in values):
                return None
            return None if sign == "/" and values[1] == 0 else SIGNS[sign](*values)
    raise AssertionError(node)


def compare_values(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if value_type_of(left) != value_type_of(right):
        return False
    if sign not in ("=", "<>") and value_type_of(left) != "number":
        return False
    return bool(SIGNS[sign](left, right))


def both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def negation(value: bool | None) -> bool | None:
    return None if value is None else not value


def either(left: bool | None, right: bool | None) -> bool | None:
    return negation(both(negation(left), negation(right)))


def value_of(node: Any, message: Message) -> bool | None:
    match node:
        case ("id", name):
            return compare_values("=", message.get(name), True)
        case ("literal", value):
            return bool(value)
        case ("compare", sign, left, right):
            return compare_values(sign, term_value(left, message), term_value(right, message))
        case ("between", negated, subject, low, high):
            value, least, most = (term_value(t, message) for t in (subject, low, high))
            if negated:
                return either(compare_values("<", value, least), compare_values(">", value, most))
            return both(compare_values(">=", value, least), compare_values("<=", value, most))
        case ("in", negated, name, values):
            found = None if message.get(name) is None else message[name] in values
            return negation(found) if negated else found
        case ("like", negated, name, pattern):
            value = message.get(name)
            found = None if value is None else isinstance(value, str) and like(value, pattern)
            return negation(found) if negated else found
        case ("null", negated, name):
            return (message.get(name) is None) is not bool(negated)
        case ("not", part):
            return negation(value_of(part, message))
        case ("and", left, right):
            return both(value_of(left, message), value_of(right, message))
        case ("or", left, right):
            return either(value_of(left, message), value_of(right, message))
    raise AssertionError(node)


# What our expressions mean, directly from the rules of the filter model


def holds(expression: Expression, message: Message) -> bool:
    if isinstance(expression, Truth):
        return expression.value
    if isinstance(expression, And):
        return all(holds(part, message) for part in expression.parts)
    if isinstance(expression, Or):
        return any(holds(part, message) for part in expression.parts)
    if isinstance(expression, Compare):
        left, right = our_term(expression.left, message), our_term(expression.right, message)
        if left is None or right is None or value_type_of(left) != value_type_of(right):
            return False
        return bool(SIGNS[expression.operator](left, right))
    assert not isinstance(expression, Not), "negation is resolved"
    return atom_holds(expression, message.get(expression.name))


def our_term(term: Term, message: Message) -> Any:
    if isinstance(term, Attribute):
        return message.get(term.name)
    if isinstance(term, Constant):
        return term.value
    assert isinstance(term, Arithmetic)
    left, right = our_term(term.left, message), our_term(term.right, message)
    if any(v is None or value_type_of(v) != "number" for v in (left, right)):
        return None
    return None if term.operator == "/" and right == 0 else SIGNS[term.operator](left, right)


def atom_holds(atom: Atom, value: Any) -> bool:
    constants = atom.constants
    if atom.operator == "missing" or value is None:
        return atom.operator == "missing" and value is None
    match atom.operator:
        case "exists":
            return True
        case "is":
            return bool(value_type_of(value) == constants[0])
        case "is not":
            return bool(value_type_of(value) != constants[0])
    if value_type_of(value) != value_type_of(constants[0]):
        return False
    match atom.operator.removeprefix("not "):
        case "between":
            found = constants[0] <= value <= constants[1]
        case "in":
            found = value in constants
        case "like":
            found = like(value, *constants)
        case sign:
            return bool(SIGNS[sign](value, constants[0]))
    return found is not atom.operator.startswith("not ")


# Agreement

names = st.sampled_from(["a", "b"])
identifiers = names.map(lambda n: ("id", n))
numbers = st.sampled_from([-1, 0, 1, 2, 0.5]).map(lambda v: ("literal", v))
words = st.sampled_from(["", "x", "it's", "1"])
computations = st.recursive(
    identifiers,
    lambda inner: st.tuples(
        st.just("compute"), st.sampled_from("+-*/"), inner, st.one_of(inner, numbers)
    ).filter(lambda node: node[1:] != ("/", ("literal", 0))),
    max_leaves=3,
)
maybe_not = st.sampled_from(["", "NOT "])
signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
equality = st.sampled_from(["=", "<>"])
conditions = st.one_of(
    st.tuples(st.just("compare"), signs, computations, st.one_of(computations, numbers)),
    st.tuples(st.just("compare"), signs, numbers, computations),
    st.tuples(
        st.just("compare"),
        equality,
        identifiers,
        st.one_of(words, st.booleans()).map(lambda v: ("literal", v)),
    ),
    st.tuples(
        st.just("between"),
        maybe_not,
        st.one_of(computations, numbers),
        st.one_of(numbers, computations),
        st.one_of(numbers, computations),
    ),
    st.tuples(st.just("in"), maybe_not, names, st.lists(words, min_size=1, max_size=2)),
    st.tuples(st.just("like"), maybe_not, names, st.sampled_from(["%", "x", "_", "%t%", ""])),
    st.tuples(st.just("null"), maybe_not, names),
    identifiers,
    st.booleans().map(lambda v: ("literal", v)),
)
selectors = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
    ),
    max_leaves=4,
)
VALUES = [None, -1, 0, 1, 2.0, "", "x", "it's", "1", True, False]
MESSAGES: list[Message] = [
    {name: value for name, value in zip("ab", pair, strict=True) if value is not None}
    for pair in itertools.product(VALUES, repeat=2)
]


@pytest.mark.spec("R-07.23", "07/T-17")
@given(selectors)
@settings(max_examples=180, deadline=None)
def test_delivers_what_is_true_in_three_valued_logic(node: Any) -> None:
    text = text_of(node)
    expression = parse_selector(text)
    for message in MESSAGES:
        delivered = value_of(node, message) is True
        assert holds(expression, message) is delivered, (text, message)


@pytest.mark.spec("R-07.23")
@given(conditions)
@settings(max_examples=120, deadline=None)
def test_every_condition_and_its_negation_leave_out_just_the_unknown(node: Any) -> None:
    positive = parse_selector(text_of(node))
    negative = parse_selector(f"NOT ({text_of(node)})")
    for message in MESSAGES:
        unknown = value_of(node, message) is None
        assert (holds(positive, message) or holds(negative, message)) is not unknown
        assert not (holds(positive, message) and holds(negative, message))


# Examples


@pytest.mark.spec("07/E-09")
@pytest.mark.parametrize(
    ("selector", "message", "delivered"),
    [
        ("NewsType='Opinion' OR NewsType='Sports'", {"NewsType": "Sports"}, True),
        ("NewsType='Opinion' OR NewsType='Sports'", {"NewsType": "Economy"}, False),
        ("phone LIKE '12%3'", {"phone": "123"}, True),
        ("phone LIKE '12%3'", {"phone": "12993"}, True),
        ("phone LIKE '12%3'", {"phone": "1234"}, False),
        ("word LIKE 'l_se'", {"word": "lose"}, True),
        ("word LIKE 'l_se'", {"word": "loose"}, False),
        (r"underscored LIKE '\_%' ESCAPE '\'", {"underscored": "_foo"}, True),
        (r"underscored LIKE '\_%' ESCAPE '\'", {"underscored": "bar"}, False),
        (
            "JMSType='car' AND color='blue' AND weight>2500",
            {"JMSType": "car", "color": "blue", "weight": 2501},
            True,
        ),
        (
            "JMSType='car' AND color='blue' AND weight>2500",
            {"JMSType": "car", "color": "blue"},
            False,
        ),
        ("Country NOT IN ('UK', 'US')", {"Country": "France"}, True),
        ("Country NOT IN ('UK', 'US')", {"Country": "US"}, False),
        ("Country NOT IN ('UK', 'US')", {"age": 1}, False),
        ("age NOT BETWEEN 15 AND 19", {"age": 20}, True),
        ("age NOT BETWEEN 15 AND 19", {"age": 15}, False),
        ("prop_name IS NULL", {"age": 1}, True),
        ("prop_name IS NOT NULL", {"prop_name": "x"}, True),
        ("active AND age > 1", {"active": True, "age": 2}, True),
        ("active AND age > 1", {"active": False, "age": 2}, False),
        ("NOT active", {"active": False}, True),
        ("NOT active", {"age": 1}, False),
        ("JMSPriority > 4 OR JMSXGroupID = 'g''1'", {"JMSXGroupID": "g'1"}, True),
        ("price * quantity > 1000", {"price": 10.5, "quantity": 100}, True),
        ("price * quantity > 1000", {"price": 10.5}, False),
        ("NOT (price * quantity > 1000)", {"price": 10.5}, False),
        ("a < b", {"a": "x", "b": "y"}, False),
        ("order = 'in' and notify <> false", {"order": "in", "notify": True}, True),
        ("1 = 1", {"x": 1}, True),
        ("", {"x": 1}, True),
    ],
)
def test_example(selector: str, message: Message, delivered: bool) -> None:
    assert holds(parse_selector(selector), message) is delivered
    assert Filter.from_selector(selector).matches(message) is delivered


@pytest.mark.spec("07/T-17", "02/T4")
def test_negation_of_a_comparison_with_a_missing_attribute_is_unknown() -> None:
    expression = parse_selector("NOT (x > 5)")
    assert not holds(expression, {"y": 1})
    assert holds(expression, {"x": 5})
    assert holds(expression, {"x": "a string is not like a number, so the comparison is false"})


@pytest.mark.spec("R-07.23")
def test_plain_conditions_become_plain_atoms() -> None:
    assert parse_selector("x between 1 and 5") == Atom("x", "between", (1, 5))
    assert parse_selector("5 > x") == Atom("x", "<", (5,))
    assert parse_selector("x = -9223372036854775808") == Atom("x", "=", (-(2**63),))
    assert parse_selector("x = 7E3 AND y = 10L") == And(
        (Atom("x", "=", (7000.0,)), Atom("y", "=", (10,)))
    )
    assert parse_selector("x Like 'a!%' eScape '!'") == Atom("x", "like", ("a!%", "!"))


@pytest.mark.spec("R-07.23")
def test_precedence_is_not_and_or() -> None:
    x, y, z = (Atom(name, "=", (1,)) for name in "xyz")
    assert parse_selector("x = 1 OR y = 1 AND z = 1") == Or((x, And((y, z))))
    found = parse_selector("NOT x = 1 AND y = 1")
    assert isinstance(found, And)
    assert found.parts[1] == y
    assert parse_selector("a + 2 * b = c") == Compare(
        "=",
        Arithmetic("+", Attribute("a"), Arithmetic("*", Constant(2), Attribute("b"))),
        Attribute("c"),
    )


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("x > 'a'", 3, "only compared with = and <>"),
        ("TRUE <= x", 6, "only compared with = and <>"),
        ("x == 1", 4, "write = to test for equality"),
        ("x != 1", 3, "write <>"),
        ("x = 1 && y = 1", 7, "write AND"),
        ("x = null", 5, "write x IS NULL"),
        ("x IN (1, 2)", 7, "IN lists strings only"),
        ("x + 1 IN ('a')", 1, "IN tests an identifier"),
        ("x LIKE 5", 8, "a string in single quotes"),
        ("x LIKE 'a!' ESCAPE '!'", 8, "after the escape '!'"),
        ("x LIKE 'a' ESCAPE 'ab'", 19, "one character"),
        ("x BETWEEN 'a' AND 'b'", 1, "BETWEEN compares numbers"),
        ("x = 'abc", 5, "never closed"),
        ('x = "abc"', 5, "single quotes"),
        ("x = 010", 5, "without leading zeros"),
        ("x = 9223372036854775808", 5, "64-bit"),
        ("x = 0x1F", 5, "is not a number"),
        ("5", 1, "a value alone is not a condition"),
        ("(x > 1) + 1 = 2", 1, "this is a condition, not a value"),
        ("x + 1 = 'a'", 7, "arithmetic needs numbers"),
        ("x = 1 / 0", 7, "has no value"),
        ("x = 1 y", 7, "unexpected 'y'"),
        ("x IS", 5, "expected NULL or NOT NULL"),
        ("(x = 1", 7, "expected ')'"),
        ("x = 1\nAND y !> 2", 2, "write NOT"),
    ],
)
def test_mistake(text: str, column: int, message: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_selector(text)
    assert message in str(caught.value)
    line = text.count("\n") + 1
    assert caught.value.line == line
    assert caught.value.column == (7 if line == 2 else column)
    assert "^" in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after"), [("(", ")"), ("NOT ", ""), ("- ", ""), ("1 + (", ")")]
)
def test_nesting_is_limited(before: str, after: str) -> None:
    allowed = MAX_DEPTH // 2
    suffix = "" if before == "NOT " else " = 1"
    parse_selector(before * allowed + "x" + after * allowed + suffix)
    with pytest.raises(FilterSyntaxError, match=str(MAX_DEPTH)):
        parse_selector(before * 3000 + "x" + after * 3000 + suffix)


def test_long_text_is_refused() -> None:
    with pytest.raises(FilterSyntaxError, match="characters; at most"):
        parse_selector("x = 1 OR " * 200_000 + "x = 1")


@given(st.text(alphabet="xynotadris=<>()'\"-+*/,.1e5 \n#é", max_size=25))
@settings(max_examples=180, deadline=None)
def test_no_text_raises_anything_else(text: str) -> None:
    error = None
    try:
        parse_selector(text)
    except FilterSyntaxError as caught:
        error = caught
    assert error is None or str(error).startswith(f"line {error.line}, column {error.column}: ")


def test_like_anything_wants_a_string() -> None:
    from stentor import Filter

    any_string = Filter.from_selector("x LIKE '%'")
    no_string = Filter.from_selector("NOT (x LIKE '%')")
    for value in ("", "a", 5, True):
        assert any_string.matches({"x": value}) is isinstance(value, str)
        assert no_string.matches({"x": value}) is not isinstance(value, str)
    assert not no_string.matches({"y": 1})


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("REGEX('^a.c', s)", True),
        ("REGEX('^b', s)", False),
        ("NOT REGEX('^b', s)", True),
        ("NOT REGEX('^b', gone)", False),
        ("INLIST(MAKELIST('abc', 'x'), s)", True),
        ("INLIST(SPLIT('x,abc', ','), s)", True),
        ("NOT INLIST(SPLIT('x,y', ','), s) AND n > 1", True),
        ("s = REPLACE('axc', 'x', 'b')", True),
    ],
)
def test_functions_of_activemq(selector: str, expected: bool) -> None:
    assert Filter.from_selector(selector).matches({"s": "abc", "n": 2}) is expected


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("FOO(s)", "there is no function FOO"),
        ("INLIST(s, s)", "column 8: INLIST begins with a list"),
        ("REGEX('a')", "REGEX takes 2 arguments"),
        ("INLIST(SPLIT('a.b', '.'), s)", "a plain separator"),
        ("REGEX(s, 'a')", "REGEX takes strings only"),
    ],
)
def test_mistakes_with_functions(selector: str, words: str) -> None:
    with pytest.raises(FilterSyntaxError, match=words):
        Filter.from_selector(selector)
