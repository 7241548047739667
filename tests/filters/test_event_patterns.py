"""Event patterns, held against a direct evaluation of the pattern on the JSON event."""

from __future__ import annotations

import fnmatch
import ipaddress
import json
import operator
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor import Filter, Notification
from stentor.errors import FilterSyntaxError, FilterTypeError, InvalidValue
from stentor.filters.event_patterns import MAX_DEPTH, parse_pattern
from stentor.filters.expression import And, Atom, Expression, Or, Quantified
from stentor.matching import BruteForce, Counting, Index
from stentor.model.values import value_type_of

SIGNS = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


# The reference


def matches(pattern: dict[str, Any], event: dict[str, Any]) -> bool:
    for key, wanted in pattern.items():
        if key == "$or":
            if not any(matches(option, event) for option in wanted):
                return False
        elif isinstance(wanted, dict):
            inner = event.get(key)
            if isinstance(inner, list):
                if not one_matches(wanted, inner):
                    return False
            elif not matches(wanted, inner if isinstance(inner, dict) else {}):
                return False
        else:
            value = event.get(key)
            # A field is its leaves: an array has those of its elements, an empty one has none.
            leaves = value if isinstance(value, list) else [] if value is None else [value]
            if not any(asks(test, leaves, value is None) for test in wanted):
                return False
    return True


def one_matches(wanted: dict[str, Any], elements: list[Any]) -> bool:
    """One record has it all, something among it; or no record has what must not be there."""
    there = {key: [t for t in tests if not is_absence(t)] for key, tests in wanted.items()}
    gone = {key: [t for t in tests if is_absence(t)] for key, tests in wanted.items()}
    records = [element if isinstance(element, dict) else {} for element in elements]
    return any(
        matches(wanted, record) and any(matches({key: there[key]}, record) for key in wanted)
        for record in records
    ) or (all(gone.values()) and all(matches(gone, record) for record in records))


def is_absence(test: Any) -> bool:
    return test is None or test == {"exists": False}


def same(left: Any, right: Any) -> bool:
    return isinstance(left, bool) is isinstance(right, bool) and left == right


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def asks(test: Any, leaves: list[Any], null: bool) -> bool:
    match test:
        case None:
            return null
        case {"exists": wanted}:
            return bool(leaves) is wanted
    return any(accepts(test, leaf) for leaf in leaves)


def accepts(test: Any, value: Any) -> bool:
    match test:
        case {"anything-but": dict(inner)}:
            ((word, texts),) = inner.items()
            texts = texts if isinstance(texts, list) else [texts]
            return not any(accepts({word: text}, value) for text in texts)
        case {"anything-but": excluded}:
            excluded = excluded if isinstance(excluded, list) else [excluded]
            return not any(same(value, v) for v in excluded)
        case {"numeric": [sign, bound]}:
            return is_number(value) and SIGNS[sign](value, bound)
        case {"numeric": [lower, low, upper, high]}:
            return is_number(value) and SIGNS[lower](value, low) and SIGNS[upper](value, high)
        case dict():
            return isinstance(value, str) and accepts_text(test, value)
    return same(test, value)


def accepts_text(test: dict[str, Any], value: str) -> bool:
    match test:
        case {"prefix": {"equals-ignore-case": text}}:
            return value.lower().startswith(text.lower())
        case {"suffix": {"equals-ignore-case": text}}:
            return value.lower().endswith(text.lower())
        case {"prefix": text}:
            return value.startswith(text)
        case {"suffix": text}:
            return value.endswith(text)
        case {"equals-ignore-case": text}:
            return value.lower() == str(text).lower()
        case {"wildcard": text}:
            # These tests use no other special characters of fnmatch than the asterisk.
            return re.fullmatch(fnmatch.translate(text), value) is not None
        case {"cidr": block}:
            return within(value, block)
    raise AssertionError(test)


def within(text: str, block: str) -> bool:
    try:
        return ipaddress.ip_address(text) in ipaddress.ip_network(block, strict=False)
    except ValueError:
        return False


# What our expressions mean, directly from the rules of the filter model


