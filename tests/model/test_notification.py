"""The record model of notifications (R-02.06 to R-02.08, R-07.16, R-08.03)."""

import copy
import doctest
import pickle
from collections import ChainMap
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import InvalidNotification, InvalidValue
from stentor.model import (
    MAX_ATTRIBUTES,
    MAX_DEPTH,
    MAX_ELEMENTS,
    MAX_NAME_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_SUBJECT_BYTES,
    MAX_VALUE_BYTES,
    Notification,
    NotificationId,
    names,
    notification,
)
from stentor.model.event_types import event_types

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
ID = NotificationId("sensor-7", 3, 41)


@pytest.mark.parametrize("module", [notification, names])
def test_doctests(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


# A mapping of attributes


@pytest.mark.spec("R-02.06")
def test_is_a_mapping_of_its_attributes():
    n = Notification({"x": 2, "y": "a"}, type="t")
    assert isinstance(n, Mapping)
    assert dict(n) == {"x": 2, "y": "a"}
    assert dict(Notification({"x": 2})) == {"x": 2}
    assert n["x"] == 2
    assert n.get("x") == 2
    assert n.get("z") is None
    assert n.get("z", 5) == 5
    assert "x" in n
    assert "z" not in n
    assert "type" not in n
    assert "_type" not in n
    assert len(n) == 2
    assert list(n) == list(n.keys()) == ["x", "y"]
    assert list(n.values()) == [2, "a"]
    assert list(n.items()) == [("x", 2), ("y", "a")]
    assert {**n} == dict(n)
    with pytest.raises(KeyError):
        n["z"]


def test_immutable():
    source = {"x": 2, "tags": [1, 2]}
    n = Notification(source)
    source["x"] = 3
    source["tags"].append(3)
    assert dict(n) == {"x": 2, "tags": (1, 2)}
    with pytest.raises(TypeError):
        n["x"] = 3
    for name in ("type", "subject", "channel", "payload", "content_type", "id", "time", "facts"):
        with pytest.raises(AttributeError):
            setattr(n, name, None)
    with pytest.raises(AttributeError):
        n.anything = 1


@pytest.mark.spec("R-02.06")
def test_the_empty_notification_is_refused():
    for nothing in ({}, {"x": None}, {"a": {}}, {"a": {"b": None}}):
        with pytest.raises(InvalidNotification, match="at least one attribute"):
            Notification(nothing)
    with pytest.raises(InvalidNotification, match="at least one attribute"):
        Notification({}, payload=b"x", content_type="text/plain", id=ID, time=NOON)


@pytest.mark.spec("R-02.06", "R-01.39", "R-01.40", "R-01.41")
@pytest.mark.parametrize("part", ["type", "subject", "channel"])
def test_a_type_subject_or_channel_is_content_enough(part):
    n = Notification({}, **{part: "news"})
    assert getattr(n, part) == "news"
    assert len(n) == 0
    assert bool(n)


@pytest.mark.spec("R-02.08")
def test_none_means_absent():
    n = Notification({"x": 1, "y": None, "z": {"a": None, "b": 2}})
    assert dict(n) == {"x": 1, "z.b": 2}
    assert n == Notification({"x": 1, "z.b": 2})
    assert dict(Notification({"a": None, "a.b": 1})) == {"a.b": 1}


# Nested records


@pytest.mark.spec("R-02.07", "R-07.16", "07/E-06")
def test_nested_records_are_flattened():
    assert dict(Notification({"pos": {"x": 1, "y": 2}})) == {"pos.x": 1, "pos.y": 2}
    assert dict(Notification({"a": {"b": {"c": 1}}, "a.b.d": 2})) == {"a.b.c": 1, "a.b.d": 2}
    assert dict(Notification({"a.b": {"c.d": 1}})) == {"a.b.c.d": 1}
    assert dict(Notification({"a": ChainMap({"b": 1})})) == {"a.b": 1}
    assert Notification({"pos": {"x": 1}}) == Notification({"pos.x": 1})


@pytest.mark.spec("R-02.07")
@pytest.mark.parametrize(
    "attributes",
    [
        {"a": 1, "a.b": 2},
        {"a.b": 2, "a": 1},
        {"a": 1, "a.b.c": 2},
        {"x.a": 1, "x": {"a": {"b": 2}}},
        {"a.b": 1, "a.b.c.d": 2},
    ],
)
def test_a_name_is_not_both_value_and_record(attributes):
    for _ in range(2):  # a bad set of names must not be remembered as good
        with pytest.raises(InvalidNotification, match="both a value and the record"):
            Notification(attributes)


@pytest.mark.spec("R-02.07")
def test_common_prefixes_without_a_dot_do_not_clash():
    assert len(Notification({"a": 1, "ab": 2, "ab-c.d": 3})) == 3


@pytest.mark.spec("R-02.06")
@pytest.mark.parametrize(
    "attributes", [{"a.b": 1, "a": {"b": 1}}, {"a": {"b.c": 1, "b": {"c": 2}}}]
)
def test_the_same_name_twice_is_refused(attributes):
    with pytest.raises(InvalidNotification, match="given twice"):
        Notification(attributes)


def nested(depth):
    record = 1
    for _ in range(depth):
        record = {"a": record}
    return record


def test_nesting_is_limited():
    assert list(Notification(nested(MAX_DEPTH))) == [".".join("a" * MAX_DEPTH)]
    assert len(Notification({".".join("a" * MAX_DEPTH): 1})) == 1
    for too_deep in (
        nested(MAX_DEPTH + 1),
        nested(500),
        {".".join("a" * (MAX_DEPTH + 1)): 1},
        {"a.a": nested(MAX_DEPTH - 1)},
    ):
        with pytest.raises(InvalidNotification, match=f"deeper than {MAX_DEPTH}"):
            Notification(too_deep)


def test_a_record_inside_itself_is_refused():
    record = {"x": 1}
    record["me"] = record
    with pytest.raises(InvalidNotification, match="deeper than"):
        Notification(record)


# Names


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "empty"),
        (".", "empty segment"),
        ("a.", "empty segment"),
        (".a", "empty segment"),
        ("a..b", "empty segment"),
        ("a\x00", "control"),
        ("a\nb", "control"),
        ("a\x7f", "control"),
        ("a\x85", "control"),
        ("a\ud800", "surrogate"),
        ("x" * (MAX_NAME_BYTES + 1), f"longer than {MAX_NAME_BYTES}"),
        ("é" * (MAX_NAME_BYTES // 2 + 1), f"longer than {MAX_NAME_BYTES}"),
        ("x" * 100_000, f"longer than {MAX_NAME_BYTES}"),
    ],
)
def test_malformed_names_are_refused(name, message):
    with pytest.raises(InvalidNotification, match=message):
        Notification({name: 1})
    with pytest.raises(InvalidNotification, match=message):
        Notification({"fine": 1}, type=name)


