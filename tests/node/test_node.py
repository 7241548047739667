"""The node: what belongs to a client, whatever router is below."""

from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import (
    NotAdvertised,
    RepeatedPublication,
    UnknownClient,
    UnsupportedMapping,
)
from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.node import Node
from stentor.node.gate import Gate
from stentor.routing import (
    Deliver,
    FilterId,
    Outputs,
    Router,
    Send,
    TableSize,
    tree_router,
)
from stentor.routing.graph import GraphRouter
from stentor.routing.messages import AdvertisementUpdate, Forward, SubscriptionUpdate
from stentor.routing.protocol import BrokerId, Message


def quote(price: int, id: NotificationId | None = None) -> Notification:
    return Notification({"price": price}, id=id)


def number(sequence: int, producer: str = "nyse", epoch: int = 0) -> NotificationId:
    return NotificationId(producer, epoch, sequence)


def node_with(*clients: str, routing: str = "covering", neighbors: tuple[int, ...] = ()) -> Node:
    node = Node(tree_router("here", routing))
    for neighbor in neighbors:
        node.link_up(neighbor)
    for client in clients:
        node.join(client)
    return node


class Scripted:
    """A router that answers calls from the network with the same outputs, or refuses all."""

    id: BrokerId = "scripted"
    neighbors: frozenset[BrokerId] = frozenset()

    def __init__(self, *outputs: Any, refuse: bool = False) -> None:
        self._outputs = list(outputs)
        self._refuse = refuse
        self.calls: list[str] = []

    def _answer(self, call: str) -> Outputs:
        self.calls.append(call)
        if self._refuse:
            raise UnsupportedMapping("this filter cannot be carried")
        return [] if call in ("subscribe", "unsubscribe") else list(self._outputs)

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        return self._answer("subscribe")

    def unsubscribe(self, id: FilterId) -> Outputs:
        return self._answer("unsubscribe")

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        return self._answer("advertise")

    def unadvertise(self, id: FilterId) -> Outputs:
        return self._answer("unadvertise")

    def publish(self, client: str, notification: Notification) -> Outputs:
        return self._answer("publish")

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        return self._answer("receive")

    def link_up(self, neighbor: BrokerId) -> Outputs:
        return self._answer("link_up")

    def link_down(self, neighbor: BrokerId) -> Outputs:
        return self._answer("link_down")

    def expired(self, timer: Hashable) -> Outputs:
        return self._answer("expired")

    def table_size(self) -> TableSize:
        return TableSize()

    def offers(self) -> list[Filter]:
        return [Filter("price > 0"), Filter("kind = 'news'")]


def test_the_scripted_router_is_one() -> None:
    assert isinstance(Scripted(), Router)


# -- clients


@pytest.mark.spec("R-03.41")
def test_only_clients_that_joined_are_served() -> None:
    node = node_with("ann")
    assert node.clients == {"ann"}
    for call in (
        lambda: node.subscribe("bob", Filter("")),
        lambda: node.unsubscribe("bob", FilterId("bob", 1)),
        lambda: node.advertise("bob", Filter("")),
        lambda: node.unadvertise("bob", FilterId("bob", 1)),
        lambda: node.publish("bob", quote(1)),
        lambda: node.leave("bob"),
        lambda: node.gate("bob"),
    ):
        with pytest.raises(UnknownClient, match="broker 'here' serves no client 'bob'; let it"):
            call()
    node.leave("ann")
    assert node.clients == frozenset()


@pytest.mark.spec("R-03.41")
def test_joining_twice_changes_nothing() -> None:
    node = node_with("ann")
    node.subscribe("ann", Filter("price > 0"))
    node.join("ann")
    assert list(node.subscriptions("ann").values()) == [Filter("price > 0")]


@pytest.mark.spec("R-03.07")
def test_ids_of_filters_are_never_used_again() -> None:
    node = node_with("ann")
    seen = []
    for epoch in range(3):
        node.join("ann", epoch=epoch)
        for _ in range(2):
            id, _ = node.subscribe("ann", Filter("price > 0"))
            seen += [id, node.advertise("ann", Filter("price > 0"))[0]]
            node.unsubscribe("ann", id)
        node.leave("ann")
    assert len(set(seen)) == len(seen) == 12


@pytest.mark.spec("R-03.07", "03/P12")
def test_what_is_not_held_cannot_be_withdrawn() -> None:
    router = Scripted()
    node = Node(router)
    node.join("ann")
    node.join("bob")
    mine, _ = node.subscribe("ann", Filter(""))
    offer, _ = node.advertise("ann", Filter(""))
    router.calls.clear()
    assert node.unsubscribe("bob", mine) == []
    assert node.unadvertise("bob", offer) == []
    assert node.unsubscribe("ann", offer) == []
    assert router.calls == []
    node.unsubscribe("ann", mine)
    assert node.unsubscribe("ann", mine) == []
    assert router.calls == ["unsubscribe"]


