"""SIENA's unsubscription by covering, against a model that keeps every subscription."""

from collections import deque
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stentor.errors import UnknownClient
from stentor.filters import Filter
from stentor.filters.siena import SienaAdvertisement, SienaSubscription
from stentor.model import Notification
from stentor.node import Node
from stentor.node.compatibility import SienaNode
from stentor.routing import STRATEGIES, tree_router
from stentor.routing.messages import Update
from stentor.routing.protocol import BrokerId, Deliver, Outputs, Send


class Pair:
    """Two brokers with a link, whose clients speak SIENA's way; all messages arrive at once."""

    def __init__(self, routing: str = "covering", advertisements: str | None = None) -> None:
        self.at = {
            id: SienaNode(Node(tree_router(id, routing, advertisements))) for id in ("east", "west")
        }
        self.messages = 0
        self.received: list[tuple[str, dict[str, Any]]] = []
        for id, other in (("east", "west"), ("west", "east")):
            self.run(id, self.at[id].node.link_up(other))

    def run(self, broker: BrokerId, outputs: Outputs) -> None:
        todo = deque((broker, output) for output in outputs)
        while todo:
            at, output = todo.popleft()
            if isinstance(output, Send):
                self.messages += 1
                to = self.at[str(output.to)].node
                todo.extend((output.to, o) for o in to.receive(at, output.message))
            elif isinstance(output, Deliver):
                self.received.append((output.to, dict(output.notification)))

    def publish(self, attributes: dict[str, Any], at: str = "west") -> list[str]:
        """Who gets it, in order."""
        self.received = []
        client = f"publisher at {at}"
        self.at[at].join(client)
        self.run(at, self.at[at].node.publish(client, Notification(attributes))[1])
        return sorted(client for client, _ in self.received)


def joined(*texts: str) -> SienaNode:
    siena = SienaNode(Node(tree_router("here")))
    siena.join("ann")
    for text in texts:
        siena.subscribe("ann", Filter(text))
    return siena


def delivered(siena: SienaNode, attributes: dict[str, Any]) -> int:
    siena.join("bob")
    _, outputs = siena.node.publish("bob", Notification(attributes))
    return sum(isinstance(o, Deliver) and o.to == "ann" for o in outputs)


# -- worked examples


@pytest.mark.spec("07/E-17", "R-07.64")
def test_e17() -> None:
    siena = joined("x > 5", "x > 0", "y = 1")
    siena.unsubscribe("ann", Filter("x > 0"))
    assert siena.subscriptions("ann") == [Filter("y = 1")]
    # By id, exactly that subscription goes.
    node = Node(tree_router("here"))
    node.join("ann")
    ids = [node.subscribe("ann", Filter(text))[0] for text in ("x > 5", "x > 0", "y = 1")]
    node.unsubscribe("ann", ids[1])
    assert list(node.subscriptions("ann").values()) == [Filter("x > 5"), Filter("y = 1")]


@pytest.mark.spec("R-08.23", "08/5.2")
def test_unsubscribing_what_a_broader_one_covers_carves_nothing_out() -> None:
    siena = joined("x > 0", "x > 10")
    siena.unsubscribe("ann", Filter("x > 10"))
    assert delivered(siena, {"x": 20}) == 1
    siena = joined("x > 10")
    assert siena.unsubscribe("ann", Filter("x > 20")) == []
    assert delivered(siena, {"x": 30}) == 1


@pytest.mark.spec("R-08.23", "08/5.2")
def test_the_empty_filter_unsubscribes_everything() -> None:
    siena = joined("x > 10", "y = 1")
    siena.unsubscribe("ann", Filter(""))
    assert siena.subscriptions("ann") == []
    assert delivered(siena, {"x": 30, "y": 1}) == 0


@pytest.mark.spec("R-08.23")
def test_equal_subscriptions_are_one() -> None:
    siena = joined("x > 3 and x < 5 and x is int", "x = 4 and x is int")
    assert len(siena.subscriptions("ann")) == 1
    siena.unsubscribe("ann", Filter("x = 4"))
    assert delivered(siena, {"x": 4}) == 0


@pytest.mark.spec("R-08.23", "R-08.24")
def test_another_client_is_another_matter() -> None:
    siena = joined("x > 5")
    siena.join("cid")
    siena.subscribe("cid", Filter("x > 0"))
    siena.unsubscribe("cid", Filter(""))
    assert delivered(siena, {"x": 9}) == 1


@pytest.mark.spec("R-08.24")
def test_a_broader_subscription_replaces_without_a_gap() -> None:
    """It is announced before the narrower ones go; a covered one costs nothing at all."""
    pair = Pair("simple")
    east = pair.at["east"]
    east.join("ann")
    pair.run("east", east.subscribe("ann", Filter("x > 5")))
    broader = east.subscribe("ann", Filter("x > 0"))
    updates = [o.message for o in broader if isinstance(o, Send)]
    kinds = [(len(u.added), len(u.removed)) for u in updates if isinstance(u, Update)]
    assert kinds == [(1, 0), (0, 1)]
    assert east.subscribe("ann", Filter("x > 7")) == []
    assert east.subscriptions("ann") == [Filter("x > 0")]


@pytest.mark.spec("R-08.24", "08/8.15")
def test_what_nothing_can_match_is_accepted_and_never_forwarded() -> None:
    siena = joined()
    siena.node.link_up("there")
    assert siena.subscribe("ann", Filter("x = 1 and x = 2")) == []
    assert siena.subscriptions("ann") == []


