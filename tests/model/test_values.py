"""What an attribute can hold (R-02.06, R-02.17, R-08.02, trap T9)."""

import doctest
import enum
from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import InvalidValue
from stentor.filters import Filter
from stentor.filters.expression import Atom, Quantified
from stentor.matching import Index
from stentor.model import NULL, Notification, decode, encode, values
from stentor.model.values import (
    COLLECTION,
    INT_MAX,
    INT_MIN,
    ValueType,
    normal,
    register_value_type,
    value_type,
    value_type_names,
    value_type_of,
)


def test_doctests():
    result = doctest.testmod(values)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.spec("R-08.02", "R-08.07")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, "bool"),
        (1, "number"),
        (1.0, "number"),
        ("1", "string"),
        (b"1", "bytes"),
        (datetime(2024, 1, 1, tzinfo=UTC), "time"),
        ((1, 2), COLLECTION),
        ([1, 2], COLLECTION),
        (frozenset({1}), COLLECTION),
        ({1}, COLLECTION),
    ],
)
def test_every_value_has_one_type(value, expected):
    assert value_type_of(value) == expected
    assert value_type_of(normal(value)) == expected


def test_builtin_types_are_listed():
    assert set(value_type_names()) >= {"bool", "number", "string", "bytes", "time"}
    assert value_type("time").ordered
    with pytest.raises(KeyError):
        value_type("no such type")


@pytest.mark.spec("02/T9")
@pytest.mark.parametrize("nan", [float("nan"), -float("nan"), np.float64("nan"), np.float32("nan")])
def test_nan_is_refused(nan):
    with pytest.raises(InvalidValue, match="NaN"):
        normal(nan)
    with pytest.raises(InvalidValue, match="NaN"):
        normal([1.0, nan])


def test_infinities_and_signed_zero_are_kept():
    assert normal(float("inf")) == float("inf")
    assert normal(float("-inf")) == float("-inf")
    assert str(normal(-0.0)) == "-0.0"


@pytest.mark.parametrize("value", [INT_MIN, -1, 0, INT_MAX])
def test_integers_of_64_bits(value):
    assert normal(value) == value
    assert type(normal(value)) is int


@pytest.mark.parametrize("value", [INT_MIN - 1, INT_MAX + 1, np.uint64(INT_MAX + 1)])
def test_larger_integers_are_refused(value):
    with pytest.raises(InvalidValue, match="64-bit"):
        normal(value)


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(InvalidValue, match="position 1"):
        normal("a\ud800")


@pytest.mark.spec("02/T9", "R-08.02")
def test_strings_are_ordered_by_code_point():
    ascending = ["Z", "a", "é", "\uffff", "\U00010000", "😀"]
    assert sorted(map(normal, reversed(ascending))) == ascending


@pytest.mark.spec("02/T9")
@given(st.text(), st.text())
def test_order_of_strings_is_the_order_of_their_utf8_bytes(a, b):
    assert (normal(a) < normal(b)) == (a.encode() < b.encode())


def test_times_become_utc():
    berlin = timezone(timedelta(hours=2))
    stored = normal(datetime(2024, 5, 1, 14, 0, tzinfo=berlin))
    assert stored == datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
    assert stored.tzinfo is UTC
    assert normal(datetime(2024, 5, 1, tzinfo=UTC, fold=1)).fold == 0


class Nowhere(tzinfo):
    """A time zone that does not know its own offset: as good as none."""

    def utcoffset(self, dt):
        return None

    def dst(self, dt):
        return None


class Instant(datetime):
    pass


class NotATime(datetime):
    """As pandas' NaT: an instance of datetime whose year is NaN."""

    @property
    def year(self):
        return float("nan")


@pytest.mark.parametrize(
    "naive", [datetime(2024, 5, 1), datetime(2024, 5, 1, tzinfo=Nowhere()), Instant(2024, 5, 1)]
)
def test_naive_times_are_refused(naive):
    with pytest.raises(InvalidValue, match="no time zone"):
        normal(naive)


def test_times_that_leave_the_calendar_in_utc_are_refused():
    east = timezone(timedelta(hours=14))
    with pytest.raises(InvalidValue, match="years 1 to 9999"):
        normal(datetime(1, 1, 1, tzinfo=east))
    with pytest.raises(InvalidValue, match="years 1 to 9999"):
        value_type("time").parse("9999-12-31T23:59:59-14:00")


