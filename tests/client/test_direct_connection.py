"""A direct connection to one broker: its journal in bulk, and batches under ids of one's own."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from overlay_processes import LIMITS, Overlay

from stentor.broker.settings import Grant, Retention
from stentor.client.direct import Direct
from stentor.errors import (
    AccessDenied,
    FilterSyntaxError,
    HistoryGone,
    InvalidAddress,
    NotPermitted,
    Unreachable,
)
from stentor.model import Notification, NotificationId, decode, encode
from stentor.model.notification import MAX_PAYLOAD_BYTES
from stentor.protocol.messages import Read

LONG = replace(LIMITS, timeout=30.0)


def quotes(count: int, first: int = 0, producer: str = "desk", epoch: int = 0) -> list[bytes]:
    return [
        encode(Notification({"n": n, "even": n % 2 == 0}, id=NotificationId(producer, epoch, n)))
        for n in range(first, first + count)
    ]


def numbers(broker: Direct, stream: str, first: int, last: int, filter: str = "") -> list[int]:
    found = []
    for stretch in broker.read(stream, first, last, filter):
        assert len(stretch.offsets) == len(stretch.items)
        assert all(first <= offset <= last for offset in stretch.offsets)
        found += [decode(item)["n"] for item in stretch.items]
    return found


def test_a_journal_is_read_as_it_was_written(overlay: Overlay) -> None:
    broker = overlay.broker("b1", limits=LONG)
    broker.start()
    with Direct(broker.address, name="desk") as direct:
        direct.publish(quotes(10_000))
        (state,) = direct.streams()
        assert (state.broker, state.low, state.head) == ("b1", 1, 10_000)
        assert direct.broker == "b1"
        assert numbers(direct, state.stream, 1, state.head) == list(range(10_000))
        assert numbers(direct, state.stream, 4_000, 4_002) == [3_999, 4_000, 4_001]
        assert numbers(direct, state.stream, 1, state.head, "n >= 9998") == [9_998, 9_999]
        assert len(numbers(direct, state.stream, 1, state.head, "even = true")) == 5_000
        # Beyond the end nothing comes, and nothing waits.
        assert numbers(direct, state.stream, 10_000, 20_000) == [9_999]
        assert numbers(direct, state.stream, 10_001, 20_000) == []
        assert direct.offset_at(state.stream, 0.0) == 1
        # A reading that is broken off does not disturb the next one.
        assert next(iter(direct.read(state.stream, 1, state.head))).offsets[0] == 1
        assert numbers(direct, state.stream, 7, 7) == [6]


def test_times_are_told_without_the_events(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = overlay.broker("b1", limits=LONG)
    broker.start()
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    values = [noon, 7, 7.5, True, "noon", None]

    def event(n: int) -> Notification:
        value = values[n % len(values)]
        named = {} if value is None else {"at": value}
        return Notification({"n": n} | named, id=NotificationId("desk", 0, n), time=noon)

    def times(filter: str = "", name: str = "_time") -> dict[int, float | None]:
        found = {}
        for stretch in direct.read(state.stream, 1, state.head, filter, times=name):
            assert stretch.items == []
            assert stretch.sizes == [len(encode(event(n - 1))) for n in stretch.offsets]
            found.update(zip(stretch.offsets, stretch.times, strict=True))
        return found

    with Direct(broker.address, name="desk") as direct:
        direct.publish([encode(event(n)) for n in range(2_400)])
        (state,) = direct.streams()
        at = noon.timestamp()
        by_attribute = [at, 7.0, 7.5, None, None, None] * 400
        wanted = dict(enumerate(by_attribute, 1))
        for _ in range(2):
            assert times() == dict.fromkeys(range(1, 2_401), at)
            assert times("n >= 2398") == {2_399: at, 2_400: at}
            assert times(name="at") == wanted
            # A broker of an earlier release does not know what times are, and sends everything.
            monkeypatch.setattr("stentor.client.direct.Read", lambda *fields: Read(*fields[:5]))


def test_only_the_attributes_that_are_asked_for_leave_the_broker(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filter may decide by others, and times may be others; rights are those of the filter."""
    grants = (Grant("feed", "t"), Grant("even", "e", subscribe=("even = true",), publish=()))
    broker = overlay.broker("b1", limits=LONG, grants=grants)
    broker.start()
    more = {f"reading_{i}": f"{i}" * 20 for i in range(30)}

    def event(n: int, **rest: object) -> Notification:
        id = NotificationId(producer, 0, n)
        return Notification({"n": n, **rest}, type="wide", payload=b"...", id=id)

    with Direct(broker.address, name="desk", token="t") as direct:
        producer = direct.producer
        whole = [encode(event(n, even=n % 2 == 0, at=n, **more)) for n in range(3_000)]
        direct.publish(whole)
        (state,) = direct.streams()
        for names, headers in ((["n", "nothing"], False), (["n"], True), (None, False)):
            offsets, items = [], []
            for stretch in direct.read(
                state.stream, 1, state.head, "even = true", headers=headers, attributes=names
            ):
                offsets += stretch.offsets
                items += stretch.items
            assert offsets == [*range(1, 3_001, 2)]
            left = whole[::2]
            if names is not None:
                bare = [event(n).replace(payload=b"" if headers else b"...") for n in range(3_000)]
                left = [encode(n) for n in bare[::2]]
            assert items == left
        sizes, times = [], []
        for stretch in direct.read(state.stream, 1, 100, times="at", attributes=["n"]):
            sizes += stretch.sizes
            times += stretch.times
        assert sizes == [len(encode(event(n))) for n in range(100)]
        assert times == [float(n) for n in range(100)]
        # A broker of an earlier release does not know of it, and sends all of them.
        monkeypatch.setattr("stentor.client.direct.Read", lambda *fields: Read(*fields[:7]))
        (stretch,) = direct.read(state.stream, 1, 10, attributes=["n"])
        assert stretch.items == whole[:10]
    monkeypatch.undo()
    with Direct(broker.address, name="desk", token="e") as direct:
        with pytest.raises(NotPermitted):
            next(direct.read(state.stream, 1, 10, attributes=["n"]))
        (stretch,) = direct.read(state.stream, 1, 4, "even = true", attributes=["n"])
        assert [decode(item)["n"] for item in stretch.items] == [0, 2]


