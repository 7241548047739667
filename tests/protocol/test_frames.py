"""Frames: any stream of messages survives any cutting; any other stream is a `ProtocolError`."""

from __future__ import annotations

import gc
import itertools
import random
import time
import tracemalloc
import types
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_messages import KINDS, messages

from stentor.errors import ProtocolError
from stentor.protocol import FrameReader, frame
from stentor.protocol.messages import (
    AnyMessage,
    Done,
    Forward,
    Goodbye,
    Groups,
    Mark,
    Ping,
    Publish,
    Published,
    Streams,
    Subscriptions,
    encoder,
)


def body(data: bytes) -> bytes:
    """A frame around any bytes."""
    return len(data).to_bytes(4) + data


def read(
    stream: bytes, cuts: list[int], max_frame: int = 2**20
) -> tuple[list[Any], str | None, int]:
    """Everything that a reader makes of the stream: messages, error, most bytes that it kept."""
    reader = FrameReader(max_frame)
    got: list[Any] = []
    most = 0
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    try:
        for first, last in itertools.pairwise(places):
            got += reader.feed(stream[first:last])
            most = max(most, reader.buffered)
        reader.feed(b"")
    except ProtocolError as error:
        return got, str(error), most
    return got, None, most


@given(st.lists(messages(), max_size=6), st.lists(st.integers(0, 2**16), max_size=20))
def test_messages_survive_any_cutting(sent: list[Any], cuts: list[int]) -> None:
    got, error, _ = read(b"".join(map(frame, sent)), cuts)
    assert got == sent
    assert error is None


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7])
def test_messages_survive_small_pieces(size: int) -> None:
    sent: list[AnyMessage] = [Ping(), Mark("b1", 7), Publish(1, [b"x" * 300, b""]), Ping()]
    stream = b"".join(map(frame, sent))
    reader = FrameReader()
    got = [m for at in range(0, len(stream), size) for m in reader.feed(stream[at : at + size])]
    assert got == sent
    assert reader.buffered == 0


def test_every_kind_is_generated_and_has_a_tag_of_its_own() -> None:
    tags = [kind.__struct_config__.tag for kind in KINDS]
    assert len(set(tags)) == len(tags)
    assert all(isinstance(tag, int) and 0 < tag < 128 for tag in tags)


# -- what is refused


def refusal(stream: bytes, max_frame: int = 1000) -> str:
    with pytest.raises(ProtocolError) as caught:
        FrameReader(max_frame).feed(stream)
    return str(caught.value)


def test_a_length_above_the_limit_is_refused_before_its_body_comes() -> None:
    assert "1001 bytes" in refusal((1001).to_bytes(4))
    reader = FrameReader(1000)
    largest = Goodbye("x" * 994)
    assert len(frame(largest)) == 1004
    assert reader.feed(frame(largest)) == [largest]


def test_the_limit_can_be_raised_for_later_frames() -> None:
    large = frame(Publish(1, [b"x" * 5000]))
    reader = FrameReader(1000)
    assert reader.feed(frame(Ping())) == [Ping()]
    reader.max_frame = 10_000
    assert len(reader.feed(large)) == 1


@pytest.mark.parametrize(
    ("stream", "hint"),
    [
        (bytes.fromhex("16030100ce010000"), "TLS"),
        (bytes.fromhex("15030300020246"), "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"HTTP/1.1 400 Bad Request", "web server"),
        (b"SSH-2.0-OpenSSH_9.2", "SSH"),
    ],
)
def test_other_protocols_are_recognized(stream: bytes, hint: str) -> None:
    assert hint in refusal(stream)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\xc0",  # nil
        b"\x90",  # an array without a tag
        b"\x91\x63",  # an unknown tag
        b"\x91\xa1x",  # a tag that is text
        b"\x91\x1e",  # a field is missing
        b"\x92\x1e\xa1x",  # a field of a wrong type
        b"\x91\x04\x00",  # something follows
        b"\x92\x1e",  # truncated
        b"\x93\x0a\x01\xdd\xff\xff\xff\xff",  # an array that promises 2**32 - 1 items
        b"\x93\x26\x01\xdf\xff\xff\xff\xff",  # and such a map
        b"\x93\x26\x01\xc6\xff\xff\xff\xff",  # and such bytes
        b"\x93\x26\x01" + b"\x91" * 900,  # nested deeply where anything may be
        b"\x92\x04" + b"\x91" * 900,  # and where it is skipped
        b"\x93\x26\x01\xa2\xff\xff",  # text that is not UTF-8
        b"\x93\x26\x01\x81\x80\x01",  # a key that is a map
        b"\x93\x26\x01\xd7\xff" + b"\xff" * 8,  # a timestamp that is none
        b"\x93\x26\x01\xc1",  # a byte that MessagePack does not use
    ],
)
def test_bodies_that_are_no_message_are_refused(bad: bytes) -> None:
    assert "no message of the protocol" in refusal(body(bad), 100_000)