def test_subclasses_of_datetime():
    stored = normal(Instant(2024, 5, 1, 1, 2, 3, 4, tzinfo=UTC))
    assert type(stored) is datetime
    assert stored == datetime(2024, 5, 1, 1, 2, 3, 4, tzinfo=UTC)
    with pytest.raises(InvalidValue, match="not an instant"):
        normal(NotATime(2024, 5, 1, tzinfo=UTC))


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


class Word(str, enum.Enum):  # noqa: UP042 - its str() is "Word.HELLO", unlike a StrEnum's
    HELLO = "hello"


class Numbers(list):
    pass


class Pair(NamedTuple):
    first: int
    second: int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Level.HIGH, 3),
        (Word.HELLO, "hello"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"abcd")[::2], b"ac"),
        (Numbers([1, 2]), (1, 2)),
        (Pair(1, 2), (1, 2)),
        ({3, 4}, frozenset({3, 4})),
        ([Level.HIGH, Word.HELLO], (3, "hello")),
        (np.int32(7), 7),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (np.bytes_(b"x"), b"x"),
        (np.array(3), 3),
    ],
)
def test_what_stands_for_a_builtin_value_becomes_one(value, expected):
    stored = normal(value)
    assert stored == expected
    assert type(stored) is type(expected)
    assert value_type_of(value) == value_type_of(expected)


@pytest.mark.parametrize(
    "value",
    [None, object(), Color.RED, 1j, {"a": 1}, OrderedDict(), int],
)
def test_other_objects_are_refused(value):
    with pytest.raises(InvalidValue, match="the types are bool, number"):
        normal(value)
    with pytest.raises(InvalidValue):
        value_type_of(value)


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_numpy_times_have_no_zone_and_never_turn_into_numbers(unit):
    with pytest.raises(InvalidValue, match="no time zone"):
        normal(np.datetime64("2024-01-01", unit))
    with pytest.raises(InvalidValue, match="no time zone"):
        normal(np.timedelta64(5, unit))


def test_numpy_arrays_and_long_floats_are_refused():
    with pytest.raises(InvalidValue):
        normal(np.array([1, 2]))
    with pytest.raises(InvalidValue):
        normal(np.longdouble(1))


@pytest.mark.parametrize("value", [[[1]], [{1}], ({1: 2},), [None], {frozenset({1})}])
def test_collections_hold_plain_values_only(value):
    with pytest.raises(InvalidValue):
        normal(value)


def test_a_list_keeps_order_and_repetition_and_types():
    stored = normal([2, 1, 1, True, 1.0])
    assert stored == (2, 1, 1, 1, 1)
    assert [type(v) for v in stored] == [int, int, int, bool, float]
    assert normal([]) == ()


class Version(tuple):
    __slots__ = ()


class PatchVersion(Version):
    __slots__ = ()


class Code(str):
    __slots__ = ()


class SubCode(Code):
    __slots__ = ()


@pytest.mark.spec("R-02.17", "R-07.22")
def test_a_registered_class_is_no_longer_its_base_class():
    register_value_type(ValueType("values-version", (Version,)))
    register_value_type(ValueType("values-code", (Code,), ordered=False))
    for value, expected in [
        (Version((1, 2)), "values-version"),
        (PatchVersion((1, 2)), "values-version"),
        (Code("x"), "values-code"),
        (SubCode("x"), "values-code"),
    ]:
        assert normal(value) is value
        assert value_type_of(value) == expected
        assert normal([value])[0] is value
    assert not value_type("values-code").ordered


@pytest.mark.spec("R-02.17")
def test_a_subclass_can_become_a_type_of_its_own_after_it_was_used():
    class Base:
        pass

    class Derived(Base):
        pass

    register_value_type(ValueType("values-base", (Base,)))
    assert value_type_of(Derived()) == "values-base"
    register_value_type(ValueType("values-derived", (Derived,)))
    assert value_type_of(Derived()) == "values-derived"
    assert value_type_of(Base()) == "values-base"


def test_registering_again_replaces():
    class Old:
        pass

    class New:
        pass

    register_value_type(ValueType("values-replaced", (Old,)))
    register_value_type(ValueType("values-replaced", (New,)))
    assert value_type_of(New()) == "values-replaced"
    with pytest.raises(InvalidValue):
        normal(Old())


