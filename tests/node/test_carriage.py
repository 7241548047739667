"""Routers that carry notifications themselves: what reaches a client, whatever they bring."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import InvalidConfiguration, RepeatedPublication, UnsupportedMapping
from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.research.trees import CarryingRouter
from stentor.routing import Deliver, tree_router
from stentor.routing.graph import GraphRouter
from stentor.routing.protocol import FilterId
from stentor.simulation import Client, Network
from stentor.simulation.host import Host

F, G = "n in (1, 2)", "n in (2, 3)"


class Component:
    """A client, and a router that brings it whatever it is told to."""

    def __init__(self) -> None:
        self.host = Host({1: CarryingRouter(1)}, [])
        self.client = self.host.client(at=1, id="Y")
        self.held: dict[str, FilterId] = {}

    def do(self, act: str, what: Any) -> None:
        if act == "sub":
            if what not in self.held:
                self.held[what] = self.client.subscribe(what)
        elif act == "unsub":
            if what in self.held:
                self.client.unsubscribe(self.held.pop(what))
        else:
            notification = Notification({"n": what}, id=NotificationId("A", 0, what))
            self.host.apply(1, [Deliver(self.client.known_as, notification)])

    @property
    def received(self) -> list[int]:
        return [n["n"] for n in self.client.received]


@pytest.mark.parametrize(
    ("acts", "delivered"),
    [
        pytest.param([("sub", F), ("bring", 1)], [1], marks=pytest.mark.spec("01/S1")),
        pytest.param(
            [("sub", F), ("unsub", F), ("bring", 1)],
            [],
            marks=pytest.mark.spec("01/S2", "R-01.18", "01/T-2"),
        ),
        pytest.param(
            [("sub", F), ("sub", G), ("unsub", F), ("bring", 2)],
            [2],
            marks=pytest.mark.spec("01/S3", "R-01.18"),
        ),
        pytest.param(
            [("sub", F), ("sub", G), ("bring", 2), ("bring", 2)],
            [2],
            marks=pytest.mark.spec("01/S4", "01/T-1", "R-01.20"),
        ),
        pytest.param(
            [("sub", F), ("bring", 1), ("unsub", F), ("sub", F), ("bring", 1)],
            [1],
            marks=pytest.mark.spec("01/S5", "01/T-3", "R-01.20"),
        ),
        pytest.param(
            [("sub", F), ("sub", F), ("unsub", F), ("bring", 1)],
            [],
            marks=pytest.mark.spec("01/S6", "01/T-5"),
        ),
        pytest.param(
            [("bring", 1), ("sub", F), ("bring", 1)],
            [1],
            marks=pytest.mark.spec("01/S7", "R-01.23"),
        ),
        pytest.param([("sub", F)], [], marks=pytest.mark.spec("01/S8", "R-01.19")),
        pytest.param(
            [("sub", F), ("unsub", F), ("sub", F), ("bring", 1)],
            [1],
            marks=pytest.mark.spec("01/S11"),
        ),
    ],
)
def test_safety_vectors(acts: list[tuple[str, Any]], delivered: list[int]) -> None:
    component = Component()
    for act, what in acts:
        component.do(act, what)
    assert component.received == delivered


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("bring"), st.integers(1, 4)),
            st.tuples(st.sampled_from(["sub", "unsub"]), st.sampled_from([F, G])),
        ),
        max_size=30,
    )
)
@pytest.mark.spec("R-01.18", "R-01.20", "01/A-7", "01/Q5", "01/T-10")
def test_only_what_is_wanted_and_nothing_twice(acts: list[tuple[str, Any]]) -> None:
    component = Component()
    wanted: set[str] = set()
    expected: list[int] = []
    for act, what in acts:
        component.do(act, what)
        if act == "sub":
            wanted.add(what)
        elif act == "unsub":
            wanted.discard(what)
        elif what not in expected and any(Filter(f).matches({"n": what}) for f in wanted):
            expected.append(what)
    assert component.received == expected


@pytest.mark.spec("01/T-5", "01/T-4")
@pytest.mark.parametrize("make", [CarryingRouter, tree_router])
def test_equal_filters_are_two_subscriptions_and_equal_readings_two_notifications(
    make: Any,
) -> None:
    client = Host({1: make(1)}, []).client(at=1)
    first, _ = client.subscribe(F), client.subscribe(F)
    client.unsubscribe(first)
    client.publish({"n": 1})
    client.publish({"n": 1})
    assert len(client.received) == 2
    assert client.received[0].id != client.received[1].id


@pytest.mark.spec("01/S10", "01/T-6")
def test_a_client_gets_what_it_publishes_itself() -> None:
    client = Network.mesh(1).client(at=1)
    client.subscribe(F)
    client.publish({"n": 1})
    assert len(client.received) == 1


def brings(client: Client, sequence: int) -> NotificationId:
    id = NotificationId(client.id, 0, sequence)
    return client.publish(Notification({"n": 1}, id=id))


@pytest.mark.spec("R-03.07", "01/S9", "R-01.08", "R-04.02")
@given(st.lists(st.one_of(st.none(), st.integers(0, 12)), max_size=12))
def test_no_id_is_given_out_twice_nor_taken_twice(sequences: list[int | None]) -> None:
    client = Network.tree([], brokers=[1]).client(at=1)
    used: set[NotificationId] = set()
    for sequence in sequences:
        if sequence is None:
            id = client.publish({"n": 1})
        elif NotificationId(client.id, 0, sequence) in used:
            with pytest.raises(RepeatedPublication, match="leave the id out to get a new one"):
                brings(client, sequence)
            continue
        else:
            id = brings(client, sequence)
        assert id not in used
        used.add(id)


@pytest.mark.spec("03/A14", "R-03.41")
def test_where_filters_go_one_by_one_those_that_say_more_go_first() -> None:
    routers = {id: GraphRouter(id, "covering") for id in ("here", "there")}
    net = Host(routers, [("here", "there")])
    client = net.client(at="here")
    for text in ("price > 0", "price > 50 and kind = 'news'"):
        client.subscribe(text)
    net.settle()
    before = net.counters.copy()
    client.leave()
    net.settle()
    assert (net.counters - before).subscriptions == 1  # nothing hidden is announced on the way
    assert sum(net.table_sizes().values()) == 0


def test_what_the_router_refuses_leaves_nothing_behind() -> None:
    net = Network.rendezvous(3, "boxes", axes=[("price", 0, 1000)])
    client = net.client(at=1)
    for _ in range(2):
        with pytest.raises(UnsupportedMapping):
            client.subscribe("color = 'red'")
    assert client.subscriptions == {}
    client.subscribe("price > 100")
    with pytest.raises(UnsupportedMapping):
        client.subscribe("color = 'red'")
    net.settle()
    client.publish({"price": 200, "color": "red"})
    net.settle()
    assert len(client.received) == 1
    assert net.check().ok


@pytest.mark.spec("R-01.35", "R-01.37")
def test_any_of_the_publishers_advertisements_will_do_and_all_can_be_asked_for() -> None:
    net = Network.tree([(1, 2)], "covering", "simple")
    producer, consumer = net.client(at=1), net.client(at=2)
    producer.advertise("price > 10")
    producer.advertise("kind = 'news'")
    consumer.subscribe("")
    net.settle()
    producer.publish({"price": 20})
    producer.publish({"kind": "news"})
    producer.publish({"price": 5})
    net.settle()
    assert len(consumer.received) == 2
    assert consumer.offers("kind = 'news' and not exists price") == [Filter("kind = 'news'")]


def test_what_carries_itself_keeps_no_journals() -> None:
    net = Network.mesh(2)
    for options in ({"durable": "desk"}, {"journaled": True}):
        with pytest.raises(InvalidConfiguration, match="keep no journals"):
            net.client(at=1, **options)
