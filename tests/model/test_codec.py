"""Notifications as bytes: exact round trips, and a reader that trusts nothing."""

import doctest
import functools
import re
import struct
import tracemalloc
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from stentor.errors import DecodeError, InvalidNotification
from stentor.model import (
    INT_MAX,
    INT_MIN,
    MAX_ATTRIBUTES,
    MAX_DEPTH,
    MAX_ELEMENTS,
    MAX_HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_VALUE_BYTES,
    Envelope,
    Notification,
    NotificationId,
    ValueType,
    codec,
    decode,
    decode_header,
    decode_headers,
    decode_many,
    encode,
    encode_batch,
    register_value_type,
    value_type_of,
)
from stentor.model.projection import projected
from stentor.model.stamp import Stamp

ID = NotificationId("sensor-7", 3, 41)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
pack = msgspec.msgpack.encode


@functools.total_ordering
@dataclass(frozen=True)
class Person:
    """The source's example of a value type of one's own."""

    first: str
    second: str
    born: date
    birthplace: str

    def __lt__(self, other):
        return self._key() < other._key()

    def _key(self):
        return self.second, self.first, self.born, self.birthplace


register_value_type(
    ValueType(
        "codec-person",
        (Person,),
        dump=lambda p: msgspec.json.encode([p.first, p.second, p.born, p.birthplace]),
        load=lambda data: Person(
            *msgspec.json.decode(data, type=tuple[str, str, date, str], strict=True)
        ),
    )
)

ADA = Person("Ada", "Lovelace", date(1815, 12, 10), "London")
ALAN = Person("Alan", "Turing", date(1912, 6, 23), "London")


def frame(header: bytes, payload: bytes = b"", version: int = 1) -> bytes:
    return struct.pack(">BII", version, len(header), len(payload)) + header + payload


def header(
    attributes=None, *, type=None, subject=None, channel=None, content=None, id=None, at=None
):
    return pack([{} if attributes is None else attributes, type, subject, channel, content, id, at])


def raw_attributes(body: bytes) -> bytes:
    """A frame whose attribute map is the given bytes."""
    return frame(b"\x97" + body + b"\xc0" * 6)


def raw_value(value: bytes) -> bytes:
    return raw_attributes(b"\x81\xa1x" + value)


def test_doctests():
    result = doctest.testmod(codec)
    assert result.attempted > 0
    assert result.failed == 0


# Round trips

names = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc",), exclude_characters="."),
    min_size=1,
    max_size=12,
).filter(lambda name: name[0] != "_")
people = st.builds(Person, st.text(), st.text(), st.dates(), st.text())
scalars = st.one_of(
    st.booleans(),
    st.integers(INT_MIN, INT_MAX),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.datetimes(timezones=st.just(UTC)),
    people,
)
values = st.one_of(scalars, st.lists(scalars, max_size=4), st.frozensets(scalars, max_size=4))
texts = st.none() | names
notifications = st.builds(
    Notification,
    st.dictionaries(names, values, min_size=1, max_size=6),
    type=texts,
    subject=texts,
    channel=texts,
    payload=st.binary(max_size=50),
    content_type=texts,
    id=st.none()
    | st.builds(NotificationId, names, st.integers(0, INT_MAX), st.integers(0, INT_MAX)),
    time=st.none() | st.datetimes(timezones=st.just(UTC)),
)


@pytest.mark.spec("R-02.06", "R-02.17", "R-08.02", "R-08.03")
@settings(max_examples=200, deadline=None)
@given(notifications)
def test_round_trip(n):
    data = encode(n)
    assert decode(data) == n
    assert encode(decode(data)) == data
    assert list(decode(data)) == list(n)
    assert decode(data).facts == n.facts