def test_nesting_beyond_any_recursion_is_refused() -> None:
    assert "recursion" in refusal(body(b"\x93\x26\x01" + b"\x91" * 10**6), 2 * 10**6)


def test_fields_that_are_unknown_are_ignored_and_missing_ones_have_defaults() -> None:
    assert FrameReader().feed(body(encoder.encode([30, 7, "new", {"x": 1}]))) == [Published(7)]
    assert FrameReader().feed(body(b"\x91\x06")) == [Goodbye()]
    assert FrameReader().feed(body(b"\x92\x26\x05")) == [Done(5)]


def test_what_precedes_a_bad_frame_is_returned_and_nothing_behind_it() -> None:
    stream = frame(Ping()) + frame(Mark("b", 1)) + body(b"\xc0") + frame(Ping())
    reader = FrameReader()
    assert reader.feed(stream) == [Ping(), Mark("b", 1)]
    assert reader.error is not None
    for _ in range(2):
        with pytest.raises(ProtocolError):
            reader.feed(frame(Ping()))


# -- fuzz


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_any_bytes_give_messages_or_a_protocol_error(stream: bytes, cuts: list[int]) -> None:
    whole = read(stream, [], 150)
    pieces = read(stream, cuts, 150)
    assert pieces[:2] == whole[:2]
    assert pieces[2] <= 150 + 4


def test_mutated_streams_give_the_same_however_they_are_cut() -> None:
    """Seeded: bytes of valid streams are changed, removed, repeated and inserted."""
    chance = random.Random(20)
    sent: list[AnyMessage] = [
        Ping(),
        Publish(3, [b"abc", b"x" * 40], retain={1: "k"}),
        Done(1, {"a": [1, 2, {"b": None}], "c": 1.5}),
        Mark("stream", 2**40),
        Goodbye("bye", ["a:1", "b:2"]),
    ]
    base = b"".join(map(frame, sent))
    refused = 0
    for _ in range(3000):
        stream = bytearray(base)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(stream))
            match chance.randrange(4):
                case 0:
                    stream[at] = chance.randrange(256)
                case 1:
                    del stream[at : at + chance.randint(1, 6)]
                case 2:
                    stream[at:at] = stream[at : at + chance.randint(1, 30)]
                case 3:
                    stream[at:at] = chance.randbytes(chance.randint(1, 6))
            if not stream:
                stream = bytearray(b"\0")
        whole = read(bytes(stream), [], 500)
        cuts = [chance.randrange(len(stream) + 1) for _ in range(5)]
        pieces = read(bytes(stream), cuts, 500)
        assert pieces[:2] == whole[:2]
        assert pieces[2] <= 504
        refused += whole[1] is not None
    assert 1000 < refused < 3000  # the mutations neither miss nor destroy everything


# -- memory and time


@pytest.mark.parametrize(
    "head",
    [
        b"\x93\x26\x01",  # Done
        b"\xdc\x00\x03\xcc\x26\x01",  # the same, spelled in another way
        b"\x94\x12\x01\xa1x\x81\xa1x",  # Ask
    ],
)
def test_bytes_that_would_swell_in_memory_are_refused(head: bytes) -> None:
    """Each byte 0x80 is an empty map, an object of 64 bytes."""
    count = 2**21
    swelling = body(head + b"\xdd" + count.to_bytes(4) + b"\x80" * count)
    tracemalloc.start()
    try:
        assert "request or answer" in refusal(swelling, 2**24)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_large_answers_are_read_by_those_who_ask() -> None:
    answer = Done(1, ["x" * 100] * 20_000)
    assert FrameReader(2**24, 2**24).feed(frame(answer)) == [answer]
    with pytest.raises(ProtocolError):
        FrameReader(2**24).feed(frame(answer))
    published = Publish(1, [b"x" * 100] * 20_000)  # holds nothing but what its type says
    assert FrameReader(2**24).feed(frame(published)) == [published]