@pytest.mark.parametrize("key", ["", "b.", ".b"])
def test_malformed_names_in_records_are_refused(key):
    with pytest.raises(InvalidNotification, match="empty segment"):
        Notification({"a": {key: 1}})


@pytest.mark.parametrize("key", [1, None, b"x", ("a",), True])
def test_names_are_strings(key):
    with pytest.raises(InvalidNotification, match="not a string"):
        Notification({key: 1})
    with pytest.raises(InvalidNotification, match="not a string"):
        Notification({"a": {key: 1}})


@pytest.mark.parametrize("name", ["x" * MAX_NAME_BYTES, "é" * 127, "with space", "日本", "a-b/c"])
def test_other_names_are_fine(name):
    assert Notification({name: 1})[name] == 1


def test_subclasses_of_str_become_plain_names():
    n = Notification({np.str_("x"): 1, "a": {np.str_("y"): 2}})
    assert [type(name) for name in n] == [str, str]


@pytest.mark.spec("R-01.45")
@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("_type", "type="),
        ("_types", "type="),
        ("_subject", "subject="),
        ("_channel", "channel="),
        ("_time", "time="),
        ("_producer", "id="),
        ("_other", "rename it"),
    ],
)
def test_reserved_names_point_to_the_parameter(name, parameter):
    with pytest.raises(InvalidNotification, match=parameter):
        Notification({name: "x"})
    with pytest.raises(InvalidNotification, match=r"reserved|system"):
        Notification({name: {"x": 1}})