def holds(expression: Expression, event: dict[str, Any]) -> bool:
    if isinstance(expression, And):
        return all(holds(part, event) for part in expression.parts)
    if isinstance(expression, Or):
        return any(holds(part, event) for part in expression.parts)
    if isinstance(expression, Quantified):
        found = event.get(expression.name)
        if not isinstance(found, list):
            return False
        inner = [holds(expression.part, e if isinstance(e, dict) else {}) for e in found]
        return any(inner) if expression.quantifier == "any" else all(inner)
    assert isinstance(expression, Atom)
    value: Any = event
    for key in expression.name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    value = None if isinstance(value, dict) else value  # a record is its fields
    if expression.operator in ("exists", "missing"):
        return (value is None) is (expression.operator == "missing")
    if expression.operator.startswith("some "):
        word = expression.operator.removeprefix("some ")
        elements = value if isinstance(value, list) else []
        if word == "exists":
            return bool(elements)
        return any(value_holds(word, v, expression.constants) for v in elements)
    return value is not None and value_holds(expression.operator, value, expression.constants)


def value_holds(word: str, value: Any, constants: tuple[Any, ...]) -> bool:
    kind = "collection" if isinstance(value, list) else value_type_of(value)
    if word in ("is", "is not"):
        return bool((kind == constants[0]) is (word == "is"))
    if word == "subset":
        return isinstance(value, list) and all(element in constants for element in value)
    if kind != value_type_of(constants[0]):
        return False
    if word.startswith("not "):
        return not value_holds(word.removeprefix("not "), value, constants)
    match word:
        case "in":
            return value in constants
        case "prefix":
            return bool(value.startswith(constants[0]))
        case "suffix":
            return bool(value.endswith(constants[0]))
        case "regex":
            return re.search(constants[0].replace("$", r"\Z"), value) is not None
        case "like":
            return like(value, *constants)
        case "in_network":
            return within(value, constants[0])
        case "within":
            low, high, ends = constants
            above = value > low if ends[0] == "(" else value >= low
            return bool(above and (value < high if ends[1] == ")" else value <= high))
        case "!=":
            return bool(value != constants[0])
    return bool(SIGNS[word](value, constants[0]))


def like(value: str, pattern: str, escape: str = "") -> bool:
    regex = ""
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            regex += re.escape(next(characters))
        else:
            regex += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return re.fullmatch(regex, value, re.DOTALL) is not None


# Agreement

addresses = ["10.0.0.1", "10.1.2.3", "2001:db8::1", "2001:DB8:0::2", "::ffff:10.0.0.1"]
blocks = ["10.0.0.0/24", "10.9.9.9/8", "2001:db8::/32", "2001:db8::1/128", "::/0"]
texts = st.sampled_from(["", "a", "ab", "b", "A", "B.", "a%_", *addresses])
numbers = st.sampled_from([-1, 0, 1, 2, 0.5, 5])
scalars = st.one_of(texts, numbers, st.booleans())
wildcards = st.sampled_from(["*", "a*", "*b", "a*b", "*%_", "a", "*.*"])
numeric = st.one_of(
    st.tuples(st.sampled_from(sorted(SIGNS)), numbers).map(list),
    st.tuples(
        st.sampled_from([">", ">="]),
        st.sampled_from([-1, 0, 0.5]),
        st.sampled_from(["<", "<="]),
        st.sampled_from([1, 2, 5]),
    ).map(list),
)