@settings(max_examples=50, deadline=None)
@given(st.lists(notifications, min_size=1, max_size=3), st.lists(names, max_size=3), st.data())
def test_attributes_that_nobody_wants_are_left_out_of_the_bytes(events, others, data):
    some = data.draw(st.sets(st.sampled_from(sorted({name for n in events for name in n}))))
    wanted = [*some, *others]
    found = projected([encode(n) for n in events], wanted)
    for n, item in zip(events, found, strict=True):
        left = {name: value for name, value in n.items() if name in wanted}
        if left or n.type or n.subject or n.channel:
            assert decode(item) == n.replace(attributes=left)


def test_one_event_that_has_more_among_many_is_found_by_chance_only():
    """What it costs to look at each would be in vain for most journals."""
    narrow, wide = (encode(Notification({"x": 1, **more})) for more in ({}, {"y": 2}))
    assert projected([narrow] * 100, ["x"]) == [narrow] * 100
    assert projected([narrow] * 63 + [wide] * 64, ["x"]) == [narrow] * 127


@pytest.mark.spec("02/T9")
@pytest.mark.parametrize(
    "value",
    [
        *(0, 1, -1, 127, 128, -32, -33, 2**32, INT_MIN, INT_MAX),
        *(0.0, -0.0, 1.0, 5e-324, 2.0**63, 1.7976931348623157e308, float("inf"), float("-inf")),
        *(True, False, "", "é😀\x00", "x" * 70_000, b"", b"\xff", b"x" * 70_000),
        *((), (1, 1.0, True), tuple(range(70)), frozenset(), frozenset({1, "1", b"1", 2.5})),
        *(ADA, (ADA, 1), frozenset({ADA, ALAN})),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2200, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
)
def test_values_come_back_exactly(value):
    n = Notification({"x": value})
    back = decode(encode(n))
    assert back == n
    assert type(back["x"]) is type(value)
    assert repr(back["x"]) == repr(n["x"]) or isinstance(value, frozenset)


@pytest.mark.spec("02/T9")
def test_bool_int_and_float_stay_apart():
    n = decode(encode(Notification({"b": True, "i": 1, "f": 1.0, "l": [True, 1, 1.0]})))
    assert [type(n[name]) for name in "bif"] == [bool, int, float]
    assert [type(v) for v in n["l"]] == [bool, int, float]


@pytest.mark.spec("R-02.17")
def test_a_person_is_sent_and_keeps_its_order():
    back = decode(encode(Notification({"who": ALAN})))["who"]
    assert back == ALAN
    assert value_type_of(back) == "codec-person"
    assert back > ADA
    assert not back < ADA


@pytest.mark.spec("02/T9")
def test_order_of_strings_survives():
    ascending = ["Z", "a", "é", "\uffff", "\U00010000", "😀"]
    back = decode(encode(Notification({"x": ascending[::-1]})))["x"]
    assert sorted(back) == ascending


def test_dotted_names_need_no_nesting_on_the_wire():
    n = Notification({"pos": {"x": 1, "y": 2}})
    assert decode(encode(n)) == n


def test_equal_sets_have_equal_bytes():
    a = frozenset(["b", "c", "a", 3, 1])
    b = frozenset([1, 3, "a", "c", "b"])
    assert encode(Notification({"x": a})) == encode(Notification({"x": b}))
    body = encode(Notification({"x": frozenset(["b", "a"])}))
    assert body.index(b"\xa1a") < body.index(b"\xa1b")


def test_largest_of_everything():
    most = Notification({f"x{i}": i for i in range(MAX_ATTRIBUTES)})
    assert decode(encode(most)) == most
    big = Notification({"x": "é" * (MAX_VALUE_BYTES // 2)}, payload=bytes(MAX_PAYLOAD_BYTES))
    assert decode(encode(big)) == big
    deep = Notification({".".join("a" * MAX_DEPTH): 1})
    assert decode(encode(deep)) == deep
    long = Notification({"x": [0] * MAX_ELEMENTS})
    assert decode(encode(long)) == long


# The layout


def test_layout_is_the_documented_one():
    data = encode(Notification({"x": 1}, type="t", id=ID, payload=b"ab"))
    version, h, p = struct.unpack_from(">BII", data)
    assert (version, p, len(data)) == (1, 2, 9 + h + 2)
    assert data[9 + h :] == b"ab"
    assert msgspec.msgpack.decode(data[9 : 9 + h]) == [
        {"x": 1}, "t", None, None, None, ["sensor-7", 3, 41], None
    ]  # fmt: skip


@pytest.mark.spec("R-07.07", "R-08.03")
def test_the_header_is_read_without_the_payload():
    n = Notification(
        {"x": 1, "tags": {"a"}},
        type="quote.stock",
        subject="/s",
        channel="c",
        content_type="text/plain",
        payload=b"payload",
        id=ID,
        time=NOON,
    )
    data = encode(n)
    envelope = decode_header(data)
    assert isinstance(envelope, Envelope)
    assert envelope.attributes == dict(n)
    assert (envelope.type, envelope.subject, envelope.channel) == ("quote.stock", "/s", "c")
    assert (envelope.content_type, envelope.id, envelope.time) == ("text/plain", ID, NOON)
    assert envelope.facts == n.facts
    assert envelope.facts is envelope.facts
    assert envelope.payload_size == 7
    assert envelope.payload == b"payload"
    assert envelope.encoded is data
    assert envelope.notification() == n


@pytest.mark.spec("R-07.07")
def test_reading_the_header_does_not_copy_the_payload():
    data = encode(Notification({"x": 1}, payload=bytes(2**22)))
    decode_header(data)
    tracemalloc.start()
    try:
        decode_header(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**16


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind):
    n = Notification({"x": 1, "b": b"1", "s": {"é", 2}, "who": ADA}, payload=b"p", id=ID)
    back = decode(kind(encode(n)))
    assert back == n
    assert type(back.payload) is bytes
    assert type(back["b"]) is bytes


# What cannot be sent


def test_a_header_that_is_too_large_cannot_be_sent():
    n = Notification({f"x{i}": "a" * MAX_VALUE_BYTES for i in range(5)})
    with pytest.raises(InvalidNotification, match=f"at most {MAX_HEADER_BYTES}"):
        encode(n)


class Unsendable:
    pass


class Misdumped:
    pass


class Huge:
    pass


def test_types_without_a_wire_form_cannot_be_sent():
    register_value_type(ValueType("codec-unsendable", (Unsendable,)))
    with pytest.raises(InvalidNotification, match=r"'x'.*register the type with dump and load"):
        encode(Notification({"x": Unsendable()}))
    register_value_type(
        ValueType(
            "codec-misdumped", (Misdumped,), dump=lambda v: "text", load=lambda b: Misdumped()
        )
    )
    with pytest.raises(InvalidNotification, match="not bytes"):
        encode(Notification({"x": [Misdumped()]}))
    register_value_type(
        ValueType("codec-huge", (Huge,), dump=lambda v: bytes(2**20 + 1), load=lambda b: Huge())
    )
    with pytest.raises(InvalidNotification, match=f"at most {MAX_VALUE_BYTES}"):
        encode(Notification({"x": Huge()}))


# What is refused


def load_badly(data):
    raise KeyError("not even a ValueError")


class Stubborn:
    pass


register_value_type(ValueType("codec-stubborn", (Stubborn,), dump=lambda v: b"", load=load_badly))
register_value_type(
    ValueType("codec-liar", (type("Liar", (), {}),), dump=lambda v: b"", load=lambda b: 5)
)


def custom(name, dump):
    return Ext(2, pack([name, dump]))


GOOD = header({"x": 1})

REFUSED = {
    "nothing": b"",
    "prefix cut": b"\x01\x00\x00\x00\x00\x00\x00\x00",
    "no header": frame(b""),
    "header of one byte": frame(b"\x97"),
    "version 0": frame(GOOD, version=0),
    "version 2": frame(GOOD, version=2),
    "trailing byte": frame(GOOD) + b"\x00",
    "payload missing": frame(GOOD, b"abc")[:-1],
    "header cut": struct.pack(">BII", 1, len(GOOD) - 1, 0) + GOOD[:-1],
    "header longer than its content": frame(GOOD + b"\x00"),
    "header size beyond the data": struct.pack(">BII", 1, 2**31, 0) + GOOD,
    "header size at its maximum": struct.pack(">BII", 1, 2**32 - 1, 0) + GOOD,
    "payload size beyond the data": struct.pack(">BII", 1, len(GOOD), 2**31) + GOOD,
    "header not an array": frame(pack({"x": 1})),
    "six items": frame(pack([{"x": 1}] + [None] * 5)),
    "eight items": frame(pack([{"x": 1}] + [None] * 7)),
    "array of seven in a longer form": frame(b"\xdc\x00\x07" + GOOD[1:]),
    "attributes not a map": frame(pack([["x"]] + [None] * 6)),
    "attributes nil": frame(pack([None] * 7)),
    "empty": frame(header()),
    "empty but for a payload": frame(header(content="text/plain"), b"abc"),
    "name twice": raw_attributes(b"\x82\xa1x\x01\xa1x\x02"),
    "name twice, 16-bit map": raw_attributes(b"\xde\x00\x02\xa1x\x01\xa1x\x02"),
    "name twice, 32-bit map": raw_attributes(b"\xdf\x00\x00\x00\x02\xa1x\x01\xa1x\x02"),
    "map of 4 billion": raw_attributes(b"\xdf\xff\xff\xff\xff\xa1x\x01"),
    "array of 4 billion": raw_value(b"\xdd\xff\xff\xff\xff"),
    "string of 4 billion": raw_value(b"\xdb\xff\xff\xff\xff"),
    "binary of 4 billion": raw_value(b"\xc6\xff\xff\xff\xff"),
    "extension of 4 billion": raw_value(b"\xc9\xff\xff\xff\xff\x01"),
    "set of 4 billion": raw_value(b"\xd7\x01\xdd\xff\xff\xff\xff\x00\x00\x00"),
    "unused code": raw_value(b"\xc1"),
    "invalid UTF-8 in a value": raw_value(b"\xa1\xff"),
    "surrogate in a value": raw_value(b"\xa3\xed\xa0\x80"),
    "invalid UTF-8 in a name": raw_attributes(b"\x81\xa1\xff\x01"),
    "invalid UTF-8 in the type": frame(b"\x97\x80\xa1\xff" + b"\xc0" * 5),
    "name is a number": raw_attributes(b"\x81\x01\x01"),
    "name is binary": raw_attributes(b"\x81\xc4\x01x\x01"),
    "name is nil": raw_attributes(b"\x81\xc0\x01"),
    "name is empty": frame(header({"": 1})),
    "name with empty segment": frame(header({"a..b": 1})),
    "name with control character": frame(header({"a\n": 1})),
    "name too long": frame(header({"x" * 256: 1})),
    "name much too long": frame(header({"x" * 2_000_000: 1})),
    "name too deep": frame(header({".".join("a" * (MAX_DEPTH + 1)): 1})),
    "reserved name": frame(header({"_type": "t"})),
    "value and record": frame(header({"a": 1, "a.b": 2})),
    "too many attributes": frame(header({f"x{i}": 1 for i in range(MAX_ATTRIBUTES + 1)})),
    "nil value": frame(header({"x": None})),
    "nested map": frame(header({"x": {"y": 1}})),
    "NaN": frame(header({"x": float("nan")})),
    "32-bit NaN": raw_value(b"\xca\x7f\xc0\x00\x00"),
    "NaN in a list": frame(header({"x": [1.0, float("nan")]})),
    "NaN in a set": frame(header({"x": Ext(1, pack([float("nan")]))})),
    "integer beyond 64 bits": frame(header({"x": 2**63})),
    "integer beyond 64 bits in a list": frame(header({"x": [2**64 - 1]})),
    "list in a list": frame(header({"x": [[1]]})),
    "map in a list": frame(header({"x": [{}]})),
    "nil in a list": frame(header({"x": [None]})),
    "set in a list": frame(header({"x": [Ext(1, pack([1]))]})),
    "set in a set": frame(header({"x": Ext(1, pack([Ext(1, pack([1]))]))})),
    "list in a set": frame(header({"x": Ext(1, pack([[1]]))})),
    "set of nothing": frame(header({"x": Ext(1, b"")})),
    "set that is a map": frame(header({"x": Ext(1, pack({"a": 1}))})),
    "set with a tail": frame(header({"x": Ext(1, pack([1]) + b"\x01")})),
    "set with an element twice": frame(header({"x": Ext(1, pack([1, 1.0]))})),
    "too many elements together": frame(header({"x": [0] * MAX_ELEMENTS, "y": Ext(1, pack([0]))})),
    "too many elements": frame(header({"x": [0] * (MAX_ELEMENTS + 1)})),
    "too many elements in a set": frame(header({"x": Ext(1, pack([0] * (MAX_ELEMENTS + 1)))})),
    "string too long": frame(header({"x": "a" * (MAX_VALUE_BYTES + 1)})),
    "string too long in UTF-8": frame(header({"x": "é" * (MAX_VALUE_BYTES // 2) + "a"})),
    "bytes too long": frame(header({"x": bytes(MAX_VALUE_BYTES + 1)})),
    "element too long": frame(header({"x": [bytes(MAX_VALUE_BYTES + 1)]})),
    "header too long": frame(header({f"x{i}": bytes(2**20) for i in range(5)})),
    "payload too long": frame(GOOD, bytes(MAX_PAYLOAD_BYTES + 1)),
    "deep nesting of lists": raw_value(b"\x91" * 100_000),
    "deep nesting of maps": raw_value(b"\x81\xa1x" * 100_000),
    "deep nesting in a set": frame(header({"x": Ext(1, b"\x91" * 100_000)})),
    "unknown extension": frame(header({"x": Ext(77, b"abc")})),
    "unknown negative extension": frame(header({"x": Ext(-77, b"abc")})),
    "unknown value type": frame(header({"x": custom("never registered", b"")})),
    "built-in value type as extension": frame(header({"x": custom("number", b"1")})),
    "value type that is not a string": frame(header({"x": Ext(2, pack([5, b""]))})),
    "value type without dump": frame(header({"x": Ext(2, pack(["codec-person"]))})),
    "value type with too much": frame(header({"x": Ext(2, pack(["codec-person", b"", 1]))})),
    "load fails": frame(header({"x": custom("codec-person", b"{}")})),
    "load raises anything": frame(header({"x": custom("codec-stubborn", b"")})),
    "load returns another type": frame(header({"x": custom("codec-liar", b"")})),
    "dump too long": frame(header({"x": custom("codec-person", bytes(MAX_VALUE_BYTES + 1))})),
    "timestamp of 5 bytes": frame(header({"x": Ext(-1, b"12345")})),
    "timestamp without bytes": frame(header({"x": Ext(-1, b"")})),
    "timestamp after the year 9999": frame(
        header({"x": Ext(-1, struct.pack(">Iq", 0, 253402300800))})
    ),
    "timestamp before the year 1": frame(header({"x": Ext(-1, struct.pack(">Iq", 0, -(2**60)))})),
    "timestamp with 2 seconds of nanoseconds": frame(
        header({"x": Ext(-1, struct.pack(">Iq", 2_000_000_000, 0))})
    ),
    "type is a number": frame(header({"x": 1}, type=5)),
    "type is empty": frame(header({"x": 1}, type="")),
    "type with empty segment": frame(header({"x": 1}, type="a..b")),
    "subject too long": frame(header({"x": 1}, subject="s" * 1025)),
    "channel is empty": frame(header({"x": 1}, channel="")),
    "content type with control character": frame(header({"x": 1}, content="a\x00")),
    "id of two": frame(header({"x": 1}, id=["p", 1])),
    "id of four": frame(header({"x": 1}, id=["p", 1, 2, 3])),
    "id is a string": frame(header({"x": 1}, id="p:1:2")),
    "id without producer": frame(header({"x": 1}, id=["", 1, 2])),
    "id with negative epoch": frame(header({"x": 1}, id=["p", -1, 2])),
    "id with huge sequence": frame(header({"x": 1}, id=["p", 1, 2**64 - 1])),
    "id with float": frame(header({"x": 1}, id=["p", 1, 2.0])),
    "id with bool": frame(header({"x": 1}, id=["p", True, 2])),
    "time is a string": frame(header({"x": 1}, at="2024-05-01T12:00:00Z")),
    "time is a number": frame(header({"x": 1}, at=5)),
    "time is an unknown extension": frame(header({"x": 1}, at=Ext(5, b""))),
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_refused(data):
    for _ in range(2):
        with pytest.raises(DecodeError):
            decode(data)
        with pytest.raises(DecodeError):
            decode_header(data)


def test_the_hostile_frames_are_hostile_only_where_they_say_so():
    assert dict(decode(frame(GOOD))) == {"x": 1}
    assert dict(decode(raw_value(b"\xcd\x00\x05"))) == {"x": 5}  # a longer form than needed
    assert dict(decode(raw_attributes(b"\xdf\x00\x00\x00\x01\xa1x\x01"))) == {"x": 1}
    person = msgspec.json.encode([ADA.first, ADA.second, ADA.born, ADA.birthplace])
    n = decode(frame(header({"x": custom("codec-person", person)}, id=["p", 1, 2], at=NOON)))
    assert (n["x"], n.id, n.time) == (ADA, NotificationId("p", 1, 2), NOON)


def test_refusals_say_why():
    for data, message in [
        (REFUSED["version 2"], "version 2"),
        (REFUSED["name twice"], "twice"),
        (REFUSED["value and record"], "both a value and the record"),
        (REFUSED["NaN"], "NaN"),
        (REFUSED["trailing byte"], "truncated, or followed"),
        (REFUSED["unknown value type"], "register it before decoding"),
        (REFUSED["too many attributes"], str(MAX_ATTRIBUTES)),
        (REFUSED["header too long"], str(MAX_HEADER_BYTES)),
        (REFUSED["payload too long"], str(MAX_PAYLOAD_BYTES)),
    ]:
        with pytest.raises(DecodeError, match=message):
            decode(data)


def test_what_is_not_even_bytes_is_refused():
    for other in ("text", None, 5, [1, 2]):
        with pytest.raises(DecodeError):
            decode(other)


def test_declared_sizes_allocate_nothing():
    tracemalloc.start()
    try:
        for name in REFUSED:
            if "billion" in name or "size" in name:
                with pytest.raises(DecodeError):
                    decode(REFUSED[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_time_finer_than_a_microsecond_is_dropped():
    exact = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=5)
    stamp = Ext(-1, struct.pack(">Iq", 5_400, 0))
    assert decode(frame(header({"x": stamp})))["x"] == exact


# Batches

EVERYTHING = encode(
    Notification(
        {"i": 1, "f": 1.5, "s": "é", "b": b"1", "t": NOON, "l": [1, "a"], "m": {1, "a"}, "w": ADA},
        type="a.b",
        subject="s",
        channel="c",
        content_type="t",
        id=ID,
        time=NOON,
        payload=b"pp",
    )
)
PLAIN = encode(Notification({"symbol": "IBM", "price": 9.5, "volume": 7}, id=ID, time=NOON))
#: One that says how it is to be handled.
URGENT = encode(Notification({"symbol": "IBM", "price": 9.5}, id=ID, expires=NOON, priority=7))


def read_carefully(data) -> Envelope | str:
    """What the reader makes of it that takes no short cuts: an envelope, or why it refuses."""
    try:
        return codec._read(data)
    except DecodeError as error:
        return str(error)
    except Exception as error:
        return f"not an encoded notification: {error}"


def parts(envelope: Envelope):
    return (
        [(name, type(value), repr(value)) for name, value in envelope.attributes.items()],
        *(envelope.type, envelope.subject, envelope.channel, envelope.content_type),
        *(type(envelope.id), envelope.id, envelope.time),
        *(envelope.payload, envelope.payload_size, envelope.facts, envelope.encoded),
        envelope.handling,
    )


def without_places(text: str) -> str:
    """Without where objects are in memory."""
    return re.sub(" at 0x[0-9a-f]+", "", text)


def assert_says_what_all_do(found: codec.Headers) -> None:
    assert found.handled == any(e.handling is not None for e in found)
    assert found.stamped == any(e.stamp is not None for e in found)
    assert found.sources == {e.id and (e.id.producer, e.id.epoch) for e in found}


def same_as_carefully(data) -> None:
    """Batches are read the same way, wherever the item stands and whatever was read before."""
    if data[:1] == b"S":
        return  # read as a stamp, by `_read_stamped`
    expected = read_carefully(data)
    for before in ([], [PLAIN], [PLAIN, EVERYTHING, PLAIN]):
        items = [*before, data, PLAIN]
        if isinstance(expected, str):
            with pytest.raises(DecodeError) as refusal:
                decode_headers(items)
            assert refusal.value.index == len(before)
            assert without_places(str(refusal.value)) == without_places(expected)
            with pytest.raises(DecodeError):
                decode_many(items)
        else:
            found = decode_headers(items)
            assert len(found) == len(items)
            assert parts(found[len(before)]) == parts(expected)
            assert_says_what_all_do(found)
            assert decode_many(items)[len(before)] == expected.notification()


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_batches_refuse_the_same_and_say_which(data):
    same_as_carefully(data)


@settings(max_examples=100, deadline=None)
@given(st.lists(notifications, max_size=5))
def test_batches_are_equal_to_single_ones(ns):
    items = encode_batch(ns)
    assert items == [encode(n) for n in ns]
    assert decode_many(items) == ns
    assert_says_what_all_do(decode_headers(items))
    stamp = Stamp(1, "ann", ("=desk",)).prefix
    assert_says_what_all_do(decode_headers([stamp + data for data in items]))
    assert [parts(e) for e in decode_headers(items)] == [parts(read_carefully(d)) for d in items]
    assert [parts(e) for e in decode_headers(tuple(items))] == [
        parts(decode_header(d)) for d in items
    ]


numbers = st.integers(INT_MIN, INT_MAX) | st.floats(allow_nan=False) | st.booleans()
plain_notifications = st.builds(
    Notification,
    st.dictionaries(names, numbers | st.text(), min_size=1, max_size=4),
    type=texts,
    payload=st.binary(max_size=5),
    id=st.none() | st.builds(NotificationId, names, st.integers(0, 9), st.integers(0, 9)),
    time=st.none() | st.datetimes(timezones=st.just(UTC)),
    priority=st.integers(0, 9) | st.just(4),
    expires=st.none() | st.datetimes(timezones=st.just(UTC)),
)


@settings(max_examples=300, deadline=None)
@given(st.data(), plain_notifications)
def test_mutated_plain_encodings_in_batches(data, n):
    valid = encode(n)
    same_as_carefully(valid)
    same_as_carefully(mutated(valid, data.draw))
    h = struct.unpack_from(">BII", valid)[1]
    same_as_carefully(frame(mutated(valid[9 : 9 + h], data.draw), n.payload))


@pytest.mark.parametrize("plain", [PLAIN, URGENT])
def test_every_single_bit_of_a_plain_one_in_batches(plain):
    for at in range(len(plain)):
        for bit in range(8):
            body = bytearray(plain)
            body[at] ^= 1 << bit
            same_as_carefully(bytes(body))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do_in_batches(kind):
    for data in (PLAIN, EVERYTHING):
        items = [kind(data), kind(data)]
        assert decode_many(items) == [decode(data)] * 2
        assert decode_headers(items)[1].encoded is items[1]


def test_nothing_is_an_empty_batch():
    assert decode_headers([]) == decode_many([]) == encode_batch([]) == []


def test_memories_of_the_reader_are_bounded():
    for i in range(6_000):
        n = Notification(
            {f"name-{i}": 1}, payload=bytes(i % 1_000), id=NotificationId(f"p{i}", 1, 1)
        )
        assert decode_headers([encode(n)])[0].id == n.id
    decode_headers([memoryview(PLAIN)] * 2)
    assert all(type(start) is bytes for start in codec._frames)
    assert len(codec._frames) <= 4_096
    assert len(codec.plain_names) <= 4_096
    assert len(codec.good_producers) <= 4_096


def test_an_array_of_more_than_seven_cannot_reach_what_is_not_the_header():
    body = pack([{"x": 1}, None, None, None, None, None, None, b"other bytes", 9, {"x": 2}])
    assert body[0] != 0x97
    same_as_carefully(frame(body))
    same_as_carefully(frame(b"\x97" + body[1:]))


# Fuzzing


def survives(data: bytes) -> None:
    """Either a notification that the constructor accepts, or DecodeError; nothing else."""
    same_as_carefully(data)
    try:
        n = decode(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            decode_header(data)
        return
    assert n.replace(attributes=dict(n)) == n  # the constructor accepts the same
    assert decode(encode(n)) == n
    assert decode_header(data).facts == n.facts


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
@example(b"\x01" + b"\x00" * 8)
def test_random_bytes(data):
    survives(data)
    survives(frame(data))
    survives(frame(b"\x97" + data))
    survives(raw_attributes(data))
    survives(raw_value(data))


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.builds(Ext, st.sampled_from([-1, 0, 1, 2, 3]), st.binary(max_size=12)),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    | st.builds(lambda code, body: Ext(code, pack(body)), st.sampled_from([1, 2]), inner),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(junk, min_size=6, max_size=8), st.dictionaries(st.text(max_size=4), junk))
def test_well_formed_messagepack_of_the_wrong_shape(rest, attributes):
    survives(frame(pack([attributes, *rest])))
    survives(frame(pack(rest)))
    survives(frame(pack([attributes] + [None] * 6)))


def mutated(data: bytes, draw) -> bytes:
    body = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(body) - 1)))
        match draw(st.sampled_from(["flip", "cut", "drop", "insert", "splice", "set"])):
            case "flip" if body:
                body[at] ^= 1 << draw(st.integers(0, 7))
            case "set" if body:
                body[at] = draw(st.integers(0, 255))
            case "cut":
                del body[at:]
            case "drop":
                del body[at : at + draw(st.integers(1, 4))]
            case "insert":
                body[at:at] = draw(st.binary(min_size=1, max_size=4))
            case "splice":
                start = draw(st.integers(0, len(data)))
                body[at:at] = data[start : start + draw(st.integers(1, 20))]
    return bytes(body)


@settings(max_examples=250, deadline=None)
@given(st.data(), notifications)
def test_mutated_encodings(data, n):
    valid = encode(n)
    survives(mutated(valid, data.draw))
    # The same inside of correct sizes, so that the change reaches the decoder of the header.
    h = struct.unpack_from(">BII", valid)[1]
    survives(frame(mutated(valid[9 : 9 + h], data.draw), n.payload))


def test_every_truncation():
    for size in range(len(EVERYTHING)):
        with pytest.raises(DecodeError):
            decode(EVERYTHING[:size])


def test_every_single_bit():
    for at in range(len(EVERYTHING)):
        for bit in range(8):
            body = bytearray(EVERYTHING)
            body[at] ^= 1 << bit
            survives(bytes(body))
