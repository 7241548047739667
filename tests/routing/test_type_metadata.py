"""Declarations of event types at their rendezvous: who holds them, who knows them, who checks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import (
    FilterTypeError,
    InvalidConfiguration,
    InvalidNotification,
    UnknownEventType,
)
from stentor.filters import Filter
from stentor.model.event_types import EventType, EventTypes
from stentor.model.notification import Notification
from stentor.routing.protocol import BrokerId, FilterId, Router
from stentor.routing.rendezvous import Pastry, TypeRendezvousRouter, key_of, metadata
from stentor.simulation.network import Network

MODES = [(store, offers) for store in ("path", "root") for offers in (False, True)]


def network(brokers: int = 12, *, seed: int | None = None, **options: object) -> Network:
    def make(id: BrokerId) -> Router:
        ring = Pastry(id, digit_bits=1, leaves=4)
        return TypeRendezvousRouter(ring, **{"schemas": True} | options)  # type: ignore[arg-type]

    return Network({id: make(id) for id in range(brokers)}, None, seed=seed, make=make)


def router(net: Network, broker: BrokerId) -> TypeRendezvousRouter:
    found = net.router(broker)
    assert isinstance(found, TypeRendezvousRouter)
    return found


def declare(net: Network, at: BrokerId, declaration: EventType) -> None:
    """As a host would: the router's own operation, its outputs carried out."""
    net.apply(at, router(net, at).declare(declaration))


def declared(name: str, **attributes: str) -> EventType:
    return EventTypes().declare(name, attributes=attributes)


def root_of(net: Network, name: str) -> BrokerId:
    rings = {broker: router(net, broker)._ring for broker in net.brokers}
    return next(b for b, ring in rings.items() if ring.next_hop(key_of(name)) is None)


def elsewhere(net: Network, *names: str) -> list[BrokerId]:
    """Brokers that know nothing of these types."""
    return [b for b in net.brokers if not any(router(net, b).declaration(n) for n in names)]


def held(net: Network, broker: BrokerId) -> dict[str, object]:
    repository = router(net, broker)._metadata
    assert repository is not None
    return dict(repository._held)


def refused(net: Network) -> int:
    return sum(router(net, broker).refused for broker in net.brokers)


QUOTE = declared("quote", price="number")


@pytest.mark.spec("R-03.35", "R-07.70")
def test_the_rendezvous_and_its_leaf_set_hold_the_declaration() -> None:
    net = network()
    declare(net, 3, QUOTE)
    net.settle()
    root = root_of(net, "quote")
    ring = router(net, root)._ring
    holders = {broker for broker in net.brokers if "quote" in held(net, broker)}
    assert holders == {root, *ring.leaf_set}
    assert router(net, 3).declaration("quote") == QUOTE


@pytest.mark.spec("R-03.35")
def test_the_declaration_survives_one_rendezvous_after_the_other() -> None:
    net = network()
    declare(net, 3, QUOTE)
    net.settle()
    while len(net.brokers) > 2:
        net.fail_broker(root_of(net, "quote"))
        root = root_of(net, "quote")
        assert router(net, root).declaration("quote") == QUOTE, "before any message arrives"
        net.settle()


@pytest.mark.spec("R-03.35", "03/8.17")
def test_a_newcomer_that_becomes_the_rendezvous_is_given_the_declaration() -> None:
    net = network(5)
    declare(net, 3, QUOTE)
    net.settle()
    old = root_of(net, "quote")
    numbers = iter(range(100, 400))
    while root_of(net, "quote") == old:
        net.add_broker(next(numbers))
        net.settle()
    root = root_of(net, "quote")
    ring = router(net, root)._ring
    assert {b for b in net.brokers if "quote" in held(net, b)} == {root, *ring.leaf_set}


@pytest.mark.spec("R-07.70")
@pytest.mark.parametrize(("store", "offers"), MODES)
def test_a_contradiction_is_refused_at_the_rendezvous_and_then_an_error(
    store: str, offers: bool
) -> None:
    net = network(store=store, advertisements=offers)
    declare(net, root_of(net, "quote"), QUOTE)
    net.settle()
    at, *others = elsewhere(net, "quote")
    subscribers = [net.client(broker) for broker in others]
    for subscriber in subscribers:
        subscriber.subscribe("isa quote")
    net.settle()
    producer = net.client(at)
    producer.advertise("isa quote")
    net.settle()
    producer.publish(Notification({"price": "high"}, type="quote"))
    net.settle()
    assert refused(net) == 1
    assert all(subscriber.received == [] for subscriber in subscribers)
    with pytest.raises(InvalidNotification, match="'price' of event type 'quote' is a string"):
        producer.publish(Notification({"price": "high"}, type="quote"))
    producer.publish(Notification({"price": 1, "more": "is fine"}, type="quote"))
    net.settle()
    assert all(len(subscriber.received) == 1 for subscriber in subscribers)
    assert refused(net) == 1