def test_of(word: str, argument: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return argument.map(lambda value: {word: value})


test_of.__test__ = False  # type: ignore[attr-defined]  # a helper, despite its name


def one_or_more(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(items, st.lists(items, min_size=1, max_size=3))


caseless = test_of("equals-ignore-case", texts)
tests = st.one_of(
    scalars,
    st.none(),
    test_of("prefix", st.one_of(texts, caseless)),
    test_of("suffix", st.one_of(texts, caseless)),
    caseless,
    test_of("wildcard", wildcards),
    test_of("numeric", numeric),
    test_of("exists", st.booleans()),
    test_of("cidr", st.sampled_from(blocks)),
    test_of("anything-but", st.one_of(one_or_more(texts), one_or_more(numbers))),
    test_of(
        "anything-but",
        st.one_of(
            *(test_of(word, one_or_more(texts)) for word in ("prefix", "suffix")),
            test_of("equals-ignore-case", one_or_more(texts)),
            test_of("wildcard", one_or_more(wildcards)),
        ),
    ),
)
leaves = st.lists(tests, min_size=1, max_size=3)
objects = st.dictionaries(st.sampled_from(["x", "y"]), leaves, min_size=1, max_size=2)
patterns = st.one_of(
    objects,
    st.builds(lambda inner: {"detail": inner}, objects),
    st.builds(
        lambda fields, options: {**fields, "$or": options},
        objects,
        st.lists(objects, min_size=2, max_size=2),
    ),
)
fields = st.dictionaries(
    st.sampled_from(["x", "y"]),
    st.one_of(scalars, st.lists(scalars, max_size=3)),
    max_size=2,
)
events = st.builds(
    lambda outer, inner: {"id": 1, **outer, "detail": inner},
    fields,
    st.one_of(
        fields.map(lambda inner: {"z": 1, **inner}),
        st.lists(st.one_of(fields, st.integers(0, 1)), max_size=3),
    ),
)


@given(patterns, st.lists(events, min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_matches_what_the_pattern_matches(
    pattern: dict[str, Any], sample: list[dict[str, Any]]
) -> None:
    found = parse_pattern(json.dumps(pattern))
    assert found == parse_pattern(pattern)
    whole = Filter.from_pattern(pattern)
    assert Filter(str(whole)) == whole
    for event in sample:
        assert holds(found, event) is matches(pattern, event), (pattern, event)
        assert whole.matches(event) is matches(pattern, event), (pattern, event)


# Examples


def either(name: str, operator: str, *constants: Any) -> Expression:
    return Or((Atom(name, operator, constants), Atom(name, "some " + operator, constants)))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({"source": ["aws.ec2"]}, either("source", "=", "aws.ec2")),
        ({"x": ["a", "b"]}, either("x", "in", "a", "b")),
        ({"x": ["a", 1, 2]}, Or((either("x", "=", "a"), either("x", "in", 1, 2)))),
        ({"x": [None]}, Or((Atom("x", "missing"), Atom("x", "is", ("null",))))),
        (
            {"x": [{"exists": True}]},
            Or((Atom("x", "is not", ("collection",)), Atom("x", "some exists"))),
        ),
        ({"x": [{"exists": False}]}, Or((Atom("x", "missing"), Atom("x", "subset")))),
        ({"x": [{"cidr": "10.9.9.9/8"}]}, either("x", "in_network", "10.0.0.0/8")),
        (
            {"a": {"b": [1]}},
            Or((either("a.b", "=", 1), Quantified("any", "a", either("b", "=", 1)))),
        ),
        ({"x": [1], "y": [2]}, And((either("x", "=", 1), either("y", "=", 2)))),
        ({"x": [{"prefix": "a"}]}, either("x", "prefix", "a")),
        ({"x": [{"suffix": "a"}]}, either("x", "suffix", "a")),
        ({"x": [{"equals-ignore-case": "a.b"}]}, either("x", "regex", r"(?i)^a\.b$")),
        ({"x": [{"wildcard": "a*b"}]}, either("x", "like", "a%b")),
        ({"x": [{"wildcard": r"a\*_%\\*"}]}, either("x", "like", r"a*\_\%\\%", "\\")),
        ({"x": [{"numeric": ["=", 5]}]}, either("x", "=", 5)),
        (
            {"x": [{"numeric": [">", 0, "<=", 5]}]},
            Or(
                (
                    And((Atom("x", ">", (0,)), Atom("x", "<=", (5,)))),
                    Atom("x", "some within", (0, 5, "(]")),
                )
            ),
        ),
        (
            {"x": [{"anything-but": 5}]},
            Or(
                (
                    Atom("x", "!=", (5,)),
                    And((Atom("x", "is not", ("number",)), Atom("x", "is not", ("collection",)))),
                    Atom("x", "some !=", (5,)),
                    Atom("x", "some is not", ("number",)),
                )
            ),
        ),
        (
            {"$or": [{"x": [1]}, {"y": [2]}]},
            Or((either("x", "=", 1), either("y", "=", 2))),
        ),
    ],
)
def test_translation(pattern: dict[str, Any], expected: Expression) -> None:
    assert parse_pattern(pattern) == expected
    assert parse_pattern(json.dumps(pattern)) == expected


SAMPLE = {
    "detail-type": "EC2 Instance State-change Notification",
    "source": "aws.ec2",
    "time": "2017-10-02T16:24:49Z",
    "resources": ["arn:aws:ec2:us-east-1:123456789012:instance/i-000000aaaaaa00000"],
    "detail": {
        "c-count": 5,
        "d-count": 3,
        "x-limit": 301.8,
        "source-ip": "10.0.0.33",
        "state": "running",
    },
}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ('{"detail": {"state": ["initializing", "running"]}}', True),
        ('{"resources": [{"prefix": "arn:aws:ec2:"}]}', True),
        ('{"time": [{"prefix": "2017-10-02"}], "source": [{"suffix": "ec2"}]}', True),
        ('{"source": [{"equals-ignore-case": "AWS.EC2"}]}', True),
        ('{"detail": {"c-count": [{"numeric": [">", 0, "<=", 5]}]}}', True),
        ('{"detail": {"x-limit": [{"numeric": ["=", 3.018e2]}]}}', True),
        ('{"detail": {"x-limit": [{"anything-but": [100, 200, 300]}]}}', True),
        ('{"detail": {"state": [{"anything-but": {"prefix": "run"}}]}}', False),
        ('{"detail": {"source-ip": [{"cidr": "10.0.0.0/24"}]}}', True),
        ('{"detail": {"source-ip": [{"cidr": "10.0.1.0/24"}]}}', False),
        ('{"detail": {"missing": [{"exists": false}]}, "source": ["aws.ec2"]}', True),
        ('{"source": ["aws.s3"], "$or": [{"time": [{"exists": true}]}, {"z": [1]}]}', False),
    ],
)
def test_example(pattern: str, expected: bool) -> None:
    assert Filter.from_pattern(pattern).matches(SAMPLE) is expected