def test_what_the_router_refuses_leaves_nothing_behind() -> None:
    node = Node(Scripted(refuse=True))
    node.join("ann")
    for submit in (node.subscribe, node.advertise):
        with pytest.raises(UnsupportedMapping):
            submit("ann", Filter("price > 0"))
    assert node.subscriptions("ann") == node.advertisements("ann") == {}
    assert not node.gate("ann").offer(quote(1, number(0)))


@pytest.mark.spec("03/A14", "R-03.41", "03/X-03.29")
def test_a_client_that_leaves_withdraws_everything_in_one_step() -> None:
    node = node_with("ann", neighbors=(2,))
    for text in ("price > 0", "price > 50", "price > 20", "price > 90", "kind = 'news'"):
        node.subscribe("ann", Filter(text))
    outputs = node.leave("ann")
    messages = [o.message for o in outputs if isinstance(o, Send)]
    assert len(outputs) == 1  # nothing hidden is announced on the way
    assert messages == [
        SubscriptionUpdate((), (Filter("price > 0"), Filter("kind = 'news'"))),
    ]


@pytest.mark.spec("03/A14", "R-03.41")
def test_where_filters_go_one_by_one_those_that_say_more_go_first() -> None:
    node = Node(GraphRouter("here", "covering"))
    node.link_up("there")
    node.join("ann")
    for text in ("price > 0", "price > 50 and kind = 'news'"):
        node.subscribe("ann", Filter(text))
    added = [
        output.message
        for output in node.leave("ann")
        if isinstance(output, Send) and getattr(output.message, "add", ())
    ]
    assert added == []
    assert node.router.table_size() == 0


@pytest.mark.spec("03/A14", "R-03.41")
def test_a_client_that_leaves_withdraws_its_advertisements_too() -> None:
    node = Node(tree_router("here", "covering", "covering"), enforce_advertisements=True)
    node.link_up(2)
    node.join("ann")
    for text in ("price > 0", "price > 50"):
        node.advertise("ann", Filter(text))
    (send,) = node.leave("ann")
    assert isinstance(send, Send)
    assert send.message == AdvertisementUpdate((), (Filter("price > 0"),))
    assert node.offers() == []


# -- publishing


@pytest.mark.spec("R-03.07", "R-01.08")
def test_publications_are_numbered() -> None:
    node = node_with("ann", "bob")
    ids = [node.publish(client, quote(1))[0].id for client in ("ann", "ann", "bob")]
    assert ids == [number(0, "ann"), number(1, "ann"), number(0, "bob")]
    node.leave("ann")
    node.join("ann", epoch=1)
    assert node.publish("ann", quote(1))[0].id == number(0, "ann", epoch=1)


@pytest.mark.spec("R-03.07", "01/S9")
def test_an_id_is_published_once() -> None:
    node = node_with("nyse")
    node.publish("nyse", quote(1, number(4)))
    with pytest.raises(RepeatedPublication, match="leave the id out to get a new one"):
        node.publish("nyse", quote(2, number(4)))
    published, _ = node.publish("nyse", quote(2, number(5)))
    assert published.id == number(5)


@pytest.mark.spec("R-03.07", "01/S9", "R-01.08")
@given(st.lists(st.one_of(st.none(), st.integers(0, 12)), max_size=12))
def test_no_id_is_given_out_that_a_client_brought(sequences: list[int | None]) -> None:
    """A client may number some of its publications and leave others to its broker."""
    node = node_with("ann")
    used: list[NotificationId | None] = []
    for sequence in sequences:
        id = None if sequence is None else number(sequence, "ann")
        try:
            published, _ = node.publish("ann", quote(1, id))
        except RepeatedPublication:
            continue
        used.append(published.id)
    assert len(set(used)) == len(used)


@pytest.mark.spec("R-03.07", "01/S9")
def test_an_id_of_another_producer_is_published_once_too() -> None:
    """A bridge publishes what came with ids of its own, and something of itself in between."""
    node = node_with("bridge")
    node.publish("bridge", quote(1, number(0, "nyse")))
    node.publish("bridge", quote(2))
    with pytest.raises(RepeatedPublication):
        node.publish("bridge", quote(1, number(0, "nyse")))


@pytest.mark.spec("R-03.26", "R-01.33")
def test_what_is_not_advertised_is_dropped_and_counted() -> None:
    node = Node(tree_router("here", "covering", "covering"), enforce_advertisements=True)
    for client in ("ann", "bob"):
        node.join(client)
    node.subscribe("bob", Filter(""))
    node.advertise("bob", Filter(""))
    published, outputs = node.publish("ann", quote(1))
    assert published.id == number(0, "ann")  # the id is used up all the same
    assert outputs == []
    assert node.refused == 1
    id, _ = node.advertise("ann", Filter("price > 100"))
    assert node.publish("ann", quote(50))[1] == []
    published, outputs = node.publish("ann", quote(120), strict=True)
    assert outputs == [Deliver("bob", published)]
    assert published.id == number(2, "ann")
    node.unadvertise("ann", id)
    with pytest.raises(NotAdvertised, match=r"'ann' has advertised nothing that matches .*120"):
        node.publish("ann", quote(120), strict=True)
    assert node.refused == 3