# Values and limits


@pytest.mark.spec("02/T9", "R-02.06")
@pytest.mark.parametrize(
    "value", [float("nan"), 2**63, "\ud800", datetime(2024, 1, 1), [[1]], object()]
)
def test_bad_values_are_refused_by_name(value):
    with pytest.raises(InvalidValue, match=r"attribute 'a\.b'"):
        Notification({"a": {"b": value}})


def test_attributes_must_be_a_mapping():
    with pytest.raises(InvalidNotification, match="not as a list"):
        Notification([("x", 1)])


def test_number_of_attributes_is_limited():
    most = {f"x{i}": i for i in range(MAX_ATTRIBUTES)}
    assert len(Notification(most)) == MAX_ATTRIBUTES
    for too_many in ({**most, "y": 1}, {**most, "y": {"z": 1}}):
        with pytest.raises(InvalidNotification, match=f"at most {MAX_ATTRIBUTES}"):
            Notification(too_many)


@pytest.mark.parametrize(
    ("most", "more"),
    [
        ("x" * MAX_VALUE_BYTES, "x" * (MAX_VALUE_BYTES + 1)),
        ("é" * (MAX_VALUE_BYTES // 2), "é" * (MAX_VALUE_BYTES // 2) + "x"),
        (b"x" * MAX_VALUE_BYTES, b"x" * (MAX_VALUE_BYTES + 1)),
    ],
)
def test_length_of_values_is_limited(most, more):
    assert Notification({"x": most})["x"] == most
    for value in (more, [more], {more}):
        with pytest.raises(InvalidNotification, match=f"'x'.*at most {MAX_VALUE_BYTES}"):
            Notification({"x": value})


def test_size_of_collections_is_limited():
    assert len(Notification({"x": [0] * MAX_ELEMENTS})["x"]) == MAX_ELEMENTS
    half = MAX_ELEMENTS // 2
    Notification({"x": [0] * half, "y": set(range(half))})
    with pytest.raises(InvalidNotification, match=f"at most {MAX_ELEMENTS}"):
        Notification({"x": [0] * half, "y": set(range(half)), "z": [1]})
    for value in ([0] * (MAX_ELEMENTS + 1), set(range(MAX_ELEMENTS + 1))):
        with pytest.raises(InvalidNotification, match=f"at most {MAX_ELEMENTS}"):
            Notification({"x": value})


@pytest.mark.spec("R-08.03")
def test_payload():
    n = Notification({"x": 1}, payload=b"\x00\xff", content_type="application/octet-stream")
    assert (n.payload, n.content_type) == (b"\x00\xff", "application/octet-stream")
    assert Notification({"x": 1}).payload == b""
    for given_as in (bytearray(b"ab"), memoryview(b"ab"), bytearray()):
        stored = Notification({"x": 1}, payload=given_as).payload
        assert type(stored) is bytes
        assert stored == bytes(given_as)
    with pytest.raises(InvalidNotification, match="encode it to bytes"):
        Notification({"x": 1}, payload="text")


def test_payload_is_limited():
    assert len(Notification({"x": 1}, payload=bytes(MAX_PAYLOAD_BYTES)).payload) == 16 * 2**20
    with pytest.raises(InvalidNotification, match=f"at most {MAX_PAYLOAD_BYTES}"):
        Notification({"x": 1}, payload=bytes(MAX_PAYLOAD_BYTES + 1))


@pytest.mark.parametrize("part", ["subject", "channel", "content_type"])
@pytest.mark.parametrize("text", ["", "a\nb", "\ud800", "x" * (MAX_SUBJECT_BYTES + 1), 5, b"x"])
def test_texts_of_the_header_are_checked(part, text):
    with pytest.raises(InvalidNotification, match=part.replace("_", " ")):
        Notification({"x": 1}, **{part: text})


def test_length_of_header_texts():
    long = "x" * (MAX_NAME_BYTES + 1)
    assert Notification({}, subject=long).subject == long
    with pytest.raises(InvalidNotification, match=f"longer than {MAX_NAME_BYTES}"):
        Notification({}, channel=long)
    with pytest.raises(InvalidNotification, match=f"longer than {MAX_SUBJECT_BYTES}"):
        Notification({}, subject="é" * (MAX_SUBJECT_BYTES // 2 + 1))


def test_time_becomes_utc():
    east = timezone(timedelta(hours=2))
    n = Notification({"x": 1}, time=datetime(2024, 5, 1, 14, tzinfo=east))
    assert n.time == NOON
    assert n.time.tzinfo is UTC
    with pytest.raises(InvalidValue, match="no time zone"):
        Notification({"x": 1}, time=datetime(2024, 5, 1))
    with pytest.raises(InvalidNotification, match="not a datetime"):
        Notification({"x": 1}, time=5)


def test_id_is_a_notification_id():
    assert Notification({"x": 1}, id=ID).id is ID
    with pytest.raises(InvalidNotification, match="not a NotificationId"):
        Notification({"x": 1}, id=("p", 1, 2))


# What filters see


@pytest.mark.spec("R-01.45", "R-07.07", "R-08.03")
def test_facts():
    n = Notification(
        {"pos": {"x": 1}},
        type="quote.stock",
        subject="/a/b",
        channel="news",
        payload=b"secret",
        content_type="text/plain",
        id=ID,
        time=NOON,
    )
    assert n.facts == {
        "pos.x": 1,
        "_type": "quote.stock",
        "_types": frozenset({"quote", "quote.stock"}),
        "_subject": "/a/b",
        "_channel": "news",
        "_time": NOON,
        "_producer": "sensor-7",
    }
    assert type(n.facts) is dict
    assert type(n.facts["_types"]) is frozenset
    assert n.facts is n.facts


def test_facts_hold_only_what_is_set_and_share_nothing():
    n = Notification({"x": 1})
    assert n.facts == {"x": 1}
    n.facts["y"] = 2
    assert dict(n) == {"x": 1}


@pytest.mark.spec("R-02.22", "02/T6")
def test_facts_use_the_default_registry():
    event_types.declare("test-halt", parents=["test-alert.urgent"])
    n = Notification({}, type="test-halt.stock")
    assert n.facts["_types"] == {"test-halt.stock", "test-halt", "test-alert.urgent", "test-alert"}
    assert Notification({}, type="StockQuote").facts["_types"] == {"StockQuote"}


# Equality, hashing, printing, copying


@pytest.mark.spec("02/T9")
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (True, 1),
        (1, 1.0),
        (True, 1.0),
        (0.0, -0.0),
        ((1, 2), (1, 2.0)),
        ((True,), (1,)),
        (frozenset({1}), frozenset({1.0})),
        (frozenset({1}), frozenset({True})),
        ((1,), frozenset({1})),
        ("1", b"1"),
        ("1", 1),
        ((1, 2), (2, 1)),
    ],
)
def test_values_that_differ_on_the_wire_differ(a, b):
    assert Notification({"x": a}) != Notification({"x": b})
    assert Notification({"x": a}) == Notification({"x": a})


def test_equality_looks_at_every_part():
    parts = {
        "type": "t",
        "subject": "s",
        "channel": "c",
        "payload": b"p",
        "content_type": "ct",
        "id": ID,
        "time": NOON,
    }
    n = Notification({"x": 1}, **parts)
    assert n == Notification({"x": 1}, **parts)
    for part in parts:
        without = n.replace(**{part: b"" if part == "payload" else None})
        assert without != n
    assert n != Notification({"x": 2}, **parts)
    assert n != Notification({"x": 1, "y": 1}, **parts)
    assert Notification({"x": 1}) != {"x": 1}
    assert Notification({"x": 1}) != "x"


def test_order_of_attributes_means_nothing():
    a, b = Notification({"x": 1, "y": 2}), Notification({"y": 2, "x": 1})
    assert a == b
    assert hash(a) == hash(b)


@pytest.mark.spec("R-01.13")
def test_hash_is_that_of_the_id_if_there_is_one():
    a, b = Notification({"x": 1}, id=ID), Notification({"x": 2}, id=ID)
    assert hash(a) == hash(b) == hash(ID)
    assert a != b
    assert len({Notification({"x": [1]}), Notification({"x": [1]}), Notification({"x": {1}})}) == 2


@pytest.mark.spec("R-01.13")
def test_equal_content_with_different_ids_is_two_notifications():
    again = NotificationId("sensor-7", 3, 42)
    assert Notification({"x": 1}, id=ID) != Notification({"x": 1}, id=again)


def test_repr():
    n = Notification({"x": 1}, type="t", id=ID, payload=b"ab")
    assert repr(n) == (
        "Notification({'x': 1}, type='t', payload=b'ab', "
        "id=NotificationId(producer='sensor-7', epoch=3, sequence=41))"
    )
    assert eval(repr(n)) == n
    assert repr(Notification({"x": 1})) == "Notification({'x': 1})"
    assert "payload=<1000 bytes>" in repr(Notification({"x": 1}, payload=bytes(1000)))


def test_replace():
    n = Notification({"x": 1}, type="t", payload=b"p", time=NOON)
    changed = n.replace(id=ID, type=None)
    assert (changed.id, changed.type, changed.payload, changed.time) == (ID, None, b"p", NOON)
    assert dict(n.replace(attributes={"y": {"z": 2}})) == {"y.z": 2}
    assert n.replace() == n
    assert n.id is None
    with pytest.raises(TypeError):
        n.replace(color="red")
    with pytest.raises(InvalidNotification):
        n.replace(type="")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol):
    n = Notification({"x": [1, 2.0], "s": {"a"}}, type="t", id=ID, time=NOON, payload=b"p")
    assert n.facts
    restored = pickle.loads(pickle.dumps(n, protocol))
    assert restored == n
    assert restored.facts == n.facts


def test_copy():
    n = Notification({"x": 1}, id=ID)
    assert copy.copy(n) == n
    assert copy.deepcopy([n]) == [n]


def test_the_memory_of_name_sets_is_bounded():
    for i in range(3000):
        Notification({f"bounded{i}": 1})
    assert len(names._good_shapes) <= 1024
    wide = tuple(f"n{i}" for i in range(1000))
    Notification(dict.fromkeys(wide, 1))
    assert wide not in names._good_shapes


segments = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc",), exclude_characters="._")
)
records = st.recursive(
    st.integers(-5, 5),
    lambda inner: st.dictionaries(segments.filter(bool), inner, min_size=1, max_size=3),
    max_leaves=8,
)