def test_one_element_has_to_satisfy_both_bounds() -> None:
    found = Filter.from_pattern({"x": [{"numeric": [">", 0, "<", 5]}]})
    assert not found.matches({"x": [-1, 10]})
    assert not found.matches({"x": [0, 5]})
    assert found.matches({"x": [-1, 4.5]})


def test_anything_but_needs_the_field_and_takes_other_types() -> None:
    found = Filter.from_pattern({"x": [{"anything-but": ["a", "b"]}]})
    assert [found.matches({"x": v}) for v in ("a", "c", 1, True)] == [False, True, True, True]
    assert [found.matches({"x": v}) for v in (["a", "b"], ["a", "c"], ["a", 1])] == [
        False,
        True,
        True,
    ]
    assert not found.matches({"y": "c"})


def block_of(kind: Any, bits: int) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda base, length: kind((base, length), strict=False),
        st.integers(0, 2**bits - 1),
        st.integers(0, bits),
    )


networks = st.one_of(block_of(ipaddress.IPv4Network, 32), block_of(ipaddress.IPv6Network, 128))


def spellings(address: Any) -> set[str]:
    plain = {str(address), address.exploded}
    return plain | {text.upper() for text in plain}


@given(networks, st.integers(0, 2**128 - 1))
@settings(max_examples=90, deadline=None)
def test_cidr_accepts_just_the_addresses_of_the_block(network: Any, other: int) -> None:
    found = Filter.from_pattern({"ip": [{"cidr": str(network)}]})
    family = type(network.network_address)
    near = int(network.network_address)
    for number in {other, near, near - 1, near + network.num_addresses - 1, near + 2**40}:
        if 0 <= number < 2**network.max_prefixlen:
            address = family(number)
            for text in spellings(address):
                assert found.matches({"ip": text}) is (address in network)
                assert found.matches({"ip": ["x", text]}) is (address in network)