@pytest.mark.spec("R-01.35")
def test_any_of_the_publishers_advertisements_will_do() -> None:
    node = Node(tree_router("here", "covering", "covering"), enforce_advertisements=True)
    node.join("ann")
    first, _ = node.advertise("ann", Filter("price > 0"))
    node.advertise("ann", Filter("price > 100"))
    node.unadvertise("ann", first)
    node.publish("ann", quote(120), strict=True)
    with pytest.raises(NotAdvertised):
        node.publish("ann", quote(50), strict=True)


@pytest.mark.spec("R-01.37")
def test_offers_can_be_asked_for_what_overlaps() -> None:
    node = Node(Scripted())
    assert node.offers() == [Filter("price > 0"), Filter("kind = 'news'")]
    assert node.offers(Filter("price < 10 and kind = 'sale'")) == [Filter("price > 0")]
    assert node.offers(Filter("price < 0 and kind = 'sale'")) == []


# -- the gate is in the way of everything that is delivered


@pytest.mark.spec("01/A-7", "R-01.20", "01/T-1")
def test_whatever_brings_a_notification_it_is_delivered_once() -> None:
    n = quote(120, number(0))
    delivery, send = Deliver("ann", n), Send(2, Forward(n))
    node = Node(Scripted(delivery, send, delivery))
    node.join("ann")
    node.join("bob")
    node.subscribe("ann", Filter("price > 100"))
    steps = [
        lambda: node.receive(2, Forward(n)),
        lambda: node.link_up(2),
        lambda: node.link_down(2),
        lambda: node.expired("timer"),
        lambda: node.apply(lambda: [delivery, send]),
        lambda: node.publish("bob", quote(1))[1],
        lambda: node.advertise("bob", Filter(""))[1],
    ]
    assert steps[0]() == [delivery, send]
    for step in steps[1:]:
        assert step() == [send]
    assert node.gate("ann").dropped["duplicate"] > 0


@pytest.mark.spec("R-01.18", "01/T-2")
def test_what_a_client_does_not_want_is_not_delivered() -> None:
    node = Node(Scripted(Deliver("ann", quote(50, number(0)))))
    node.join("ann")
    id, _ = node.subscribe("ann", Filter("price > 100"))
    assert node.receive(2, Forward(quote(50, number(0)))) == []
    wide, _ = node.subscribe("ann", Filter("price > 10"))
    node.unsubscribe("ann", wide)
    assert node.receive(2, Forward(quote(50, number(0)))) == []
    assert node.subscriptions("ann") == {id: Filter("price > 100")}


@pytest.mark.spec("R-03.41")
def test_nothing_is_delivered_to_a_client_that_left() -> None:
    node = Node(Scripted(Deliver("ann", quote(50, number(0)))))
    node.join("ann")
    node.subscribe("ann", Filter(""))
    assert node.leave("ann") == []
    assert node.receive(2, Forward(quote(50, number(0)))) == []


@pytest.mark.spec("01/A-7", "01/T-3", "R-01.20")
def test_a_client_that_moves_brings_its_gate() -> None:
    n = quote(120, number(0))
    old, new = (Node(Scripted(Deliver("ann", n))) for _ in range(2))
    old.join("ann")
    old.subscribe("ann", Filter("price > 100"))
    assert old.receive(2, Forward(n)) == [Deliver("ann", n)]
    gate = Gate.from_data(old.gate("ann").to_data())
    old.leave("ann")
    new.join("ann", epoch=1, gate=gate)
    assert new.gate("ann") is gate
    new.subscribe("ann", Filter("price > 100"))
    assert new.receive(2, Forward(n)) == []


@pytest.mark.spec("01/T-3", "R-01.20")
def test_subscribing_again_brings_nothing_again() -> None:
    n = quote(120, number(0))
    node = Node(Scripted(Deliver("ann", n)))
    node.join("ann")
    id, _ = node.subscribe("ann", Filter("price > 100"))
    assert node.receive(2, Forward(n)) == [Deliver("ann", n)]
    node.unsubscribe("ann", id)
    node.subscribe("ann", Filter("price > 100"))
    assert node.receive(2, Forward(n)) == []


@pytest.mark.spec("01/S10", "01/T-6")
def test_a_client_gets_what_it_publishes_itself() -> None:
    node = node_with("ann")
    node.subscribe("ann", Filter("price > 100"))
    published, outputs = node.publish("ann", quote(120))
    assert outputs == [Deliver("ann", published)]