def test_memory_is_bounded_by_one_frame_in_tiny_pieces() -> None:
    """Pieces of three bytes must not cost an object each."""
    stream = frame(Publish(1, [bytes(2**18)]))
    *pieces, last = [stream[at : at + 3] for at in range(0, len(stream), 3)]
    reader = FrameReader(2**21)
    tracemalloc.start()
    try:
        for piece in pieces:
            reader.feed(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(stream)
    assert len(reader.feed(last)) == 1
    assert reader.buffered == 0


def test_an_announced_frame_occupies_only_what_was_sent() -> None:
    reader = FrameReader(2**30)
    tracemalloc.start()
    try:
        reader.feed((2**30).to_bytes(4) + b"x" * 100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000


def test_collecting_a_large_frame_takes_linear_time() -> None:
    """Sixteen times the size must take about sixteen times as long; quadratic would be 256."""

    def cost(size: int) -> float:
        stream = frame(Publish(1, [bytes(size)]))
        pieces = [stream[at : at + 4096] for at in range(0, len(stream), 4096)]
        best = float("inf")
        for _ in range(5):
            reader = FrameReader(2**26)
            start = time.process_time()
            for piece in pieces:
                reader.feed(piece)
            best = min(best, time.process_time() - start)
        return best

    assert cost(2**24) < 80 * cost(2**20)


# -- limits and slices


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        (Publish, b"\x01"),
        (Forward, b"\xa1s"),
        (Subscriptions, b""),
        (Streams, b""),
        (Groups, b"\xa1s"),
    ],
)
def test_a_count_is_refused_before_anything_is_made(kind: type[Any], before: bytes) -> None:
    """Eight million items take next to nothing, compared with making them."""
    count = 8_000_000
    head = b"\x96" + bytes([kind.__struct_config__.tag]) + before
    item = b"\x90" if kind is Subscriptions else b"\xa0"
    hostile = body(head + b"\xdd" + count.to_bytes(4) + item * count)
    start = time.process_time()
    msgspec.msgpack.decode(hostile[4:][len(head) :])
    made = time.process_time() - start
    start = time.process_time()
    with pytest.raises(ProtocolError):
        FrameReader().feed(hostile)
    assert time.process_time() - start < made / 5


def test_fields_that_are_not_known_are_short() -> None:
    """To pass over them takes time as well."""
    skipped = b"\xdd" + (2**20).to_bytes(4) + b"\xc0" * 2**20
    known = b"\x96\x0a\x01\x90\xc2\xc2\x80"
    assert FrameReader().feed(body(known)) == [Publish(1, [])]
    assert FrameReader().feed(body(b"\x97" + known[1:] + b"\x93\x01\x02\x03")) == [Publish(1, [])]
    for begin in (b"\x97" + known[1:], b"\x92\x04", b"\x92\xcc\x04"):
        with pytest.raises(ProtocolError, match="send less"):
            FrameReader().feed(body(begin + skipped))


@given(st.lists(messages(), max_size=8), st.integers(1, 40), st.integers(1, 3))
def test_some_at_a_time_are_all_of_them(sent: list[Any], size: int, most: int) -> None:
    stream = b"".join(map(frame, sent))
    reader = FrameReader()
    got: list[Any] = []
    for at in range(0, len(stream), size):
        found = reader.feed(stream[at : at + size], most)
        assert len(found) <= most
        got += found
    while reader.pending:
        got += reader.feed(b"", most)
    assert got == sent


def test_an_error_keeps_nothing_of_what_was_read() -> None:
    reader = FrameReader()
    deep = body(b"\x93\x26\x01" + b"\x91" * 100_000)
    error = None
    try:
        reader.feed(deep)
    except ProtocolError as found:
        error = found.with_traceback(None)
    gc.collect()
    kept = gc.get_referrers(deep)
    assert error is not None
    assert error.__cause__ is None
    assert error.__context__ is None
    assert not [each for each in kept if isinstance(each, types.FrameType | memoryview)]