@given(networks, networks)
@settings(max_examples=90, deadline=None)
def test_blocks_cover_overlap_and_merge_as_sets_of_addresses(one: Any, other: Any) -> None:
    halves = list(one.subnets()) if one.prefixlen < one.max_prefixlen else [one]
    a, b = (Filter(f"ip in_network '{block}'") for block in (one, other))
    same_family = one.version == other.version
    assert a.covers(b) is (same_family and other.subnet_of(one))
    assert a.overlaps(b) is (same_family and one.overlaps(other))
    first, *rest = (Filter(f"ip in_network '{half}'") for half in halves)
    assert first.merge(*rest) == a
    assert Filter(str(a)) == a


def test_cidr_accepts_nothing_but_addresses() -> None:
    found = Filter.from_pattern({"ip": [{"cidr": "10.1.0.0/15"}]})
    accepted = ["10.0.0.0", "10.1.255.255", "10.0.9.99"]
    refused = ["10.2.0.0", "10.0.0.256", "10.0.0.01", "10.0.0", "10.0.0.0.0", "110.0.0.0", "x"]
    assert all(found.matches({"ip": text}) for text in accepted)
    assert not any(found.matches({"ip": text}) for text in refused)
    anywhere = Filter.from_pattern({"ip": [{"cidr": "::/0"}]})
    assert anywhere.matches({"ip": "fe80::1"})
    assert not any(
        anywhere.matches({"ip": text}) for text in ["fe80::1%eth0", "10.0.0.1", "1::2::3"]
    )


def test_an_empty_array_is_a_missing_field() -> None:
    there = Filter.from_pattern({"x": [{"exists": True}]})
    missing = Filter.from_pattern({"x": [{"exists": False}]})
    for event, expected in (({"x": []}, False), ({"y": 1}, False), ({"x": [0]}, True)):
        assert there.matches(event) is expected
        assert missing.matches(event) is not expected
    assert not Filter.from_pattern({"x": [{"anything-but": "a"}]}).matches({"x": []})


RECORDS = {"order": {"lines": [{"sku": "A-17"}, {"sku": "B-4"}]}}


ENGINES = (BruteForce, Counting, Index)


def _answers(found: Filter, event: dict[str, Any]) -> set[bool]:
    """What all engines say, of mappings, notifications and columns."""
    answers = {found.matches(event), found.matches(Notification(event))}
    for make in ENGINES:
        engine = make()
        engine.add("only", found)
        answers.add(bool(list(engine.match(event))))
    compiled = Index((n, found) for n in range(50))
    compiled.compact()
    answers.add(bool(compiled.match(event)))
    answers.add(bool(len(compiled.match_batch([event])[0])))
    answers.add(bool(len(compiled.match_batch(pa.RecordBatch.from_pylist([event]))[0])))
    return answers


@pytest.mark.parametrize(
    ("sku", "expected"),
    [
        (["A-17"], True),
        (["C-1"], False),
        ([{"exists": True}], True),
        ([{"exists": False}], False),
        ([None], False),
        ([None, "B-4"], True),
        ([None, "C-1"], False),
        ([{"anything-but": "A-17"}], True),
    ],
)
def test_an_object_finds_what_is_inside_of_listed_records(sku: list[Any], expected: bool) -> None:
    found = Filter.from_pattern({"order": {"lines": {"sku": sku}}})
    assert _answers(found, RECORDS) == {expected}
    assert Filter(str(found)) == found