@pytest.mark.spec("R-08.23", "08/8.13")
def test_unsubscribing_elsewhere_does_nothing() -> None:
    """It acts where the subscription is held, and each place delivers a copy."""
    pair = Pair()
    for broker in ("east", "west"):
        pair.at[broker].join("ann")
        pair.run(broker, pair.at[broker].subscribe("ann", Filter("x > 0")))
    assert pair.publish({"x": 1}) == ["ann", "ann"]
    pair.run("west", pair.at["west"].unsubscribe("ann", Filter("x > 0")))
    assert pair.publish({"x": 1}) == ["ann"]
    assert pair.at["west"].unsubscribe("ann", Filter("x > 0")) == []
    assert pair.at["west"].unsubscribe("nobody", Filter("")) == []


def test_a_client_has_to_join_before_it_subscribes() -> None:
    siena = joined()
    with pytest.raises(UnknownClient, match="join"):
        siena.subscribe("bob", Filter("x > 0"))
    with pytest.raises(UnknownClient, match="join"):
        siena.advertise("bob", SienaAdvertisement())
    with pytest.raises(UnknownClient, match="join"):
        siena.advertisements("bob")


def test_a_client_that_left_begins_anew() -> None:
    siena = joined("x > 0")
    siena.leave("ann")
    siena.join("ann", epoch=1)
    siena.subscribe("ann", Filter("x > 5"))
    assert siena.subscriptions("ann") == [Filter("x > 5")]


# -- advertisements

ALARM = SienaAdvertisement([("event", "string", "=", "alarm"), ("level", "integer", ">", 0)])
LEVEL = SienaAdvertisement([("level", "integer", ">", 5)])
USER = SienaAdvertisement([("user", "string", "any")])


@pytest.mark.spec("R-08.23", "R-08.15")
def test_unadvertising_with_more_attributes_cancels_more() -> None:
    """What covers is the other way round than for subscriptions."""
    siena = joined()
    for advertisement in (LEVEL, USER, LEVEL):
        siena.advertise("ann", advertisement)
    assert siena.advertisements("ann") == [LEVEL, USER]
    siena.unadvertise("ann", SienaAdvertisement())
    siena.unadvertise("ann", SienaAdvertisement([("level", "integer", ">", 6)]))
    assert siena.advertisements("ann") == [LEVEL, USER]
    siena.unadvertise("ann", ALARM)
    assert siena.advertisements("ann") == [USER]
    assert [str(f) for f in siena.node.advertisements("ann").values()] == [str(USER.filter)]
    assert siena.unadvertise("nobody", ALARM) == []


@pytest.mark.spec("R-08.23")
def test_unadvertise_all() -> None:
    pair = Pair(advertisements="simple")
    east, west = pair.at["east"], pair.at["west"]
    east.join("ann")
    west.join("bob")
    wanted = SienaSubscription([("level", "integer", ">", 5)])
    pair.run("west", west.subscribe("bob", wanted.filter))
    for advertisement in (ALARM, USER):
        pair.run("east", east.advertise("ann", advertisement))
    assert len(east.node.router.offers()) == 2
    assert east.node.router.table_size().remote == 1
    pair.run("east", east.unadvertise_all("ann"))
    assert east.advertisements("ann") == []
    assert east.node.router.offers() == west.node.router.offers() == []
    assert east.node.router.table_size().remote == 0
    assert east.unadvertise_all("ann") == east.unadvertise_all("nobody") == []


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
            siena.advertise("ann", advertisement)
            model.add(extension(advertisement))
        else:
            siena.unadvertise("ann", advertisement)
            model = {each for each in model if not each <= extension(advertisement)}
        assert {extension(each) for each in siena.advertisements("ann")} == model
        assert len(siena.node.advertisements("ann")) == len(siena.advertisements("ann"))


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
    pair = Pair(routing)
    east = pair.at["east"]
    model: dict[str, set[str]] = {"ann": set(), "bob": set()}
    for client in model:
        east.join(client)
    for act, client, text in acts:
        if act == "subscribe":
            pair.run("east", east.subscribe(client, FILTERS[text]))
            model[client].add(text)
        else:
            pair.run("east", east.unsubscribe(client, FILTERS[text]))
            covered = {t for t in model[client] if EXTENSIONS[t] <= EXTENSIONS[text]}
            model[client] -= covered
    for index in range(0, len(POINTS), 5):
        wanting = [
            client for client, held in model.items() if any(index in EXTENSIONS[t] for t in held)
        ]
        for at in ("east", "west"):
            assert pair.publish(POINTS[index], at) == wanting
    for client, held in model.items():
        kept = east.subscriptions(client)
        assert not any(a.covers(b) for a in kept for b in kept if a is not b)
        union = frozenset().union(*(EXTENSIONS[t] for t in held))
        assert union == {i for i, p in enumerate(POINTS) if any(f.matches(p) for f in kept)}


@given(_acts)
def test_withdrawing_everything_leaves_nothing(acts: list[tuple[str, str, str]]) -> None:
    pair = Pair()
    east, west = pair.at["east"], pair.at["west"]
    for client in ("ann", "bob"):
        east.join(client)
    for act, client, text in acts:
        change = east.subscribe if act == "subscribe" else east.unsubscribe
        pair.run("east", change(client, FILTERS[text]))
    for client in ("ann", "bob"):
        pair.run("east", east.unsubscribe(client, Filter("")))
    assert east.node.router.table_size().total == west.node.router.table_size().total == 0
