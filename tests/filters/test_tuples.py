"""Positional tuples and templates, against the definition by position."""

from __future__ import annotations

import itertools
from collections import UserDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from stentor import Filter, Notification
from stentor.errors import FilterTypeError, InvalidNotification, InvalidValue
from stentor.filters.addressing import (
    ANY,
    Prefix,
    TupleClass,
    jedi_event,
    jedi_template,
    template,
    tuple_notification,
    tuple_values,
)

VALUES: list[Any] = ["a", "ab", "b", 1, 1.5, True]
FIELDS: list[Any] = [..., "a", 1, int, float, str, int | float, Prefix("a"), Prefix("")]
TUPLES = [t for length in range(3) for t in itertools.product(VALUES, repeat=length)]
TEMPLATES = [t for length in range(3) for t in itertools.product(FIELDS, repeat=length)]


def field_accepts(wanted: Any, value: Any) -> bool:
    if wanted is ...:
        return True
    if isinstance(wanted, Prefix):
        return isinstance(value, str) and value.startswith(str(wanted.text))
    if wanted == int | float:
        return type(value) in (int, float)
    if isinstance(wanted, type):
        return type(value) is wanted
    return (type(wanted) is bool) is (type(value) is bool) and bool(wanted == value)


def template_accepts(fields: tuple[Any, ...], values: tuple[Any, ...]) -> bool:
    return len(fields) == len(values) and all(map(field_accepts, fields, values))


@pytest.mark.spec("R-02.01", "R-02.04")
def test_templates_match_by_position_and_equal_length() -> None:
    for fields in TEMPLATES:
        f = template(*fields)
        for values in TUPLES:
            expected = template_accepts(fields, values)
            assert f.matches(tuple_notification(*values)) is expected, (fields, values)


@pytest.mark.spec("R-02.01", "R-02.04", "02/P5")
def test_relations_between_templates_are_exact() -> None:
    # More values than templates name, so that sets that differ do so on one of them.
    values: list[Any] = [*VALUES, "abc", "c", 1.0, 2.5, 2, b"x"]
    tuples = [t for length in range(3) for t in itertools.product(values, repeat=length)]
    accepted = [
        (t, template(*t), {i for i, v in enumerate(tuples) if template_accepts(t, v)})
        for t in TEMPLATES
    ]
    for p, f, mine in accepted:
        for q, g, theirs in accepted:
            assert f.covers(g) is (mine >= theirs), (p, q)
            assert f.overlaps(g) is (not mine.isdisjoint(theirs)), (p, q)


@pytest.mark.spec("R-02.01", "02/5.1")
def test_the_book_example() -> None:
    n = tuple_notification("StockQuote", "Foo Inc.", 45)
    assert template("StockQuote", "Foo Inc.", ...).matches(n)
    assert not template("StockQuote", "Foo Inc.").matches(n)
    assert not template("StockQuote", "Foo Inc.", ..., ...).matches(n)


@pytest.mark.spec("R-02.01")
def test_a_wildcard_costs_nothing_and_prints_as_nothing() -> None:
    assert template(..., "x", ANY) == Filter("arity = 3 and \"1\" = 'x'")
    assert template() == Filter("arity = 0")
    assert template().matches(tuple_notification())
    f = template("a", int, Prefix("b"))
    assert Filter(str(f)) == f


@pytest.mark.spec("R-02.05", "02/P14")
def test_a_field_more_breaks_every_template_but_no_record_filter() -> None:
    values = ("quote", "IBM", 120)
    assert template(*values).matches(tuple_notification(*values))
    assert not template(*values).matches(tuple_notification(*values, "extra"))
    by_name = Filter("event = 'quote' and symbol = 'IBM' and price = 120")
    record = {"event": "quote", "symbol": "IBM", "price": 120}
    assert by_name.matches(record)
    assert by_name.matches({**record, "extra": 1})


@pytest.mark.spec("R-02.01")
def test_values_come_back_in_order() -> None:
    values = tuple(range(12))
    n = tuple_notification(*values, channel="c")
    assert tuple_values(n) == values
    assert n.channel == "c"
    assert n["10"] == 10
    with pytest.raises(InvalidNotification, match="not a positional notification"):
        tuple_values(Notification({"x": 1}))
    with pytest.raises(InvalidNotification, match="not a positional notification"):
        tuple_values(Notification({"arity": 2, "0": 1}))


@pytest.mark.parametrize("value", [None, {"x": 1}, UserDict({"x": 1})])
def test_fields_are_values_and_never_left_out(value: Any) -> None:
    with pytest.raises(InvalidNotification, match="field 1 of a tuple"):
        tuple_notification("a", value)


def test_fields_that_no_tuple_can_have_are_refused() -> None:
    with pytest.raises(FilterTypeError, match=r"write \.\.\. for any value"):
        template("a", None)
    with pytest.raises(FilterTypeError, match="known types: int, float, bool"):
        template(complex)
    with pytest.raises(FilterTypeError):
        template(int | None)
    with pytest.raises(FilterTypeError):
        template(("a", "b"))