@pytest.mark.spec("R-07.70", "R-02.22")
def test_the_declarations_of_supertypes_count() -> None:
    net = network()
    declare(net, 0, QUOTE)
    declare(net, 0, declared("quote.stock", symbol="string"))
    net.settle()
    subscriber = net.client(1)
    subscriber.subscribe("isa quote.stock.nyse")
    net.settle()
    producer = net.client(elsewhere(net, "quote", "quote.stock")[0])
    for wrong in ({"price": "high"}, {"symbol": 7}):
        producer.publish(Notification(wrong, type="quote.stock.nyse"))
    producer.publish(Notification({"price": 7, "symbol": "ibm"}, type="quote.stock.nyse"))
    net.settle()
    assert refused(net) == 2
    assert len(subscriber.received) == 1
    with pytest.raises(InvalidNotification, match="declared as number"):
        producer.publish(Notification({"price": "high"}, type="quote.stock.nyse"))


@pytest.mark.spec("R-07.70")
def test_nobody_publishes_events_of_an_abstract_type() -> None:
    net = network()
    declare(net, 0, EventTypes().declare("shape", abstract=True))
    net.settle()
    producer, subscriber = net.client(0), net.client(1)
    subscriber.subscribe("isa shape")
    net.settle()
    with pytest.raises(InvalidNotification, match="abstract; publish one of its subtypes"):
        producer.publish(Notification({"x": 1}, type="shape"))
    producer.publish(Notification({"x": 1}, type="shape.circle"))
    net.settle()
    assert len(subscriber.received) == 1


@pytest.mark.spec("R-07.70")
def test_an_undeclared_type_is_checked_once_and_again_when_it_is_declared() -> None:
    net = network()
    producer, subscriber = net.client(1), net.client(2)
    subscriber.subscribe("isa quote")
    net.settle()
    publish = Notification({"price": "high"}, type="quote")
    producer.publish(publish)
    net.settle()
    before = net.counters.copy()
    producer.publish(publish)
    net.settle()
    assert (net.counters - before).control == 0
    assert len(subscriber.received) == 2
    declare(net, 5, QUOTE)
    net.settle()
    with pytest.raises(InvalidNotification):
        producer.publish(publish)


@pytest.mark.spec("R-03.35", "03/8.17")
@pytest.mark.parametrize("leaves", [True, False])
def test_that_nothing_was_declared_is_true_as_long_as_the_rendezvous_can_tell(leaves: bool) -> None:
    net = network()
    root = root_of(net, "quote")
    at = next(broker for broker in net.brokers if broker != root)
    producer = net.client(at)
    wrong = Notification({"price": "high"}, type="quote")
    producer.publish(wrong)
    net.settle()
    if leaves:
        net.fail_broker(root)
    else:
        numbers = iter(range(100, 400))
        while root_of(net, "quote") == root:
            net.add_broker(next(numbers))
    net.settle()
    declare(net, next(broker for broker in net.brokers if broker != at), QUOTE)
    net.settle()
    producer.publish(wrong)
    net.settle()
    assert refused(net) == 1


@pytest.mark.spec("R-07.70")
def test_a_subscription_that_contradicts_the_declaration_is_an_error_where_it_is_known() -> None:
    net = network()
    declare(net, 0, QUOTE)
    net.settle()
    client = net.client(elsewhere(net, "quote")[0])
    client.subscribe("isa quote and price > 5")  # looks the type up
    net.settle()
    for text in (
        "isa quote and price prefix 'h'",
        "isa quote.stock and price = 'high'",
        "isa quote and price > 5 or isa quote and price = 'high' and symbol = 'ibm'",
    ):
        with pytest.raises(FilterTypeError, match="'price' of event type 'quote' is declared as"):
            client.subscribe(text)
    for text in (
        "isa quote and price != 5",
        "isa quote and not exists price",
        "isa quote and symbol = 'ibm'",
        "_types overlaps ('quote', 'trade') and price = 'high'",
    ):
        client.subscribe(text)
    assert net.table_sizes()[client.at].local == 6


