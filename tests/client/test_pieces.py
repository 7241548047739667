"""The small parts: moments, delays, errors from the wire, encoding, dataclasses, hooks."""

from __future__ import annotations

import dataclasses
import enum
import logging
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stentor
from stentor import errors
from stentor.client.backoff import Backoff
from stentor.client.encoding import EventEncoder, notification_of
from stentor.client.times import since_seconds
from stentor.client.typed import Reader, class_filter, event_type_of
from stentor.errors import (
    InvalidConfiguration,
    InvalidNotification,
    InvalidValue,
    StentorError,
    UnknownEventType,
    error_of,
)
from stentor.model import Notification, NotificationId, decode, encode
from stentor.node.hooks import POINTS, VETO, Dropped, Hooks


class TestSince:
    def test_every_form(self) -> None:
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        assert since_seconds("2026-01-01T00:00:00Z") == moment.timestamp()
        assert since_seconds("2026-01-01T01:00:00+01:00") == moment.timestamp()
        assert since_seconds(moment.astimezone(timezone(timedelta(hours=5)))) == moment.timestamp()
        assert since_seconds("earliest") == 0.0
        before = datetime.now(UTC).timestamp()
        assert before - 3600 <= since_seconds(timedelta(hours=1)) < before - 3540

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ("2026-01-01T00:00:00", "no time zone"),
            ("yesterday", "is not a time"),
            (datetime(2026, 1, 1), "no time zone"),
            (timedelta(hours=-1), "future"),
            (3600, "timedelta"),
            (None, "timedelta"),
        ],
    )
    def test_anything_else_is_an_error_that_says_what_to_do(self, wrong: Any, said: str) -> None:
        with pytest.raises(InvalidValue, match=said):
            since_seconds(wrong)


class TestBackoff:
    @given(st.lists(st.floats(0, 1, exclude_max=True), min_size=12, max_size=12))
    def test_delays_grow_to_a_bound_and_never_vanish(self, drawn: list[float]) -> None:
        source = iter(drawn)
        delays = [Backoff(0.1, 5.0, source.__next__)]
        seen = [delays[0].next() for _ in range(12)]
        for i, delay in enumerate(seen):
            top = min(0.1 * 2**i, 5.0)
            assert top / 2 <= delay <= top


class TestErrors:
    def test_every_code_gives_its_class(self) -> None:
        classes = [c for c in vars(errors).values() if isinstance(c, type)]
        for cls in classes:
            if issubclass(cls, StentorError):
                error = error_of(cls.code, "what happened")
                assert type(error) is cls
                assert str(error) == "what happened"


NAMES = st.text("abcxyz.", min_size=1, max_size=6)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.datetimes(timezones=st.just(UTC)),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from("pq"), st.integers(0, 3), max_size=2),
)


