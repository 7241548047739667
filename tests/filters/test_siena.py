"""SIENA's filters against the set definitions of sheet 08, enumerated on small domains."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor import Filter, Notification
from stentor.errors import FilterSyntaxError, FilterTypeError, InvalidValue
from stentor.filters.siena import Char, SienaAdvertisement, SienaConstraint, SienaSubscription
from stentor.model import decode, encode

Constraint = tuple[str, str, str, Any]


def sub(*constraints: tuple[Any, ...]) -> SienaSubscription:
    return SienaSubscription(constraints)


def adv(*constraints: tuple[Any, ...], adv_repeat: str = "all") -> SienaAdvertisement:
    return SienaAdvertisement(constraints, adv_repeat=adv_repeat)


# -- the set definitions, word for word ------------------------------------------------------

CLASSES = {"integer": int, "float": float, "string": str, "boolean": bool}


def _has_class(value: Any, cls: type) -> bool:
    return type(value) is cls


def satisfies(value: Any, constraint: Constraint) -> bool:
    _, kind, operator, constant = constraint
    if not _has_class(value, CLASSES[kind]):
        return False
    if operator == "any":
        return True
    match operator:
        case "=":
            return bool(value == constant)
        case "<":
            return bool(value < constant)
        case ">":
            return bool(value > constant)
        case "<=":
            return bool(value <= constant)
        case ">=":
            return bool(value >= constant)
        case ">*":
            return bool(value.startswith(constant))
        case _:
            assert operator == "*<"
            return bool(value.endswith(constant))


def in_subscription(n: dict[str, Any], s: list[Constraint]) -> bool:
    return all(c[0] in n and satisfies(n[c[0]], c) for c in s)


def in_advertisement(n: dict[str, Any], a: list[Constraint], repeat: str) -> bool:
    for name, value in n.items():
        named = [c for c in a if c[0] == name]
        quantifier = all if repeat == "all" else any
        if not named or not quantifier(satisfies(value, c) for c in named):
            return False
    return True


#: More values than constants, so that sets that differ do so on one of them.
VALUES: list[Any] = [
    *range(-1, 5),
    *(x / 4 for x in range(-1, 14)),
    False,
    True,
    *("".join(word) for length in range(5) for word in itertools.product("ab", repeat=length)),
    *("\0", "\0a", "\0b", "\0ab", "a\0", "aa\0", "ab\0", "b\0"),
    *("c", "ca", "cb", "cab", "ac", "aca", "acb", "acab", "abc", "bc", "aac"),
]
UNIVERSE: list[dict[str, Any]] = [
    {},
    *[{name: value} for name in "xy" for value in VALUES],
    *[{"x": x, "y": y} for x, y in itertools.product(VALUES, VALUES)],
]

CONSTANTS: dict[str, list[Any]] = {
    "integer": [0, 1, 2, 3],
    "float": [0.0, 1.0, 1.5, 3.0],
    "string": ["", "a", "ab", "b"],
    "boolean": [False, True],
}


@st.composite
def constraints(draw: st.DrawFn) -> Constraint:
    name = draw(st.sampled_from("xy"))
    kind = draw(st.sampled_from(["integer", "integer", "float", "string", "string", "boolean"]))
    operators = ["any", "=", "<", ">", "<=", ">="]
    if kind == "string":
        operators += [">*", "*<"]
    operator = draw(st.sampled_from(operators))
    return (
        name,
        kind,
        operator,
        None if operator == "any" else draw(st.sampled_from(CONSTANTS[kind])),
    )


filters = st.lists(constraints(), max_size=4)
repeats = st.sampled_from(["all", "any"])


def numbers(universe: Iterable[bool]) -> set[int]:
    return {i for i, member in enumerate(universe) if member}


@pytest.mark.spec("R-08.10", "R-08.11", "R-08.02")
@given(filters)
def test_subscriptions_match_as_defined(s: list[Constraint]) -> None:
    subscription = SienaSubscription(s)
    for n in UNIVERSE[::7] + UNIVERSE[:80]:
        assert subscription.matches(n) is in_subscription(n, s)


@pytest.mark.spec("R-08.12", "R-07.21")
@given(filters, repeats)
def test_advertisements_admit_as_defined(a: list[Constraint], repeat: str) -> None:
    advertisement = SienaAdvertisement(a, adv_repeat=repeat)
    for n in UNIVERSE[::7] + UNIVERSE[:80]:
        expected = in_advertisement(n, a, repeat)
        assert advertisement.admits(n) is expected
        if expected:
            assert advertisement.filter.matches(n)


@pytest.mark.spec("R-08.14", "R-08.16", "R-08.17", "07/T-08")
@given(filters, filters)
def test_subscriptions_cover_and_overlap_as_defined(
    s: list[Constraint], t: list[Constraint]
) -> None:
    one, other = SienaSubscription(s), SienaSubscription(t)
    mine = numbers(in_subscription(n, s) for n in UNIVERSE)
    theirs = numbers(in_subscription(n, t) for n in UNIVERSE)
    assert one.covers(other) is (mine >= theirs)
    assert one.overlaps(other) is (not mine.isdisjoint(theirs))
    assert (one == other) is (mine == theirs)
    if mine == theirs:
        assert hash(one) == hash(other)


@pytest.mark.spec("R-08.13", "R-07.21", "R-02.14")
@given(filters, filters, repeats)
def test_advertisement_and_subscription_overlap_as_defined(
    a: list[Constraint], s: list[Constraint], repeat: str
) -> None:
    advertisement = SienaAdvertisement(a, adv_repeat=repeat)
    subscription = SienaSubscription(s)
    expected = any(in_advertisement(n, a, repeat) and in_subscription(n, s) for n in UNIVERSE)
    assert advertisement.overlaps(subscription) is expected
    assert advertisement.overlaps(subscription.filter) is expected
    if expected:  # the plain filter of an advertisement may only err towards overlapping
        assert advertisement.filter.overlaps(subscription.filter)


@pytest.mark.spec("R-08.15", "R-07.21", "07/T-08", "08/8.4")
@given(filters, filters, repeats, repeats)
def test_advertisements_cover_as_defined(
    a: list[Constraint], b: list[Constraint], repeat: str, other_repeat: str
) -> None:
    one = SienaAdvertisement(a, adv_repeat=repeat)
    other = SienaAdvertisement(b, adv_repeat=other_repeat)
    mine = numbers(in_advertisement(n, a, repeat) for n in UNIVERSE)
    theirs = numbers(in_advertisement(n, b, other_repeat) for n in UNIVERSE)
    assert one.covers(other) is (mine >= theirs)
    assert (one == other) is (mine == theirs)


# -- the worked examples ---------------------------------------------------------------------

ALARM = ("event", "string", "=", "alarm")
NOTICE = {"event": "alarm", "date": datetime(1998, 3, 4, 2, 40, 3, tzinfo=UTC)}
A = adv(ALARM, ("date", "date", "any"), ("level", "integer", ">", 0))


@pytest.mark.spec("08/5.1", "07/E-05", "R-08.11")
def test_rows_1_to_4() -> None:
    assert sub(ALARM).matches(NOTICE)
    assert not sub(ALARM, ("level", "integer", ">", 3)).matches(NOTICE)
    within = sub(ALARM, ("level", "integer", ">", 3), ("level", "integer", "<", 7))
    assert not within.matches({"event": "alarm", "level": 10})
    assert within.matches({"event": "alarm", "level": 5})


@pytest.mark.spec("08/5.1", "R-08.13")
def test_rows_5_to_9() -> None:
    assert A.overlaps(sub(ALARM, ("level", "integer", ">", 3)))
    assert not A.overlaps(sub(ALARM, ("level", "integer", ">", 3), ("user", "string", "any")))
    assert A.overlaps(sub(("level", "integer", ">", 5)))
    assert A.overlaps(sub(("level", "integer", "any")))
    assert not A.overlaps(sub(("level", "integer", "<", 0)))


@pytest.mark.spec("08/5.1", "R-08.02", "08/8.9")
def test_row_10_and_the_strictness_of_types() -> None:
    stock = Notification(
        {
            "event": "finance/exchanges/stock",
            "date": datetime(1998, 3, 4, 18, 43, 37, tzinfo=UTC),
            "exchange": "NYSE",
            "name": "Walt Disney Co.",
            "symbol": "DIS",
            "prior": 105.25,
            "change": -4.0,
            "volume": 2260600,
            "earn": 2.04,
        }
    )
    common = [
        ("event", "string", ">*", "finance/exchanges/"),
        ("exchange", "string", "=", "NYSE"),
        ("symbol", "string", "=", "DIS"),
    ]
    assert sub(*common, ("change", "float", "<", 0)).matches(stock)
    assert not sub(*common, ("change", "integer", "<", 0)).matches(stock)


@pytest.mark.spec("08/5.1")
def test_row_11() -> None:
    assert sub(("s", "string", ">*", "www")).matches({"s": "www.elet.polimi.it"})
    assert sub(("s", "string", "*<", "edu")).matches({"s": "www.cs.colorado.edu"})
    assert not sub(("s", "string", ">*", "www")).matches({"s": "ww"})


@pytest.mark.spec("08/5.1")
def test_row_12_exact_merging_of_integers() -> None:
    def merged(kind: str) -> Filter | None:
        parts = [sub(("alarm", kind, op, v)).filter for op, v in (("=", 1), (">", 2), ("=", 2))]
        return parts[0].merge(*parts[1:])

    assert merged("integer") == sub(("alarm", "integer", ">", 0)).filter
    assert merged("float") is None


@pytest.mark.spec("08/5.1", "R-08.16", "08/8.3")
def test_row_13() -> None:
    above = sub(("x", "integer", ">", 3))
    assert above.covers(above)
    between = sub(("x", "integer", ">", 3), ("x", "integer", "<", 5))
    assert between == sub(("x", "integer", "=", 4))
    assert sub(("s", "string", ">*", "ab")).covers(sub(("s", "string", ">*", "abc")))
    assert not sub(("s", "string", ">*", "abc")).covers(sub(("s", "string", ">*", "ab")))


@pytest.mark.spec("08/5.1", "R-08.15", "07/T-08", "08/8.4")
def test_row_14_more_constraints_broaden_advertisements_and_narrow_subscriptions() -> None:
    more = [ALARM, ("level", "integer", ">", 0)]
    less = [("level", "integer", ">", 5)]
    assert adv(*more).covers(adv(*less))
    assert not adv(*less).covers(adv(*more))
    assert not sub(*more).covers(sub(*less))
    assert not sub(*less).covers(sub(*more))


@pytest.mark.spec("07/E-16", "R-07.21")
def test_repeated_constraints_are_conjoined_or_alternatives() -> None:
    both = [("x", "integer", "<", 10), ("x", "integer", ">", 20)]
    either = adv(*both, adv_repeat="any")
    assert either.admits({"x": 5})
    assert either.admits({"x": 25})
    assert not either.admits({"x": 15})
    assert not any(sub(*both).matches({"x": x}) for x in (5, 15, 25))
    assert sub(*both).filter.is_never
    assert not any(adv(*both).admits({"x": x}) for x in (5, 15, 25))
    assert either.covers(adv(*both))
    assert not adv(*both).covers(either)
    assert either.overlaps(sub(("x", "integer", "=", 25)))
    assert not adv(*both).overlaps(sub(("x", "integer", "=", 25)))


# -- degenerate cases ------------------------------------------------------------------------


@pytest.mark.spec("R-08.11", "R-08.12", "R-08.13", "R-08.14", "R-08.15")
def test_the_empty_filters_and_the_notification_without_attributes() -> None:
    everything, nothing = sub(), adv()
    never = sub(("x", "integer", "<", 0), ("x", "integer", ">", 0))
    assert everything.matches({})
    assert everything.matches({"x": 1})
    assert everything.covers(sub(ALARM))
    assert not sub(ALARM).covers(everything)
    assert nothing.admits({})
    assert not nothing.admits({"x": 1})
    assert nothing.overlaps(everything)
    assert not nothing.overlaps(sub(ALARM))
    assert A.admits({})
    assert A.admits({"event": None})
    assert A.admits(Notification({}, channel="c"))
    assert A.covers(nothing)
    assert not nothing.covers(A)
    assert sub(ALARM).covers(never)
    assert not never.covers(sub(ALARM))
    assert not A.overlaps(never)


@pytest.mark.spec("R-08.13", "R-08.15")
def test_a_contradiction_in_an_advertisement_only_removes_the_attribute() -> None:
    a = adv(ALARM, ("x", "integer", "<", 0), ("x", "integer", ">", 0))
    assert a.overlaps(sub(ALARM))
    assert not a.overlaps(sub(("x", "integer", "any")))
    assert a == adv(ALARM)
    assert adv(ALARM).covers(a)
    assert a.admits({"event": "alarm"})
    assert not a.admits({"event": "alarm", "x": 1})


@pytest.mark.spec("R-08.12")
def test_advertisements_do_not_restrict_what_the_system_adds() -> None:
    n = Notification({"event": "alarm"}, channel="c", type="t", subject="s")
    assert A.admits(n)
    assert not A.admits(n.replace(attributes={"event": "alarm", "user": "x"}))


@pytest.mark.spec("R-08.13")
def test_advertisements_against_filters_that_siena_cannot_write() -> None:
    assert A.overlaps(Filter("level is missing and event = 'alarm'"))
    assert A.overlaps(Filter("user = 'x' or level = 3"))
    assert not A.overlaps(Filter("user = 'x' or level = 0"))
    assert A.overlaps(Filter("_channel = 'c' and level > 3"))
    assert not A.overlaps(Filter("level > 3 and level < 4"))
    assert A.overlaps(Filter("level + 1 > 4"))


# -- types -----------------------------------------------------------------------------------


@pytest.mark.spec("R-08.02", "R-08.10", "08/8.9")
def test_types_never_meet() -> None:
    samples: dict[str, Any] = {
        "char": Char("a"),
        "integer": 1,
        "boolean": True,
        "float": 1.0,
        "string": "a",
        "byte-array": b"a",
        "date": datetime(2024, 1, 1, tzinfo=UTC),
    }
    for kind, constant in samples.items():
        for operator in ("any", "=", "<=", ">="):
            constraint = SienaConstraint("x", kind, operator)
            if operator != "any":
                constraint = constraint._replace(value=constant)
            for other, value in samples.items():
                assert sub(constraint).matches({"x": value}) is (kind == other)
        for other in samples:
            mixed = sub(("x", kind, "any"), ("x", other, "any"))
            assert mixed.filter.is_never is (kind != other)
    assert sub(("x", "time", "any")) == sub(("x", "date", "any"))


@pytest.mark.spec("R-08.02")
def test_order_of_booleans_bytes_and_dates() -> None:
    assert sub(("b", "boolean", "<", True)) == sub(("b", "boolean", "=", False))
    assert sub(("b", "boolean", ">", True)).filter.is_never
    assert sub(("b", "boolean", ">=", False)) == sub(("b", "boolean", "any"))
    assert sub(("b", "byte-array", ">*", b"\x01")).matches({"b": b"\x01\xff"})
    assert sub(("b", "byte-array", "*<", b"\xff")).matches({"b": b"\x01\xff"})
    assert not sub(("b", "byte-array", "*<", b"\xff")).matches({"b": b"\xff\x01"})
    day = datetime(2024, 1, 1, tzinfo=UTC)
    assert sub(("d", "date", ">", day)).matches({"d": day.replace(day=2)})
    assert not sub(("d", "date", ">", day)).matches({"d": day})
    assert sub(("s", "string", ">*", "")) == sub(("s", "string", "any"))
    assert sub(("s", "string", "<", "Ä")).matches({"s": "Z"})


CHARACTERS = ["\0", "\1", "a", "b", "c", "\ud7ff", "\ue000", "\U0010fffe", "\U0010ffff"]
#: With those on either side of each, so that every set between two of them has a member here.
NEIGHBORS = {
    chr(code)
    for character in CHARACTERS
    for code in range(ord(character) - 1, ord(character) + 2)
    if 0 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF
}
char_filters = st.lists(
    st.tuples(
        st.just("c"),
        st.just("char"),
        st.sampled_from(["=", "<", ">", "<=", ">="]),
        st.sampled_from(CHARACTERS),
    ),
    max_size=3,
)


@pytest.mark.spec("R-08.17", "R-08.02")
@given(char_filters, char_filters)
def test_characters_are_discrete(s: list[Constraint], t: list[Constraint]) -> None:
    def accepted(given: list[Constraint]) -> set[str]:
        tests = {
            "=": str.__eq__,
            "<": str.__lt__,
            ">": str.__gt__,
            "<=": str.__le__,
            ">=": str.__ge__,
        }
        return {c for c in NEIGHBORS if all(tests[op](c, value) for _, _, op, value in given)}

    one, other = SienaSubscription(s), SienaSubscription(t)
    if s and t:
        assert one.covers(other) is (accepted(s) >= accepted(t))
        assert one.overlaps(other) is (not accepted(s).isdisjoint(accepted(t)))
        assert (one == other) is (accepted(s) == accepted(t))
    assert {c for c in NEIGHBORS if one.matches({"c": Char(c)})} == accepted(s)


@pytest.mark.spec("R-08.02")
def test_a_char_travels_and_prints() -> None:
    f = sub(("c", "char", "<", "c")).filter
    assert Filter(str(f)) == f
    n = decode(encode(Notification({"c": Char("b")})))
    assert type(n["c"]) is Char
    assert f.matches(n)
    with pytest.raises(InvalidValue, match="one character"):
        Char("ab")


# -- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (("x", "integer", "=", 1.0), "integer x = 1.0: the value is not of type integer: a float"),
        (("x", "integer", "=", True), "not of type integer: a bool"),
        (("x", "float", "<", 2**53 + 1), "no float is equal to"),
        (("x", "float", "<", float("nan")), "NaN"),
        (("x", "string", "<", None), "not of type string"),
        (("x", "char", "=", "ab"), "one character"),
        (("x", "char", "=", 1), "not of type char: a int"),
        (("x", "integer", ">*", 1), "works on strings and byte arrays"),
        (("x", "integer", "!=", 1), "there is no operator '!='"),
        (("x", "integer", "any", 1), "any takes no value"),
        (("x", "int", "=", 1), "there is no type 'int'; SIENA has char, integer"),
        (("x", "="), "is not a constraint"),
    ],
)
def test_a_constraint_that_makes_no_sense_is_refused(
    constraint: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(FilterTypeError, match=message.replace("(", r"\(")):
        SienaSubscription([constraint])
    with pytest.raises(FilterTypeError):
        SienaAdvertisement([constraint])


def test_names_and_options_are_checked() -> None:
    with pytest.raises(FilterSyntaxError, match="system attribute"):
        sub(("_channel", "string", "=", "c"))
    with pytest.raises(FilterSyntaxError, match="empty segment"):
        sub(("a..b", "string", "any"))
    with pytest.raises(FilterTypeError, match="'all' or 'any'"):
        adv(adv_repeat="some")