@pytest.mark.spec("R-07.70")
def test_the_first_declaration_counts() -> None:
    net = network()
    other = declared("quote", price="string")
    declare(net, 0, QUOTE)
    net.settle()
    declare(net, 0, QUOTE)  # the same again is harmless
    late = elsewhere(net, "quote")[0]
    declare(net, late, other)  # does not know of the first one yet
    net.settle()
    assert refused(net) == 1
    assert router(net, late).declaration("quote") == QUOTE
    with pytest.raises(UnknownEventType, match="already declared, and differently"):
        declare(net, late, other)


@pytest.mark.spec("R-07.70")
def test_a_declaration_must_be_well_formed_and_wanted() -> None:
    bad = EventType("quote", frozenset(), {"price": "money"}, False)
    with pytest.raises(UnknownEventType, match="not a value type"):
        TypeRendezvousRouter(Pastry(1), schemas=True).declare(bad)
    plain = TypeRendezvousRouter(Pastry(1))
    with pytest.raises(InvalidConfiguration, match="make all routers with schemas"):
        plain.declare(QUOTE)
    assert plain.declaration("quote") is None
    assert plain.refused == 0


def test_a_refused_subscription_leaves_nothing_behind() -> None:
    lone = TypeRendezvousRouter(Pastry(1), schemas=True)
    lone.declare(QUOTE)
    with pytest.raises(FilterTypeError):
        lone.subscribe(FilterId("c", 1), Filter("isa quote and price = 'high'"))
    assert lone.table_size().total == 0
    assert lone.unsubscribe(FilterId("c", 1)) == []


def test_what_brokers_remember_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "REMEMBERED", 2)
    monkeypatch.setattr(metadata, "HELD", 3)
    net = network(2)
    producer, subscriber = net.client(0), net.client(1)
    subscriber.subscribe("isa thing")
    net.settle()
    for number in range(8):
        producer.publish(Notification({"x": number}, type=f"thing.kind{number}"))
        net.settle()
    assert [n["x"] for n in subscriber.received] == list(range(8))
    for broker in net.brokers:
        repository = router(net, broker)._metadata
        assert repository is not None
        assert len(repository._answers) <= 2
        assert len(repository._in_vain) <= 2
    for number in range(8):
        declare(net, 0, declared(f"thing.kind{number}", x="string"))
        net.settle()
    assert all(len(held(net, broker)) == 3 for broker in net.brokers)
    assert refused(net) == 5
    # Forgotten answers are asked for again, so that a declaration still counts.
    with pytest.raises(InvalidNotification):
        producer.publish(Notification({"x": 1}, type="thing.kind0"))


TYPES = ["item", "item.book", "item.book.used"]
VALUES: dict[str, object] = {"number": 1, "string": "one", "bool": True}


@pytest.mark.spec("R-03.35", "R-07.70", "03/8.17")
@settings(max_examples=25)
@given(
    st.sampled_from(MODES),
    st.integers(0, 2**32),
    st.dictionaries(st.sampled_from(TYPES), st.sampled_from(sorted(VALUES)), max_size=3),
    st.lists(st.tuples(st.sampled_from(TYPES), st.sampled_from(sorted(VALUES))), max_size=8),
)
def test_whoever_comes_and_goes_only_legal_events_are_delivered(
    mode: tuple[str, bool],
    seed: int,
    schema: dict[str, str],
    published: list[tuple[str, str]],
) -> None:
    """Each type declares an attribute of its own name; the oracle is the dictionary."""
    store, offers = mode
    chance = random.Random(seed)
    net = network(8, seed=seed, store=store, advertisements=offers)
    for name, value_type in schema.items():
        attribute = name.rpartition(".")[2]
        declare(net, chance.choice(net.brokers), declared(name, **{attribute: value_type}))
        for _ in range(chance.randrange(4)):
            net.step()
    net.settle()
    subscriber = net.client(0)
    subscriber.subscribe("isa item")
    for newcomer in (100, 101):
        net.settle()
        net.fail_broker(chance.choice([b for b in net.brokers if b != 0]))
        if chance.random() < 0.5:
            net.settle()
        net.add_broker(newcomer)
        net.settle()
        before, expected = len(subscriber.received), []
        for name, value_type in published:
            attribute = name.rpartition(".")[2]
            type_name = chance.choice([name, TYPES[-1]])
            legal = schema.get(name) in (None, value_type)  # also as an event of a subtype
            producer = net.client(chance.choice(net.brokers))
            notification = Notification({attribute: VALUES[value_type]}, type=type_name)
            try:
                id = producer.publish(notification)
            except InvalidNotification:
                assert not legal
            else:
                expected += [str(id)] if legal else []
            for _ in range(chance.randrange(4)):
                net.step()
        net.settle()
        assert sorted(str(n.id) for n in subscriber.received[before:]) == sorted(expected)