class TestEncoding:
    @given(st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=4))
    def test_the_short_way_gives_the_bytes_of_the_careful_way(self, events: list[Any]) -> None:
        now = datetime.now(UTC)
        for event in [*events, *events]:  # the second time the names are known
            encoder = EventEncoder("ann", 7)  # one that has published would give a later time
            try:
                id = NotificationId("ann", 7, 3)
                careful = encode(Notification(event, id=id, time=now))
            except StentorError as error:
                with pytest.raises(type(error)):
                    encoder.many([event], 3, now)
            else:
                assert encoder.many([event], 3, now) == [careful]

    def test_ids_are_consecutive_and_a_time_of_its_own_is_kept(self) -> None:
        then, now = datetime(2020, 1, 1, tzinfo=UTC), datetime.now(UTC)
        old = Notification({"x": 1}, time=then, id=NotificationId("bob", 1, 1), payload=b"!")
        first, second = map(decode, EventEncoder("ann", 7).many([old, {"x": 2}], 41, now))
        assert (str(first.id), first.time, first.payload) == ("ann:7:41", then, b"!")
        assert (str(second.id), second.time) == ("ann:7:42", now + timedelta(microseconds=1))

    def test_the_times_of_one_client_rise(self) -> None:
        now = datetime.now(UTC)
        encoder = EventEncoder("ann", 7)
        plain: list[dict[str, Any]] = [{"x": i} for i in range(5)]
        events = [*plain, Notification({"x": 5}), *plain, {"x": [1]}, *plain]
        sent = [*encoder.many(events, 1, now), *encoder.many(plain, 100, now)]
        times = [decode(data).time for data in sent]
        assert times[0] == now
        assert all(a is not None and b is not None and a < b for a, b in pairwise(times))

    def test_times_follow_one_another_by_a_microsecond_in_every_way_of_encoding(self) -> None:
        now, tick = datetime.now(UTC), timedelta(microseconds=1)
        encoder = EventEncoder("ann", 7)
        sent = encoder.many([], 1, now)
        sent += encoder.many([{"x": 1}], 1, now)
        sent += [encoder.one(Notification({"x": [2]}), 2, now)]
        sent += encoder.many([{"x": [3]}, {"x": 4}, Notification({"x": 5})], 3, now)
        sent += encoder.many([{"x": 6}, {"x": 7}], 6, now, {"priority": 7})
        assert [decode(data).time for data in sent] == [now + i * tick for i in range(7)]

    def test_a_clock_that_was_set_back_is_followed(self) -> None:
        now = datetime.now(UTC)
        encoder = EventEncoder("ann", 7)
        encoder.many([{"x": 1}], 1, now)
        earlier = now - timedelta(hours=1)
        assert decode(encoder.many([{"x": 2}], 2, earlier)[0]).time == earlier

    def test_what_is_no_event_is_refused(self) -> None:
        with pytest.raises(InvalidNotification, match="mapping"):
            notification_of(42)
        with pytest.raises(InvalidNotification, match="mapping"):
            notification_of(Quote)


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


@dataclasses.dataclass
class Place:
    x: float
    y: float = 0.0


@dataclasses.dataclass
class Quote:
    symbol: str
    price: float


@dataclasses.dataclass
class StockQuote(Quote):
    side: Side = Side.BUY
    tags: frozenset[str] = frozenset()
    sizes: list[int] = dataclasses.field(default_factory=list)
    place: Place | None = None
    sides: tuple[Side, ...] = ()
    _cache: int = 0


@dataclasses.dataclass
class Renamed(Quote):
    __event_type__ = "quote.renamed"


