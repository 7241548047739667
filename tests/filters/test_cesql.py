"""CloudEvents SQL: what passes, what does not, and what is refused."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor import Filter
from stentor.errors import FilterSyntaxError

EVENT: dict[str, Any] = {
    "id": "e-1",
    "source": "https://shop.example",
    "type": "order.placed",
    "name": "Anna",
    "spaced": "  a b ",
    "hop": 3,
    "ttl": 5,
    "less": -7,
    "yes": True,
    "no": False,
}

PASSES = [
    # comparisons, with constants on either side
    "id = 'e-1'",
    "id != 'e-2'",
    "id <> 'e-2'",
    'id = "e-1"',
    "hop = 3 AND hop < 4",
    "4 > hop",
    "hop <= 3 AND hop >= 3",
    "hop < ttl",
    "hop != ttl",
    "hop + ttl = 8",
    "hop * 2 > ttl",
    "-less = 7",
    "less < -1",
    # logic
    "yes",
    "NOT no",
    "yes AND NOT no",
    "no OR yes",
    "yes XOR no",
    "NOT (yes XOR yes)",
    "(no AND gone = 1) OR yes",
    "yes OR gone = 1",
    "yes = TRUE",
    "no = false",
    "(hop = 3) = yes",
    "(hop = 4) != yes",
    # likeness, lists, presence
    "source LIKE 'https://%'",
    "source NOT LIKE 'http://%'",
    "name LIKE 'A__a'",
    "name LIKE '%'",
    "type like '%.placed'",
    "name IN ('Ann', 'Anna')",
    "hop IN (1, 2, 3)",
    "hop IN ('a', 3)",
    "hop NOT IN (4, 5)",
    "hop IN (ttl, hop)",
    "EXISTS hop",
    "NOT EXISTS gone",
    "NOT (EXISTS gone)",
    # constants
    "10 / 3 = 3 AND -10 / 3 = -3",
    "10 % 3 = 1 AND -10 % 3 = -1",
    "hop = 9 / 3",
    "'10' = 10",
    "10 = '10'",
    "'true' = TRUE",
    "TRUE",
    "5 IN (4, 5)",
    "'abc' LIKE 'a%'",
    "'a%c' LIKE 'a\\%c'",
    "LENGTH('abc') = 3",
    "CONCAT('a', 'b', 1) = 'ab1'",
    "CONCAT_WS('-', 'a', 'b') = 'a-b'",
    "LOWER('ABC') = 'abc' AND UPPER('abc') = 'ABC' AND TRIM(' a ') = 'a'",
    "LEFT('abc', 2) = 'ab' AND RIGHT('abc', 2) = 'bc' AND LEFT('abc', 9) = 'abc'",
    "SUBSTRING('abcdef', 3) = 'cdef' AND SUBSTRING('abcdef', 2, 3) = 'bcd'",
    "SUBSTRING('abcdef', -2) = 'ef'",
    "ABS(-5) = 5 AND INT('7') = 7 AND BOOL('TRUE') = TRUE AND STRING(5) = '5'",
    "IS_INT('7') AND NOT IS_INT('x') AND IS_BOOL('false')",
    # functions of attributes
    "LENGTH(name) = 4",
    "LENGTH(name) > 3 AND LENGTH(name) <= 4 AND LENGTH(name) != 5",
    "3 < LENGTH(name)",
    "LOWER(name) = 'anna'",
    "UPPER(name) = 'ANNA'",
    "LOWER(name) != 'bert'",
    "LOWER(name) != 'ANNA'",
    "LOWER(name) IN ('bert', 'anna')",
    "TRIM(spaced) = 'a b'",
    "LEFT(name, 2) = 'An'",
    "LEFT(name, 9) = 'Anna'",
    "RIGHT(name, 2) = 'na'",
    "RIGHT(name, 2) != 'an'",
    "SUBSTRING(name, 2, 2) = 'nn'",
    "SUBSTRING(name, 2) = 'nna'",
    "SUBSTRING(name, 2, 9) = 'nna'",
    "SUBSTRING(name, 2, 2) != 'xx'",
    "ABS(less) = 7 AND ABS(less) > 6 AND ABS(less) <= 7",
    "ABS(hop) < 4",
]

DOES_NOT = [
    "id = 'e-2'",
    "NOT (id = 'e-1')",
    "hop > ttl",
    "gone = 1",
    "gone != 1",
    "NOT (gone = 1)",
    "gone",
    "NOT gone",
    "gone LIKE 'a%'",
    "gone NOT LIKE 'a%'",
    "gone IN (1, 2)",
    "gone NOT IN (1, 2)",
    "gone = 1 OR yes",  # an error is not made good
    "no OR gone = 1",
    "gone = 1 XOR yes",
    "LENGTH(gone) < 5",
    "LENGTH(gone) != 5",
    "hop = '3'",  # attributes are not cast
    "hop != '4'",
    "LENGTH(hop) = 1",
    "SUBSTRING(name, 9) = 'x'",
    "SUBSTRING(name, 9) != 'x'",
    "LOWER(name) = 'Anna'",
    "LEFT(name, 2) = 'Anna'",
    "ABS(name) != 5",
    "FALSE",
    "yes XOR yes",
]


@pytest.mark.parametrize("text", PASSES)
def test_what_passes(text: str) -> None:
    found = Filter.from_cesql(text)
    assert found.matches(EVENT)
    assert Filter(str(found)) == found


@pytest.mark.parametrize("text", DOES_NOT)
def test_what_does_not_pass(text: str) -> None:
    assert not Filter.from_cesql(text).matches(EVENT)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CONCAT(name, 'x') = 'y'", "column 1: a filter has no CONCAT"),
        ("id = 'a' AND INT(hop) = 3", "column 14: a filter has no INT"),
        ("IS_INT(hop)", "a filter has no IS_INT"),
        ("hop / 2 = 1", "takes constants only"),
        ("hop % 2 = 1", "takes constants only"),
        ("NOT hop = 1", "write NOT"),
        ("hop = 1 AND ttl = 2 OR id = 'a'", "column 21: .*the same precedence"),
        ("LENGTH(name) = LENGTH(id)", "cannot be compared with each other"),
        ("LENGTH(name) = hop", "with a constant only"),
        ("LENGTH(name) < 5000", "up to 1000"),
        ("FROBNICATE(hop) = 1", "there is no function FROBNICATE"),
        ("LEFT(name) = 'a'", "LEFT takes 2 arguments"),
        ("hop = 3000000000", "32-bit"),
        ("2000000000 + 2000000000 = 1", "32-bit"),
        ("1 / 0 = 1", "division by zero"),
        ("name < 'x'", "'x' is not an integer"),
        ("hop = ", "ends too early"),
        ("hop == 3", "unexpected"),
        ("hop", None),
        ("5", "neither true nor false"),
        ("'abc'", "neither true nor false"),
        ("(" * 300 + "yes" + ")" * 300, "nested more than"),
        ("hop = 1 # 2", "unexpected '#'"),
    ],
)
def test_what_is_refused_and_why(text: str, words: str | None) -> None:
    if words is None:
        assert not Filter.from_cesql(text).matches(EVENT)
        return
    with pytest.raises(FilterSyntaxError, match=words):
        Filter.from_cesql(text)


def test_texts_from_others_are_read_within_a_budget() -> None:
    text = " AND ".join(f"(a{i} = {i} OR b{i} XOR c{i})" for i in range(3))
    with pytest.raises(FilterSyntaxError):
        Filter.received(text, Filter.from_cesql)
    good = Filter.received("yes AND hop < 4", Filter.from_cesql)
    assert good.matches(EVENT)


class _Failed(Exception):
    pass


def _random(random: Random, level: int = 0) -> Any:
    if level > 3 or random.random() < 0.3:
        return random.choice("abc")
    word = random.choice(["NOT", "AND", "OR", "XOR"])
    if word == "NOT":
        return word, _random(random, level + 1)
    return word, _random(random, level + 1), _random(random, level + 1)


def _text(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    if len(tree) == 2:
        return f"NOT ({_text(tree[1])})"
    return f"({_text(tree[1])}) {tree[0]} ({_text(tree[2])})"


def _value(tree: Any, event: dict[str, bool]) -> bool:
    if isinstance(tree, str):
        if tree not in event:
            raise _Failed
        return event[tree]
    left = _value(tree[1], event)
    match tree[0]:
        case "NOT":
            return not left
        case "AND":
            return left and _value(tree[2], event)
        case "OR":
            return left or _value(tree[2], event)
    return left is not _value(tree[2], event)


@given(st.integers(0, 2**32))
@settings(max_examples=48, deadline=None)
def test_logic_goes_from_left_to_right_and_stops_at_errors(seed: int) -> None:
    random = Random(seed)
    tree = _random(random)
    found = Filter.from_cesql(_text(tree))
    for _ in range(6):
        event = {name: random.random() < 0.5 for name in "abc" if random.random() < 0.7}
        try:
            expected = _value(tree, event)
        except _Failed:
            expected = False
        assert found.matches({"id": 1, **event}) is expected, (_text(tree), event)