@pytest.mark.spec("R-02.04")
def test_typed_fields_know_every_value_type() -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    samples: dict[type, Any] = {
        bool: True,
        int: 1,
        float: 1.0,
        str: "a",
        bytes: b"a",
        datetime: moment,
        list: [1],
    }
    for kind in samples:
        for other, value in samples.items():
            assert template(kind).matches(tuple_notification(value)) is (kind is other)
    assert template(list[int]).matches(tuple_notification([1]))


# -- JEDI ------------------------------------------------------------------------------------


@pytest.mark.spec("R-02.02")
def test_jedi_fields_are_strings_tested_for_equality_or_prefix() -> None:
    f = jedi_template("open", "report*", "*")
    assert f == template("open", Prefix("report"), str)
    assert f.matches(jedi_event("open", "report", "x"))
    assert f.matches(jedi_event("open", "report.txt", ""))
    assert not f.matches(jedi_event("open", "my report", "x"))
    assert not f.matches(jedi_event("close", "report", "x"))
    assert not f.matches(jedi_event("open", "report"))
    assert jedi_template("*", "*", "*").covers(jedi_template("o*", "rep*", "*"))
    assert jedi_template("o*", "rep*", "*").covers(f)


@pytest.mark.spec("R-02.02")
def test_jedi_has_nothing_but_strings() -> None:
    with pytest.raises(InvalidNotification, match="are strings"):
        jedi_event("open", 3)  # type: ignore[arg-type]
    with pytest.raises(FilterTypeError, match="are strings"):
        jedi_template("open", 3)  # type: ignore[arg-type]


# -- classes ---------------------------------------------------------------------------------


@dataclass
class Quote:
    symbol: str
    price: float
    volume: int = 0
    halted: bool = False
    note: str = field(default="", init=False)


QUOTES = TupleClass(Quote)


@pytest.mark.spec("R-02.03")
def test_order_and_types_come_from_the_class() -> None:
    n = QUOTES.notification(Quote("IBM", 120.5, 7))
    assert tuple_values(n) == ("IBM", 120.5, 7, False)
    assert n.type == "Quote"
    assert QUOTES.instance(n) == Quote("IBM", 120.5, 7)
    assert QUOTES.notification(Quote("IBM", 120), channel="c").channel == "c"


@pytest.mark.spec("R-02.03")
def test_templates_name_the_fields_that_matter() -> None:
    n = QUOTES.notification(Quote("IBM", 120.5, 7))
    assert QUOTES.template().matches(n)
    assert QUOTES.template(symbol="IBM", volume=7).matches(n)
    assert QUOTES.template(symbol=Prefix("I"), price=...).matches(n)
    assert not QUOTES.template(symbol="IBM", volume=8).matches(n)
    assert QUOTES.template(symbol="IBM").covers(QUOTES.template(symbol="IBM", volume=7))
    assert not QUOTES.template(symbol="IBM").matches(tuple_notification("IBM", 120.5, 7, False))


@pytest.mark.spec("R-02.03")
def test_a_value_of_the_wrong_type_is_an_error_where_it_is_written() -> None:
    with pytest.raises(InvalidValue, match=r"volume of Quote is 1\.5; declared as int"):
        QUOTES.notification(Quote("IBM", 1.0, 1.5))  # type: ignore[arg-type]
    with pytest.raises(FilterTypeError, match="symbol of Quote is 3; declared as string"):
        QUOTES.template(symbol=3)
    with pytest.raises(FilterTypeError, match="declared as int"):
        QUOTES.template(volume=Prefix("1"))
    with pytest.raises(FilterTypeError, match="declared as float"):
        QUOTES.template(price=True)
    with pytest.raises(FilterTypeError, match="no field sumbol; it has symbol, price"):
        QUOTES.template(sumbol="IBM")
    with pytest.raises(InvalidNotification, match="is not a Quote"):
        QUOTES.notification("IBM")  # type: ignore[arg-type]
    with pytest.raises(InvalidNotification, match="is not a Quote"):
        QUOTES.instance(tuple_notification("IBM", 120.5, 7, False))


@pytest.mark.spec("R-02.03")
def test_classes_of_one_shape_are_told_apart_by_their_event_type() -> None:
    @dataclass
    class Bid:
        symbol: str
        price: float
        volume: int
        halted: bool

    bids = TupleClass(Bid, "market.bid")
    n = bids.notification(Bid("IBM", 1.0, 1, False))
    assert n.type == "market.bid"
    assert not QUOTES.template(symbol="IBM").matches(n)
    assert bids.template(symbol="IBM").matches(n)


def test_a_class_must_be_a_dataclass_of_known_types() -> None:
    @dataclass
    class Odd:
        maybe: int | None

    with pytest.raises(FilterTypeError, match="not a type that attributes have"):
        TupleClass(Odd)
    with pytest.raises(FilterTypeError, match="is not a dataclass"):
        TupleClass(int)
    with pytest.raises(FilterTypeError, match="is not a dataclass"):
        TupleClass(Quote("a", 1.0))  # type: ignore[arg-type]