@pytest.mark.parametrize("cls", [int, str, tuple, bytearray, memoryview])
def test_builtin_classes_cannot_be_taken_over(cls):
    before = value_type_of(5)
    with pytest.raises(InvalidValue, match="already belongs"):
        register_value_type(ValueType("values-thief", (cls,)))
    assert "values-thief" not in value_type_names()
    assert value_type_of(5) == before


@pytest.mark.parametrize("name", ["bool", "number", "string", "bytes", "time", COLLECTION])
def test_builtin_names_cannot_be_taken_over(name):
    class Mine:
        pass

    with pytest.raises(InvalidValue, match="built-in"):
        register_value_type(ValueType(name, (Mine,)))
    assert value_type_of(5) == "number"


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_print_and_parse_back(value):
    time = value_type("time")
    assert time.parse(time.format(value)) == value


def test_a_time_without_zone_in_text_is_utc():
    assert value_type("time").parse("2024-05-01T12:00") == datetime(2024, 5, 1, 12, tzinfo=UTC)


@given(st.binary())
def test_bytes_print_and_parse_back(value):
    octets = value_type("bytes")
    assert octets.parse(octets.format(value)) == value


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (Decimal("9.99"), 9.99),
        (Decimal("5"), 5),
        (Decimal("5E+3"), 5000),
        (Decimal("5.00"), 5.0),
        (Decimal("-0.1"), -0.1),
        (Decimal("Infinity"), float("inf")),
        (Decimal(2**63 - 1), 2**63 - 1),
    ],
)
def test_a_decimal_is_the_number_that_is_written_like_it(given, stored):
    assert normal(given) == stored
    assert type(normal(given)) is type(stored)
    assert value_type_of(given) == "number"


@pytest.mark.parametrize("given", ["0.12345678901234567890", "9007199254740993.5", "1E+400"])
def test_a_decimal_that_no_number_is_written_like_is_refused(given):
    with pytest.raises(InvalidValue, match="more digits than a number can tell apart"):
        normal(Decimal(given))


@pytest.mark.parametrize(
    ("value", "name"),
    [(date(2024, 1, 1), "date"), (UUID(int=5), "uuid"), (NULL, "null")],
)
def test_types_that_are_there_from_the_start(value, name):
    assert normal(value) is value
    assert value_type_of(value) == name
    event = Notification({"x": value, "xs": [value, {"y": value}]})
    assert decode(encode(event)) == event
    assert decode(encode(event))["x"] == value
    assert type(decode(encode(event))["x"]) is type(value)
    index = Index([("is", Filter(f"x is {name}")), ("other", Filter("x is number"))])
    index.add("equal", Filter.of_expression(Atom("x", "=", (value,))))
    index.add("deep", Filter.of_expression(Quantified("any", "xs", Atom("y", "=", (value,)))))
    assert sorted(index.match(event)) == ["deep", "equal", "is"]
    equal = Filter.of_expression(Atom("x", "=", (value,)))
    assert Filter(str(equal)) == equal


def test_dates_and_uuids_have_an_order():
    day = Filter("d between date '2026-01-01' and date '2026-01-31'")
    assert day.covers(Filter("d = date '2026-01-15'"))
    assert day.matches({"d": date(2026, 1, 31)})
    assert not day.matches({"d": date(2026, 2, 1)})
    assert not day.matches({"d": datetime(2026, 1, 15, tzinfo=UTC)})
    assert Filter(f"u < uuid '{UUID(int=7)}'").matches({"u": UUID(int=6)})


def test_null_is_neither_missing_nor_anything_else():
    there, gone = {"x": NULL, "y": 1}, {"y": 1, "x": None}
    answers = {
        "x is null": (True, False),
        "x is not null": (False, False),
        "x is missing": (False, True),
        "exists x": (True, False),
        "x != 5": (False, False),
    }
    for text, expected in answers.items():
        assert (Filter(text).matches(there), Filter(text).matches(gone)) == expected, text
    for same in (Filter.from_selector("x IS NULL"), Filter.from_pattern({"x": [None]})):
        assert same.matches(there)
        assert same.matches(gone)
        assert not same.matches({"x": 1})
    assert not Filter.from_selector("x IS NOT NULL").matches(there)
