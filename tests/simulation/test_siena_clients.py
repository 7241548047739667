"""SIENA's unsubscription by covering, against a model that keeps every subscription."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stentor.filters import Filter
from stentor.filters.siena import SienaAdvertisement, SienaSubscription
from stentor.routing import STRATEGIES
from stentor.routing.messages import Update
from stentor.simulation import Network
from stentor.simulation.siena import SienaClient


def pair(routing: str = "covering", advertisements: str | None = None) -> Network:
    return Network.tree([("east", "west")], routing, advertisements)


def joined(*texts: str) -> SienaClient:
    siena = SienaClient(Network.tree([], brokers=["here"]).client(at="here", id="ann"))
    for text in texts:
        siena.subscribe(Filter(text))
    return siena


def delivered(siena: SienaClient, attributes: dict[str, Any]) -> int:
    before = len(siena.client.received)
    siena.client.host.client(at="here").publish(attributes)
    return len(siena.client.received) - before


# -- worked examples


@pytest.mark.spec("07/E-17", "R-07.64")
def test_e17() -> None:
    siena = joined("x > 5", "x > 0", "y = 1")
    siena.unsubscribe(Filter("x > 0"))
    assert siena.subscriptions == [Filter("y = 1")]
    # By id, exactly that subscription goes.
    client = Network.tree([], brokers=["here"]).client(at="here")
    ids = [client.subscribe(text) for text in ("x > 5", "x > 0", "y = 1")]
    client.unsubscribe(ids[1])
    assert list(client.subscriptions.values()) == [Filter("x > 5"), Filter("y = 1")]


@pytest.mark.spec("R-08.23", "08/5.2")
def test_unsubscribing_what_a_broader_one_covers_carves_nothing_out() -> None:
    siena = joined("x > 0", "x > 10")
    siena.unsubscribe(Filter("x > 10"))
    assert delivered(siena, {"x": 20}) == 1
    siena = joined("x > 10")
    siena.unsubscribe(Filter("x > 20"))
    assert delivered(siena, {"x": 30}) == 1


@pytest.mark.spec("R-08.23", "08/5.2")
def test_the_empty_filter_unsubscribes_everything() -> None:
    siena = joined("x > 10", "y = 1")
    siena.unsubscribe(Filter(""))
    assert siena.subscriptions == []
    assert delivered(siena, {"x": 30, "y": 1}) == 0


@pytest.mark.spec("R-08.23")
def test_equal_subscriptions_are_one() -> None:
    siena = joined("x > 3 and x < 5 and x is int", "x = 4 and x is int")
    assert len(siena.subscriptions) == 1
    siena.unsubscribe(Filter("x = 4"))
    assert delivered(siena, {"x": 4}) == 0


@pytest.mark.spec("R-08.23", "R-08.24")
def test_another_client_is_another_matter() -> None:
    siena = joined("x > 5")
    other = SienaClient(siena.client.host.client(at="here"))
    other.subscribe(Filter("x > 0"))
    other.unsubscribe(Filter(""))
    assert delivered(siena, {"x": 9}) == 1


@pytest.mark.spec("R-08.24")
def test_a_broader_subscription_replaces_without_a_gap() -> None:
    """It is announced before the narrower ones go; a covered one costs nothing at all."""
    net = pair("simple")
    ann = SienaClient(net.client(at="east"))
    ann.subscribe(Filter("x > 5"))
    net.settle()
    ann.subscribe(Filter("x > 0"))
    updates = [each for each in net.on_the_way("east", "west") if isinstance(each, Update)]
    assert [(len(u.added), len(u.removed)) for u in updates] == [(1, 0), (0, 1)]
    net.settle()
    ann.subscribe(Filter("x > 7"))
    assert net.pending == []
    assert ann.subscriptions == [Filter("x > 0")]


@pytest.mark.spec("R-08.24", "08/8.15")
def test_what_nothing_can_match_is_accepted_and_never_forwarded() -> None:
    net = pair()
    ann = SienaClient(net.client(at="east"))
    ann.subscribe(Filter("x = 1 and x = 2"))
    assert net.pending == []
    assert ann.subscriptions == []


@pytest.mark.spec("R-08.23", "08/8.13")
def test_unsubscribing_elsewhere_does_nothing() -> None:
    """It acts where the subscription is held, and each place delivers a copy."""
    net = pair()
    east, west = (SienaClient(net.client(at=at)) for at in ("east", "west"))
    publisher = net.client(at="west")
    for siena in (east, west):
        siena.subscribe(Filter("x > 0"))
    net.settle()
    publisher.publish({"x": 1})
    net.settle()
    west.unsubscribe(Filter("x > 0"))
    west.unsubscribe(Filter("x > 0"))
    publisher.publish({"x": 1})
    net.settle()
    assert (len(east.client.received), len(west.client.received)) == (2, 1)


# -- advertisements

ALARM = SienaAdvertisement([("event", "string", "=", "alarm"), ("level", "integer", ">", 0)])
LEVEL = SienaAdvertisement([("level", "integer", ">", 5)])
USER = SienaAdvertisement([("user", "string", "any")])


@pytest.mark.spec("R-08.23", "R-08.15")
def test_unadvertising_with_more_attributes_cancels_more() -> None:
    """What covers is the other way round than for subscriptions."""
    siena = joined()
    for advertisement in (LEVEL, USER, LEVEL):
        siena.advertise(advertisement)
    assert siena.advertisements == [LEVEL, USER]
    siena.unadvertise(SienaAdvertisement())
    siena.unadvertise(SienaAdvertisement([("level", "integer", ">", 6)]))
    assert siena.advertisements == [LEVEL, USER]
    siena.unadvertise(ALARM)
    assert siena.advertisements == [USER]
    assert [str(f) for f in siena.client.advertisements.values()] == [str(USER.filter)]


@pytest.mark.spec("R-08.23")
def test_unadvertise_all() -> None:
    net = pair(advertisements="simple")
    ann, bob = (SienaClient(net.client(at=at)) for at in ("east", "west"))
    bob.subscribe(SienaSubscription([("level", "integer", ">", 5)]).filter)
    for advertisement in (ALARM, USER):
        ann.advertise(advertisement)
    net.settle()
    east, west = net.router("east"), net.router("west")
    assert len(east.offers()) == 2
    assert east.table_size().remote == 1
    ann.unadvertise_all()
    net.settle()
    assert ann.advertisements == []
    assert east.offers() == west.offers() == []
    assert east.table_size().remote == 0


_values = st.sampled_from(
    [("a", "integer", op, n) for op in (">", "<") for n in (1, 3, 5)]
    + [("b", "integer", "=", n) for n in (1, 2)]
)
_advertisements = st.lists(_values, max_size=3).map(SienaAdvertisement)


@pytest.mark.spec("R-08.23")
@given(st.lists(st.tuples(st.booleans(), _advertisements), max_size=12))
def test_advertisements_like_a_set(acts: list[tuple[bool, SienaAdvertisement]]) -> None:
    """Covering is decided by the model from the notifications that are advertised."""
    points = [
        {name: value for name, value in (("a", a), ("b", b)) if value is not None}
        for a in (None, -(2**60), *range(7), 2**60)
        for b in (None, 1, 2)
    ]

    def extension(advertisement: SienaAdvertisement) -> frozenset[int]:
        return frozenset(i for i, point in enumerate(points) if advertisement.admits(point))

    siena = joined()
    model: set[frozenset[int]] = set()
    for comes, advertisement in acts:
        if comes:
            siena.advertise(advertisement)
            model.add(extension(advertisement))
        else:
            siena.unadvertise(advertisement)
            model = {each for each in model if not each <= extension(advertisement)}
        assert {extension(each) for each in siena.advertisements} == model
        assert len(siena.client.advertisements) == len(siena.advertisements)


# -- the model: a set of filters, each the set of points that it matches

POINTS = [{"x": x / 2, "y": y} for x in range(-1, 14) for y in (0, 1, 2)]
TEXTS = [
    "",
    "y = 1",
    "x = 3",
    "x = 1 and x = 2",
    "x > 2 or y = 1",
    *(f"x > {n}" for n in range(6)),
    *(f"x <= {n}" for n in range(1, 6)),
    *(f"x > {n} and y = 1" for n in range(3)),
    *(f"x > {low} and x < {low + width}" for low in range(4) for width in (1, 2)),
]
FILTERS = {text: Filter(text) for text in TEXTS}
EXTENSIONS = {
    text: frozenset(i for i, point in enumerate(POINTS) if filter.matches(point))
    for text, filter in FILTERS.items()
}
_acts = st.lists(
    st.tuples(
        st.sampled_from(("subscribe", "subscribe", "unsubscribe")),
        st.sampled_from(("ann", "bob")),
        st.sampled_from(TEXTS),
    ),
    max_size=12,
)


@pytest.mark.spec("R-08.23", "R-08.24", "R-07.64", "08/6.8")
@given(st.sampled_from(STRATEGIES), _acts)
@example("simple", [("subscribe", "ann", "x > 0"), ("subscribe", "ann", "")])
def test_nobody_can_tell_that_only_the_broadest_are_held(
    routing: str, acts: list[tuple[str, str, str]]
) -> None:
    """The model keeps every subscription and decides covering by the points that are matched."""
    net = pair(routing)
    clients = {name: SienaClient(net.client(at="east", id=name)) for name in ("ann", "bob")}
    publishers = [net.client(at=at) for at in ("east", "west")]
    model: dict[str, set[str]] = {name: set() for name in clients}
    for act, client, text in acts:
        if act == "subscribe":
            clients[client].subscribe(FILTERS[text])
            model[client].add(text)
        else:
            clients[client].unsubscribe(FILTERS[text])
            covered = {t for t in model[client] if EXTENSIONS[t] <= EXTENSIONS[text]}
            model[client] -= covered
    net.settle()
    for index in range(0, len(POINTS), 5):
        for publisher in publishers:
            before = {name: len(s.client.received) for name, s in clients.items()}
            publisher.publish(POINTS[index])
            net.settle()
            for name, held in model.items():
                wants = any(index in EXTENSIONS[t] for t in held)
                assert len(clients[name].client.received) - before[name] == wants
    for name, held in model.items():
        kept = clients[name].subscriptions
        assert not any(a.covers(b) for a in kept for b in kept if a is not b)
        union = frozenset().union(*(EXTENSIONS[t] for t in held))
        assert union == {i for i, p in enumerate(POINTS) if any(f.matches(p) for f in kept)}


@given(_acts)
def test_withdrawing_everything_leaves_nothing(acts: list[tuple[str, str, str]]) -> None:
    net = pair()
    clients = {name: SienaClient(net.client(at="east", id=name)) for name in ("ann", "bob")}
    for act, client, text in acts:
        siena = clients[client]
        (siena.subscribe if act == "subscribe" else siena.unsubscribe)(FILTERS[text])
    for siena in clients.values():
        siena.unsubscribe(Filter(""))
    net.settle()
    assert sum(net.table_sizes().values()) == 0
