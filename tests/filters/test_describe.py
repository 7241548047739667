"""Filters in words: every form of constraint prints, and parses back to an equal filter."""

import pickle
import subprocess
import sys

import pytest

from stentor.filters import Filter


@pytest.mark.spec("R-02.24")
@pytest.mark.parametrize(
    ("text", "printed"),
    [
        # numbers
        ("x = 5", "x = 5"),
        ("x >= 5 and x <= 5", "x = 5"),
        ("x != 5", "x != 5"),
        ("x in (3, 1, 2, 1)", "x in (1, 2, 3)"),
        ("x not in (2, 1)", "x not in (1, 2)"),
        ("x > 1", "x > 1"),
        ("x >= 1 and x < 5", "x >= 1 and x < 5"),
        ("1 <= x and x <= 5", "x between 1 and 5"),
        ("x < 1 or x > 5", "x not between 1 and 5"),
        ("x < 1 or x >= 5", "x < 1 or x >= 5"),
        ("x < 1 or x = 3 or x > 5", "x < 1 or x = 3 or x > 5"),
        ("x >= number 'inf'", "x = number 'inf'"),
        ("x < number 'inf'", "x != number 'inf'"),
        ("x = -0.0", "x = -0.0"),
        ("x = 9223372036854775807", "x = 9223372036854775807"),
        # integers and floats apart
        ("x is int", "x is int"),
        ("x is not int", "x is not number or x is float"),
        ("x is int and x > 3 and x < 5", "x is int and x = 4"),
        ("x is int and x > 3 and x < 9", "x is int and x between 4 and 8"),
        ("x is float or x > 3", "x is float or x >= 4"),
        (
            "x is int and x > 3 or x is float and x < 2",
            "(x is int and x >= 4) or (x is float and x < 2)",
        ),
        # strings and bytes
        ("s = ''", "s = ''"),
        ("s != ''", "s != ''"),
        ("s in ('', 'a')", "s in ('', 'a')"),
        ("s = 'a\0'", "s = 'a\0'"),
        ("s > 'a' and s < 'b'", "s > 'a' and s < 'b'"),
        ("s >= 'a' and s < 'b'", "s prefix 'a'"),
        ("s >= '\U0010ffff'", "s prefix '\U0010ffff'"),
        ("s prefix '\ud7ff'", "s prefix '\ud7ff'"),
        ("s prefix 'a' or s prefix 'b'", "s >= 'a' and s < 'c'"),
        ("s suffix 'x'", "s suffix 'x'"),
        ("s not contains 'it''s'", "s not contains 'it''s'"),
        ("s like 'a%b' and s not suffix 'bb'", "s like 'a%b' and s not suffix 'bb'"),
        ("s like '100!%_' escape '!'", "s like '100\\%_' escape '\\'"),
        ("s like 'a_%'", "s > 'a' and s < 'b'"),
        ("s regex '^a(b|c)$'", "s in ('ab', 'ac')"),
        ("s regex 'x+y'", "s contains 'xy'"),
        ("s regex 'x[yz]'", "s regex 'x[yz]'"),
        ("s suffix 'x' or s < 'b'", "s < 'b' or s suffix 'x'"),
        ("b suffix x'ff'", "b suffix x'ff'"),
        ("b prefix x'ff'", "b prefix x'ff'"),
        ("b prefix x'61'", "b prefix x'61'"),
        ("b = x''", "b = x''"),
        # times
        ("t = time '2024-01-01'", "t = time '2024-01-01T00:00:00Z'"),
        ("t > time '2024-01-01'", "t > time '2024-01-01T00:00:00Z'"),
        ("t <= time '2024-01-01'", "t <= time '2024-01-01T00:00:00Z'"),
        (
            "t between time '2024-01-01' and time '2024-01-02'",
            "t between time '2024-01-01T00:00:00Z' and time '2024-01-02T00:00:00Z'",
        ),
        (
            "t >= time '2024-01-01' and t < time '2024-01-02'",
            "t >= time '2024-01-01T00:00:00Z' and t < time '2024-01-02T00:00:00Z'",
        ),
        (
            "t not between time '2024-01-01' and time '2024-01-02'",
            "t not between time '2024-01-01T00:00:00Z' and time '2024-01-02T00:00:00Z'",
        ),
        ("t >= time '9999-12-31T23:59:59.999999'", "t = time '9999-12-31T23:59:59.999999Z'"),
        # bool
        ("b = true", "b = true"),
        ("b < true", "b = false"),
        # types and presence
        ("exists x", "exists x"),
        ("x is missing", "x is missing"),
        ("x is missing or x = 1", "x is missing or x = 1"),
        ("x is string", "x is string"),
        ("x is not string", "x is not string"),
        ("x is not string or x = 'a'", "x is not string or x = 'a'"),
        ("x is not string and x is not number", "x is not number and x is not string"),
        ("x in (1, 'a', true)", "x = true or x = 1 or x = 'a'"),
        # collections
        ("x has 1", "x has 1"),
        ("x lacks 1", "x lacks 1"),
        ("x overlaps (2, 1)", "x overlaps (1, 2)"),
        ("x disjoint from (1, 2)", "x disjoint from (1, 2)"),
        ("x subset of (1, 'a')", "x subset of (1, 'a')"),
        ("x subset of ()", "x subset of ()"),
        ("x not subset of (1, 2)", "x not subset of (1, 2)"),
        ("x superset of (1, 2)", "x has 1 and x has 2"),
        ("x not superset of (1, 2)", "x lacks 1 or x lacks 2"),
        ("x is collection", "x is collection"),
        ("some x > 1", "some x > 1"),
        ("some x exists", "some x exists"),
        ("not (some x > 1)", "not (some x > 1)"),
        ("some x between 1 and 5", "some x between 1 and 5"),
        ("some x is not number", "some x is not number"),
        ("some x is int or some x > 5", "some x is int or some x > 5"),
        ("some x suffix 'a' or some x prefix 'b'", "some x prefix 'b' or some x suffix 'a'"),
        ("some x > 'a\0' or some x = 'a\0'", "some x > 'a'"),
        # several attributes and alternatives
        ("y = 1 and x = 2", "x = 2 and y = 1"),
        ("x = 1 or y = 1 and z = 2", "x = 1 or (y = 1 and z = 2)"),
        ("", "true"),
        ("x = 1 and x = 2", "false"),
        ("a < b and x = 1", "exists a and exists b and x = 1 and a < b"),
    ],
)
def test_words(text, printed):
    f = Filter(text)
    again = Filter(str(f))
    assert again == f
    assert hash(again) == hash(f)
    assert pickle.loads(pickle.dumps(f)) == f
    assert Filter(printed) == f
    assert str(f) == printed