def test_what_the_broker_has_already_is_published_once(overlay: Overlay) -> None:
    broker = overlay.broker("b1")
    broker.start()
    for _ in range(2):  # as after a crash that left open how far it came
        with Direct(broker.address, name="desk") as direct:
            direct.publish(quotes(50))
            direct.publish(quotes(100))
    with Direct(broker.address, name="desk") as direct:
        direct.publish(quotes(10, epoch=1), atomic=True)
        direct.publish(quotes(10, epoch=1), atomic=True)
        (state,) = direct.streams()
        assert numbers(direct, state.stream, 1, state.head) == [*range(100), *range(10)]


def test_a_small_window_is_kept(overlay: Overlay) -> None:
    """A broker hangs up on who has too much unanswered."""
    broker = overlay.broker("b1", limits=replace(LONG, window=10))
    broker.start()
    with Direct(broker.address, name="desk") as direct:
        direct.publish(quotes(2_000))
        (state,) = direct.streams()
        assert numbers(direct, state.stream, 1, state.head) == list(range(2_000))


def test_a_large_notification_behind_small_ones_is_read(overlay: Overlay) -> None:
    """All of it together would fit no frame."""
    broker = overlay.broker("b1", limits=LONG)
    broker.start()
    large = Notification(
        {"n": 5_000},
        payload=bytes(MAX_PAYLOAD_BYTES - 500_000),
        id=NotificationId("desk", 0, 5_000),
    )
    with Direct(broker.address, name="desk") as direct:
        direct.publish([encode(n) for n in padded(950, 1_000)])
        direct.publish([encode(large)])
        (state,) = direct.streams()
        assert numbers(direct, state.stream, 1, state.head) == [*range(950), 5_000]
        assert numbers(direct, state.stream, 1, state.head, "n >= 0") == [*range(950), 5_000]


def padded(count: int, size: int) -> list[Notification]:
    return [
        Notification({"n": n}, payload=bytes(size), id=NotificationId("desk", 0, n))
        for n in range(count)
    ]


def test_a_broker_that_comes_back_is_read_on(overlay: Overlay) -> None:
    broker = overlay.broker("b1", limits=LONG)
    broker.start()
    with Direct(broker.address, name="desk") as direct:
        direct.publish(quotes(40_000))
        (state,) = direct.streams()
        found: list[int] = []
        for count, stretch in enumerate(direct.read(state.stream, 1, state.head)):
            found += stretch.offsets
            if count == 1:
                broker.restart()
        assert found == list(range(1, 40_001))
        broker.restart()
        direct.publish(quotes(10, first=40_000))
        assert direct.streams()[0].head == 40_010


def test_a_broker_that_stays_away_is_given_up(overlay: Overlay) -> None:
    broker = overlay.broker("b1")
    broker.start()
    with Direct(broker.address) as direct:  # waits until it is up
        (state,) = direct.streams()
    with Direct(broker.address, patience=0.5) as direct:
        broker.kill()
        with pytest.raises(Unreachable, match="refused"):
            numbers(direct, state.stream, 1, 10)


def test_what_is_gone_is_said(overlay: Overlay) -> None:
    retention = Retention(bytes=200_000)
    broker = overlay.broker("b1", limits=LONG, retention=retention)
    broker.start()
    with Direct(broker.address, name="desk") as direct:
        low = 1
        for round in itertools.count():
            direct.publish(quotes(5_000, first=5_000 * round))
            (state,) = direct.streams()
            low = state.low
            if low > 1:
                break
        with pytest.raises(HistoryGone, match=r"the offsets 1\.\."):
            numbers(direct, state.stream, 1, state.head)
        rest = [
            offset
            for stretch in direct.read(state.stream, 1, state.head, skip_lost=True)
            for offset in stretch.offsets
        ]
        assert rest == list(range(rest[0], state.head + 1))
        assert rest[0] >= low
        with pytest.raises(HistoryGone, match="no journal"):
            numbers(direct, "elsewhere#00", 1, 2)


def test_who_may_read_what(overlay: Overlay) -> None:
    grants = (
        Grant("desk", token="d", publish=("",), subscribe=("even = true",)),
        Grant("boss", token="b", publish=("",), subscribe=("",)),
    )
    broker = overlay.broker("b1", grants=grants)
    broker.start()
    with Direct(broker.address, name="desk", token="d") as direct:
        direct.publish(quotes(10, producer=direct.producer))
        (state,) = direct.streams()
        assert numbers(direct, state.stream, 1, 10, "even = true and n > 5") == [6, 8]
        with pytest.raises(NotPermitted, match="may not read everything"):
            numbers(direct, state.stream, 1, 10)
    with pytest.raises(AccessDenied), Direct(broker.address, token="guess"):
        pass


def test_mistakes_are_named(overlay: Overlay) -> None:
    broker = overlay.broker("b1")
    broker.start()
    with Direct(broker.address) as direct:
        (state,) = direct.streams()
        with pytest.raises(FilterSyntaxError, match="ends too early"):
            numbers(direct, state.stream, 1, 2, "price >")
        assert numbers(direct, state.stream, 1, 2) == []
    with pytest.raises(InvalidAddress, match="socket"):
        Direct("inproc:here")