@pytest.mark.spec("R-07.76")
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([{"sku": "A", "count": 5}], True),
        ([{"sku": "A", "count": 4}, {"sku": "B", "count": 5}], False),
        ([{"sku": "B", "count": 5}, {"sku": "A", "count": 5, "note": "x"}], True),
        ([{"sku": "A"}, {"count": 5}], False),
        ([], False),
        ({"sku": "A", "count": 5}, True),
    ],
)
def test_the_fields_of_one_object_belong_to_one_element_of_an_array(
    lines: Any, expected: bool
) -> None:
    found = Filter.from_pattern({"lines": {"sku": ["A"], "count": [5]}, "id": [1]})
    assert _answers(found, {"id": 1, "lines": lines}) == {expected}
    assert _answers(found, {"id": 2, "lines": lines}) == {False}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([{"sku": "A"}], True),
        ([{"sku": "A", "gone": 1}], False),
        ([{"sku": "A", "gone": 1}, {"sku": "A"}], True),
        ([{"sku": "A", "gone": 1}, {"sku": "B"}], False),
    ],
)
def test_what_must_not_be_there_must_not_be_in_that_element(lines: Any, expected: bool) -> None:
    found = Filter.from_pattern({"lines": {"sku": ["A"], "gone": [{"exists": False}]}})
    assert _answers(found, {"id": 1, "lines": lines}) == {expected}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"a": {"b": {"c": 1, "d": 2}}}, True),
        ({"a": [{"b": {"c": 1, "d": 2}}]}, True),
        ({"a": {"b": [{"c": 1}, {"c": 1, "d": 2}]}}, True),
        ({"a": [{"b": [{"c": 1}]}, {"b": [{"d": 2}, {"c": 1, "d": 2}]}]}, True),
        ({"a": [{"b": {"c": 1}}, {"b": {"d": 2}}]}, False),
        ({"a": [{"b": [{"c": 1}, {"d": 2}]}]}, False),
    ],
)
def test_arrays_may_lie_at_every_level(event: Any, expected: bool) -> None:
    found = Filter.from_pattern({"a": {"b": {"c": [1], "d": [2]}}})
    assert _answers(found, event) == {expected}


def test_a_pattern_of_very_many_objects_does_not_look_into_arrays() -> None:
    found = Filter.from_pattern({f"o{i}": {"x": [1]} for i in range(9)})
    assert len(found.conjuncts) == 1
    assert found.matches({f"o{i}": {"x": 1} for i in range(9)})
    assert not found.matches({f"o{i}": [{"x": 1}] for i in range(9)})


def test_records_that_no_filter_asks_about_disturb_nobody() -> None:
    found = Filter.from_pattern({"id": [1]})
    event = {"id": 1, **RECORDS}
    for engine in (BruteForce(), Counting(), Index()):
        engine.add("only", found)
        assert list(engine.match(event)) == ["only"]


@pytest.mark.parametrize(
    ("value", "words"), [([None, 1], "no null"), ([[1], 2], "not other collections")]
)
def test_arrays_that_no_notification_can_hold_are_refused_by_name(value: Any, words: str) -> None:
    found = Filter.from_pattern({"x": [1]})
    for look in (found.matches, Notification):
        with pytest.raises(InvalidValue, match=rf"attribute 'x': .*{words}"):
            look({"x": value})