def paths(record, prefix=()):
    if isinstance(record, dict):
        for key, value in record.items():
            yield from paths(value, (*prefix, key))
    else:
        yield prefix, record


@pytest.mark.spec("R-02.07", "R-07.16")
@settings(deadline=None)
@given(st.dictionaries(segments.filter(lambda s: 0 < len(s) < 9), records, min_size=1, max_size=3))
def test_flattening_keeps_every_path_and_value(record):
    expected = {".".join(path): value for path, value in paths(record)}
    if any(len(name.encode()) > MAX_NAME_BYTES for name in expected):
        with pytest.raises(InvalidNotification):
            Notification(record)
    else:
        n = Notification(record)
        assert dict(n) == expected
        assert Notification(expected) == n


class Word(str):
    """A subclass of `str` that is equal to the name it stands for."""

    __slots__ = ()


@settings(max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from(["x", "y", "price", "x.y", "", "_type", "a\nb", Word("x"), 5]),
        st.one_of(
            st.sampled_from(
                [None, True, 1, 1.0, -0.0, float("nan"), float("-inf"), 2**63, -(2**63)]
            ),
            st.sampled_from(["", "é", "\ud800", Word("w"), b"b", NOON, [1], {"z": 1}, object()]),
        ),
        max_size=4,
    )
)
def test_a_plain_dictionary_means_the_same_as_any_other_mapping(attributes):
    """Plain dictionaries are taken over quickly, everything else is looked at piece by piece."""

    def made(given):
        try:
            n = Notification(given)
        except Exception as error:
            return type(error), str(error)
        return [(type(k), k, type(v), repr(v)) for k, v in n.items()], n.facts

    for _ in range(2):  # the second time the names are known
        assert made(attributes) == made(ChainMap(attributes))


def test_what_is_taken_over_is_a_copy():
    source = {"x": 1}
    for _ in range(2):
        n = Notification(source)
        source["x"] += 1
        assert n["x"] == source["x"] - 1
