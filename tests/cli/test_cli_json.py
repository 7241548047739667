"""Notifications as JSON lines, there and back."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.cli.json_forms import from_json, to_json
from stentor.errors import InvalidNotification, InvalidValue, StentorError
from stentor.model import Notification, NotificationId, ValueType, register_value_type

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_names = st.from_regex(r"[a-z$][a-z0-9$]{0,3}(\.[a-z$]{1,2})?", fullmatch=True)
_scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | _text
    | st.binary(max_size=8)
    | st.datetimes(timezones=st.just(UTC))
)
_lists = st.lists(_scalars, max_size=4) | st.frozensets(_scalars, max_size=4)
_records = st.dictionaries(
    _names.filter(lambda name: "." not in name), _scalars | _lists, max_size=3
)
_values = _scalars | _lists | st.lists(_scalars | _records, max_size=3)
notifications = st.builds(
    Notification,
    st.dictionaries(_names, _values, min_size=1, max_size=4).filter(
        # no name may be a value and the record of another one
        lambda attributes: (
            not any(name.partition(".")[0] in attributes for name in attributes if "." in name)
        )
    ),
    type=st.none() | st.just("quote.stock"),
    subject=st.none() | st.just("a.b"),
    channel=st.none() | st.just("c"),
    payload=st.binary(max_size=8),
    content_type=st.none() | st.just("text/plain"),
    id=st.none() | st.builds(NotificationId, st.just("p"), st.just(1), st.integers(0, 9)),
    time=st.none() | st.datetimes(timezones=st.just(UTC)),
)


class TestForms:
    @pytest.mark.parametrize(
        ("value", "form"),
        [
            ("text", "text"),
            (True, True),
            (1, 1),
            (1.0, 1.0),
            (float("-inf"), {"$number": "-inf"}),
            (b"\x00\xff", {"$bytes": "00ff"}),
            (
                datetime(2026, 1, 1, 12, tzinfo=UTC),
                {"$time": "2026-01-01T12:00:00Z"},
            ),
            (("b", "a", b"x"), ["b", "a", {"$bytes": "78"}]),
            (frozenset({"b", "a"}), {"$set": ["a", "b"]}),
        ],
    )
    def test_each_value_has_one(self, value: object, form: object) -> None:
        line = to_json(Notification({"x": value}))
        assert json.loads(line) == {"x": form}
        assert from_json(line) == Notification({"x": value})

    def test_integers_and_floats_stay_apart(self) -> None:
        assert to_json(Notification({"x": 1.0})) == b'{"x":1.0}'
        assert type(from_json(b'{"x": 1.0}')["x"]) is float
        assert type(from_json(b'{"x": 1}')["x"]) is int

    def test_of_a_registered_type(self) -> None:
        class Version(tuple[int, ...]):
            __slots__ = ()

        register_value_type(
            ValueType(
                "version",
                (Version,),
                format=lambda v: ".".join(map(str, v)),
                parse=lambda text: Version(map(int, text.split("."))),
            )
        )
        n = Notification({"release": Version((1, 2))})
        assert to_json(n) == b'{"release":{"$version":"1.2"}}'
        assert from_json(to_json(n))["release"] == (1, 2)
        with pytest.raises(InvalidValue, match="'x' is not a version"):
            from_json('{"release": {"$version": "x"}}')

    def test_nested_records_are_read_and_flat_names_written(self) -> None:
        n = from_json('{"pos": {"x": 1, "y": {"z": {"$bytes": "00"}}}, "gone": null}')
        assert to_json(n) == b'{"pos.x":1,"pos.y.z":{"$bytes":"00"}}'

    def test_an_attribute_may_be_called_like_a_form(self) -> None:
        n = Notification({"$time": "noon", "a.$bytes": "zz"})
        assert from_json(to_json(n)) == n

    def test_what_goes_beside_the_attributes(self) -> None:
        n = Notification(
            {"x": 1},
            type="quote.stock",
            subject="a/b",
            channel="c",
            payload=b"\x01",
            content_type="text/plain",
            id=NotificationId("p", 1, 2),
            time=datetime(2026, 1, 1, tzinfo=UTC),
        )
        assert json.loads(to_json(n)) == {"x": 1}
        assert json.loads(to_json(n, meta=True)) == {
            "x": 1,
            "_id": "p:1:2",
            "_time": {"$time": "2026-01-01T00:00:00Z"},
            "_type": "quote.stock",
            "_subject": "a/b",
            "_channel": "c",
            "_content_type": "text/plain",
            "_payload": {"$bytes": "01"},
        }
        assert from_json(to_json(n, meta=True)) == n.replace(id=None)

    @given(notifications)
    def test_there_and_back(self, n: Notification) -> None:
        line = to_json(n, meta=True)
        assert b"\n" not in line
        json.loads(line)
        assert from_json(line) == n.replace(id=None)


class TestMistakes:
    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("", "not JSON"),
            ("{", "not JSON"),
            ('{"x": NaN}', "NaN compares with nothing, so it is not a value here"),
            ('{"x": [1, -Infinity]}', r'write \{"\$number": "-inf"\} instead of -Infinity'),
            ('{"x": True}', "write true instead of True"),
            ('{"x": "None", "y": 01}', "not JSON: invalid number"),
            ('{"x": 1', "the text ends too early"),
            ("nope", "not JSON"),
            ("{symbol: 'IBM'}", "keys must be strings.*; names and texts are in double quotes"),
            (b'{"x": "\xff"}', "not JSON"),
            ("[" * 100_000, "not"),
            ("[]", "a notification is a JSON object .*, not an array"),
            ("3", "not a number"),
            ("null", "not null"),
            ("{}", "needs at least one attribute"),
            ('{"_type": 3}', "_type is a text, not a number"),
            ('{"_payload": "x"}', "_payload is bytes"),
            ('{"_time": "2026-01-01"}', "_time is an instant"),
            ('{"_odd": 1}', "reserved"),
            ('{"x": {"$time": "noon"}}', "attribute 'x': 'noon' is not a time"),
            ('{"x": {"$bytes": "0"}}', "attribute 'x': '0' is not a bytes"),
            ('{"x": {"$bytes": 3}}', "attribute 'x': there is no form"),
            ('{"x": {"$color": "red"}}', "attribute 'x': there is no form"),
            ('{"x": {"$set": "a"}}', "write a set as"),
            ('{"x": {"$set": [[1]]}}', "a set holds plain values"),
            ('{"a": {"b": {"$set": 1}}}', "attribute 'a.b': write a set as"),
            ('{"x": 99999999999999999999}', "does not fit a 64-bit integer"),
            ('{"x": [[1]]}', "a collection holds values and records"),
        ],
    )
    def test_say_what_is_wrong(self, line: str | bytes, says: str) -> None:
        with pytest.raises((InvalidNotification, InvalidValue), match=says):
            from_json(line)

    @pytest.mark.parametrize("prefix", ['{"x":', '{"_time":', '{"x":{"$set":', '{"$a":', "["])
    def test_nesting_without_end(self, prefix: str) -> None:
        with pytest.raises(StentorError):
            from_json(prefix * 5000)