# Mistakes


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ({}, "at $: an empty object"),
        ([], "at $: a pattern is an object"),
        ({"x": 5}, "at $.x: the values of a field are listed in an array\nexpected [5]"),
        ({"x": []}, "at $.x: an empty array"),
        ({"a": {}}, "at $.a: an empty object"),
        ({"": [1]}, "at $: the name of a field"),
        ({"a": {"x": [1, [2]]}}, "at $.a.x[1]: [2] cannot be matched here"),
        ({"x": [{"begins": "a"}]}, "at $.x[0]: there is no test 'begins'\nexpected prefix"),
        ({"x": [{"prefix": "a", "suffix": "b"}]}, "at $.x[0]: a test is an object with one entry"),
        ({"x": [{"prefix": 5}]}, "at $.x[0].prefix: 5 is not a string"),
        ({"x": [{"prefix": {"wildcard": "a"}}]}, "at $.x[0].prefix: there is no test 'wildcard'"),
        ({"x": [{"wildcard": "a**"}]}, "at $.x[0].wildcard: two asterisks"),
        ({"x": [{"wildcard": "a\\b"}]}, "at $.x[0].wildcard: a backslash"),
        ({"x": [{"wildcard": "a\\"}]}, "at $.x[0].wildcard: a backslash"),
        ({"x": [{"numeric": [">"]}]}, "at $.x[0].numeric: numeric takes"),
        ({"x": [{"numeric": ["==", 5]}]}, "at $.x[0].numeric[0]: '==' is not a comparison"),
        ({"x": [{"numeric": ["=", "5"]}]}, 'at $.x[0].numeric[1]: "5" is not a number'),
        ({"x": [{"numeric": ["=", True]}]}, "at $.x[0].numeric[1]: true is not a number"),
        ({"x": [{"numeric": ["<", 5, ">", 0]}]}, "at $.x[0].numeric: a range is a lower bound"),
        ({"x": [{"numeric": [">", 5, "<", 5]}]}, "at $.x[0].numeric: no number lies"),
        ({"x": [{"exists": "yes"}]}, "at $.x[0].exists: exists takes true or false"),
        ({"x": [{"anything-but": []}]}, "at $.x[0].anything-but: an empty array"),
        ({"x": [{"anything-but": [1, "a"]}]}, "at $.x[0].anything-but: anything-but takes only"),
        ({"x": [{"anything-but": None}]}, "at $.x[0].anything-but: null cannot be matched"),
        ({"x": [{"anything-but": {"cidr": "a"}}]}, "at $.x[0].anything-but: there is no test"),
        ({"x": [{"cidr": "10.0.0.0/33"}]}, "at $.x[0].cidr: '10.0.0.0/33' is not a block"),
        ({"x": [{"cidr": "2001:db8::/129"}]}, "at $.x[0].cidr: '2001:db8::/129' is not a block"),
        ({"$or": [{"x": [1]}]}, "at $.$or: $or takes an array of at least two"),
        ({"$or": [{"x": [1]}, 5]}, "at $.$or[1]: $or takes objects"),
        ({"x": [2**63]}, "at $.x[0]: 9223372036854775808 does not fit"),
        ({"x": [float("nan")]}, "at $.x[0]: NaN cannot be"),
        ({"x": ["\ud800"]}, "at $.x[0]: a string holds half a surrogate pair"),
    ],
)
def test_mistake(pattern: Any, message: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_pattern(pattern)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"x": [1, 2}', "line 1, column 12: this is not JSON"),
        ('{"x":\n ["a}', "line 2, column 3: this is not JSON"),
        ('{"x": [1], "x": [2]}', "the field 'x' occurs twice"),
        ('{"x": [NaN]}', "NaN is not JSON"),
        ('{"x": [' + "9" * 5000 + "]}", "this is not JSON"),
        ("", "line 1, column 1: this is not JSON"),
        ("[" * 100_000, "objects are nested"),
        ('{"a":' * 300 + "[1]" + "}" * 300, "at $.a.a"),
        ('{"x": ["' + "a" * (1 << 20) + '"]}', "the pattern has"),
    ],
    ids=range(9),
)
def test_mistake_in_the_text(text: str, message: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_pattern(text)
    assert str(caught.value).startswith(message)


def test_nesting_is_limited() -> None:
    pattern: dict[str, Any] = {"a": [1]}
    for _ in range(MAX_DEPTH - 1):
        pattern = {"a": pattern}
    assert isinstance(parse_pattern(pattern), Or)
    with pytest.raises(FilterSyntaxError, match="levels deep"):
        parse_pattern({"a": pattern})


@pytest.mark.parametrize(
    "test",
    [{"prefix": ""}, {"suffix": ""}, {"wildcard": "*"}, {"prefix": {"equals-ignore-case": ""}}],
)
def test_a_test_that_every_string_passes_wants_a_string(test: dict[str, object]) -> None:
    from stentor import Filter

    found = Filter.from_pattern({"x": [test]})
    assert found.matches({"x": "a"})
    assert found.matches({"x": ["a"]})
    assert not found.matches({"x": 5})
    assert not Filter.from_pattern({"x": [True, False]}).matches({"x": 5})


@pytest.mark.parametrize("block", ["'10.0.0.0/33'", "5", "'fe80::1%eth0/64'", "('::/0', '::/1')"])
def test_a_block_that_is_none_is_a_mistake(block: str) -> None:
    with pytest.raises(FilterTypeError, match="not a block of addresses"):
        Filter(f"ip in_network {block}")