@pytest.mark.spec("R-02.24")
@pytest.mark.parametrize(
    "text",
    [
        "some s prefix 'a' or some s prefix 'b'",
        "some s regex '^a[^b]'",
        "some t > time '2024-01-01' and some t < time '2024-01-02'",
        "some x not in (1, 5) or some x is string",
        "not (some s prefix 'a' or some s prefix 'b')",
        "some x is not int",
        "some x is not string or some x = 'a'",
        "x subset of (1, 2, 3) and not (some x is float)",
        "not (some x is not number) and some x > 1",
        "x lacks 1 or x lacks 2 or x has 3 and x has 4",
        "not (some s suffix 'a') and some s prefix 'b'",
        "some x is float or x not subset of (true, 'a', 1)",
        "not (x not subset of (1, 2, 'a') or some x is float)",
        "some x <= 1 and (some x is int or x not subset of (2, 1, true))",
        "some s like 'a%b' or not (some s contains 'q')",
    ],
)
def test_elements_of_collections(text):
    f = Filter(text)
    assert Filter(str(f)) == f
    assert hash(Filter(str(f))) == hash(f)
    assert pickle.loads(pickle.dumps(f)) == f


@pytest.mark.spec("R-02.24")
@pytest.mark.parametrize("word", ["and", "or"])
def test_more_patterns_than_automata_can_hold(word):
    """What is not decided keeps its structure, however its parts were put together."""
    parts = [f"s contains 'k{i}'" for i in range(9)] + [f"s not suffix 'q{i}'" for i in range(9)]
    one = Filter(f" {word} ".join(parts))
    two = Filter(f" {word} ".join(reversed(parts)))
    other = {"and": "or", "or": "and"}[word]
    mixed = Filter(f"({one}) {other} (s < 'b' {word} s > 'd')")
    assert one == two
    assert hash(one) == hash(two)
    for f in (one, mixed):
        assert Filter(str(f)) == f
        assert pickle.loads(pickle.dumps(f)) == f


def test_a_pickle_is_good_in_another_process():
    """String hashes differ from process to process; what is unpickled must not bring old ones."""
    texts = [
        "x = 'a'",
        "x has 'a' or y suffix 'b'",
        "x in ('a', 'b') or y lacks 'c' or y lacks 'd'",
    ]
    filters = [Filter(t) for t in texts]
    for f in filters:
        hash(f)
    program = (
        "import pickle, sys; from stentor.filters import Filter\n"
        "filters = pickle.load(sys.stdin.buffer)\n"
        f"for f, text in zip(filters, {texts!r}):\n"
        "    assert f == Filter(text) and hash(f) == hash(Filter(text)), text\n"
        "    assert f in {Filter(text)}, text\n"
    )
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", program],
            input=pickle.dumps(filters),
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(p for p in sys.path if p)},
            check=True,
        )