class TestTyped:
    @pytest.mark.parametrize(
        "event",
        [
            Quote("IBM", 120.5),
            StockQuote("IBM", 120.5),
            StockQuote(
                "IBM", 1.0, Side.SELL, frozenset({"a"}), [1, 2], Place(1.5), (Side.BUY, Side.SELL)
            ),
        ],
    )
    def test_there_and_back(self, event: Any) -> None:
        sent = decode(encode(notification_of(event)))
        assert Reader(Quote)(sent) == event
        assert type(Reader(Quote)(sent)) is type(event)

    def test_nested_records_have_dotted_names_and_enumerations_values(self) -> None:
        n = notification_of(StockQuote("IBM", 1.0, Side.SELL, place=Place(1.5)))
        assert (n["place.x"], n["side"], n.type) == (1.5, "sell", "Quote.StockQuote")
        assert "_cache" not in n

    def test_a_subscription_to_a_class_includes_its_subclasses(self) -> None:
        wanted = class_filter(Quote, "price > 100")
        assert wanted.matches(notification_of(StockQuote("IBM", 120.0)))
        assert not wanted.matches(notification_of(StockQuote("IBM", 1.0)))
        assert not class_filter(StockQuote).matches(notification_of(Quote("IBM", 120.0)))

    def test_a_type_of_its_own(self) -> None:
        assert event_type_of(Renamed) == "quote.renamed"
        assert notification_of(Renamed("IBM", 1.0), {"type": "other"}).type == "other"

    def test_an_unknown_subtype_becomes_the_nearest_class(self) -> None:
        n = Notification({"symbol": "IBM", "price": 1, "new": 3}, type="Quote.StockQuote.Future")
        assert Reader(Quote)(n) == StockQuote("IBM", 1.0)

    def test_what_does_not_fit_says_where(self) -> None:
        with pytest.raises(InvalidNotification, match=r"not a Quote.*price"):
            Reader(Quote)(Notification({"symbol": "IBM", "price": "high"}, type="Quote"))

    def test_two_event_classes_as_bases_are_refused(self) -> None:
        @dataclasses.dataclass
        class Both(Place, Quote):
            pass

        with pytest.raises(UnknownEventType, match="__event_type__"):
            event_type_of(Both)

    def test_a_class_whose_fields_cannot_be_read_is_refused_when_subscribing(self) -> None:
        @dataclasses.dataclass
        class Odd:
            where: Nowhere  # type: ignore[name-defined]  # noqa: F821

        with pytest.raises(UnknownEventType, match="Nowhere"):
            Reader(Odd)

    def test_an_event_that_contains_itself_is_refused(self) -> None:
        @dataclasses.dataclass
        class Node:
            next: Any = None

        node = Node()
        node.next = node
        with pytest.raises(InvalidNotification, match="contains itself"):
            notification_of(node)


@pytest.mark.spec("R-01.72")
class TestHooks:
    def test_order_transformation_and_passing(self) -> None:
        hooks, seen = Hooks(), list[Any]()
        hooks.add("route", lambda v: seen.append(v))
        hooks.add("route", lambda v: v + 1)
        hooks.add("route", lambda v: v * 10)
        assert hooks.run("route", 1) == 20
        assert seen == [1]
        assert hooks.run("forward", 1) == 1

    def test_a_veto_ends_it(self) -> None:
        hooks, seen = Hooks(), list[Any]()
        hooks.add("publish", lambda v: VETO)
        hooks.add("publish", seen.append)
        assert hooks.run("publish", 1) is VETO
        assert (seen, hooks.vetoed["publish"]) == ([], 1)

    def test_an_error_is_a_veto_and_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        hooks = Hooks()
        hooks.add("deliver", lambda v: 1 / 0)
        with caplog.at_level(logging.ERROR):
            assert hooks.run("deliver", 1) is VETO
        assert "division by zero" in caplog.text

    def test_removing(self) -> None:
        hooks = Hooks()
        hook = lambda v: VETO  # noqa: E731
        hooks.add("publish", hook)
        assert hooks.watches("publish")
        hooks.remove("publish", hook)
        assert not hooks.watches("publish")
        with pytest.raises(InvalidConfiguration, match="nothing to remove"):
            hooks.remove("publish", hook)

    def test_only_plain_functions_at_known_points(self) -> None:
        async def late(value: object) -> None: ...

        hooks = Hooks()
        with pytest.raises(InvalidConfiguration, match="plain function"):
            hooks.add("publish", late)
        with pytest.raises(InvalidConfiguration, match=r"publish.*subscribe"):
            hooks.add("breakfast", print)  # type: ignore[arg-type]
        assert len(POINTS) == 8

    def test_drops_are_told_and_cannot_be_stopped(self, caplog: pytest.LogCaptureFixture) -> None:
        hooks, seen = Hooks(), list[Any]()
        hooks.add("drop", lambda v: 1 / 0)
        hooks.add("drop", seen.append)
        hooks.tell("drop", Dropped("n", "quenched"))
        assert seen == [("n", "quenched")]


def test_the_package_offers_what_it_says() -> None:
    for name in stentor.__all__:
        assert getattr(stentor, name) is not None
    assert set(stentor.__all__) <= set(dir(stentor))
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = stentor.nothing_of_the_kind
