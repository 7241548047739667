"""Batching: the same deliveries with fewer messages."""

from collections.abc import Callable, Hashable
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import InvalidConfiguration
from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.research.batching import (
    AdvertisementBatch,
    Batch,
    BatchingRouter,
    ControlBatch,
    Flush,
    NotificationBatch,
    SubscriptionBatch,
    batch,
)
from stentor.research.first_arrival import FirstArrivalRouter
from stentor.research.flooding import FloodingRouter, SubscriptionFloodingRouter
from stentor.research.trees import CarryingRouter
from stentor.research.trees.change import ChangeStep, Forward, Plan
from stentor.routing import STRATEGIES, Router
from stentor.routing.messages import AdvertisementUpdate, SubscriptionUpdate
from stentor.routing.protocol import (
    Arm,
    BrokerId,
    Close,
    Deliver,
    FilterId,
    Message,
    Outputs,
    Send,
)
from stentor.simulation import Client
from stentor.simulation.host import Host

F, G, H = Filter("x = 1"), Filter("x = 2"), Filter("x in (1, 2)")
ANN = FilterId("ann", 1)


def note(x: int = 1, sequence: int = 0) -> Notification:
    return Notification({"x": x}, id=NotificationId("bob", 0, sequence))


def sub(*filters: Filter) -> SubscriptionUpdate:
    return SubscriptionUpdate(tuple((f, f) for f in filters), ())


def unsub(*filters: Filter) -> SubscriptionUpdate:
    return SubscriptionUpdate((), filters)


class Script:
    """A router that answers each publication with the next outputs of a script."""

    def __init__(self, *steps: Outputs) -> None:
        self._steps = list(steps)
        self.heard: list[tuple[BrokerId, Message]] = []
        self.expiries: list[Hashable] = []

    def publish(self, client: str, notification: Notification) -> Outputs:
        return self._steps.pop(0)

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        self.heard.append((sender, message))
        return []

    def expired(self, timer: Hashable) -> Outputs:
        self.expiries.append(timer)
        return []

    def link_down(self, neighbor: BrokerId) -> Outputs:
        return []

    link_up = link_down


def scripted(*steps: Outputs, limit: int = 100) -> tuple[BatchingRouter, Script]:
    script = Script(*steps)
    return BatchingRouter(cast(Router, script), delay=1.0, limit=limit), script


def sending(*messages: Message, limit: int = 100) -> BatchingRouter:
    """A router that sends the next message to `there` at each publication."""
    return scripted(*(cast(Outputs, [Send("there", m)]) for m in messages), limit=limit)[0]


def collected(*messages: Message) -> list[Message]:
    """What arrives when these are sent while the outbox waits."""
    router = sending(*messages)
    for _ in messages:
        router.publish("bob", note())
    sent = [cast(Send, output).message for output in router.expired(Flush("there"))]
    return [m for s in sent for m in (s.messages if isinstance(s, Batch) else (s,))]


# -- outboxes


@pytest.mark.spec("R-03.04", "R-08.59")
def test_messages_wait_and_leave_together_in_order() -> None:
    messages = [sub(F), Forward(note()), sub(G)]
    router = sending(*messages)
    assert router.publish("bob", note()) == [Arm(Flush("there"), 1.0)]
    assert router.publish("bob", note()) == router.publish("bob", note()) == []
    assert router.expired(Flush("there")) == [Send("there", NotificationBatch(tuple(messages)))]
    assert router.expired(Flush("there")) == []


def test_each_neighbor_has_an_outbox_of_its_own() -> None:
    step: Outputs = [Send("a", sub(F)), Deliver("ann", note()), Send("b", sub(F))]
    router, _ = scripted(step, step)
    waiting = router.publish("bob", note())
    assert waiting == [Arm(Flush("a"), 1.0), Deliver("ann", note()), Arm(Flush("b"), 1.0)]
    router.publish("bob", note())
    assert router.expired(Flush("b")) == [Send("b", SubscriptionBatch((sub(F), sub(F))))]
    assert router.flush("c") == []


def test_a_full_outbox_does_not_wait() -> None:
    messages = [Forward(note(sequence=i)) for i in range(4)]
    router = sending(*messages, limit=3)
    router.publish("bob", note())
    router.publish("bob", note())
    assert router.publish("bob", note()) == [Send("there", NotificationBatch(tuple(messages[:3])))]
    # The next one starts the clock anew, so that the old timer cannot cut its wait short.
    assert router.publish("bob", note()) == [Arm(Flush("there"), 1.0)]


def test_a_single_message_is_not_wrapped() -> None:
    router = sending(sub(F))
    router.publish("bob", note())
    assert router.expired(Flush("there")) == [Send("there", sub(F))]


@pytest.mark.spec("R-03.04")
@pytest.mark.parametrize(
    ("messages", "of_kind"),
    [
        ([Forward(note()), sub(F)], NotificationBatch),
        ([sub(F), Forward(note())], NotificationBatch),
        ([AdvertisementUpdate((), (F,)), sub(F)], SubscriptionBatch),
        ([AdvertisementUpdate((), (F,))] * 2, AdvertisementBatch),
        ([ChangeStep(Plan(1, (1, 2), 0), "sweep")] * 2, ControlBatch),
    ],
)
def test_a_batch_counts_as_the_weightiest_of_its_messages(
    messages: list[Message], of_kind: type[Batch]
) -> None:
    assert type(batch(messages)) is of_kind


def test_the_receiver_handles_one_message_after_the_other() -> None:
    router, script = scripted()
    router.receive("there", SubscriptionBatch((unsub(F), sub(F))))
    router.receive("there", sub(G))
    assert script.heard == [("there", unsub(F)), ("there", sub(F)), ("there", sub(G))]


def test_timers_of_the_wrapped_router_are_passed_on() -> None:
    router, script = scripted()
    router.expired("own")
    assert script.expiries == ["own"]


def test_options_that_make_no_batches_are_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="delay"):
        BatchingRouter(CarryingRouter(1), delay=0)
    with pytest.raises(InvalidConfiguration, match="limit"):
        BatchingRouter(CarryingRouter(1), limit=1)


# -- nothing is united, and only what provably cancels is left out


@pytest.mark.spec("03/8.12")
def test_withdrawing_and_announcing_again_is_not_united() -> None:
    """United into one set, F would end withdrawn or announced by accident."""
    receiver = BatchingRouter(CarryingRouter("here"))
    receiver.link_up("there")
    receiver.receive("there", sub(F))
    receiver.receive("there", SubscriptionBatch((unsub(F), sub(G), sub(F))))
    assert receiver.table_size().remote == 2
    receiver.receive("there", SubscriptionBatch((sub(H), unsub(H))))
    assert receiver.table_size().remote == 2
    assert collected(unsub(F), sub(G), sub(F)) == [unsub(F), sub(G), sub(F)]


@pytest.mark.spec("08/8.14")
@pytest.mark.parametrize(
    ("sent", "left"),
    [
        pytest.param([sub(F), unsub(F)], [], id="a pair"),
        pytest.param([unsub(F), sub(F)], [], id="the other way round"),
        pytest.param([sub(F), unsub(F), sub(F)], [sub(F)], id="the last word counts"),
        pytest.param([sub(G), sub(F), unsub(F), unsub(G)], [], id="nested"),
        pytest.param([sub(F), sub(G), unsub(F)], [sub(F), sub(G), unsub(F)], id="not adjacent"),
        pytest.param(
            [SubscriptionUpdate(((H, H),), (F, G)), SubscriptionUpdate(((G, G), (F, F)), (H,))],
            [],
            id="a coverer comes and goes",
        ),
        pytest.param([sub(F, G), unsub(F)], [sub(F, G), unsub(F)], id="only a part"),
        pytest.param(
            [sub(F), AdvertisementUpdate((), (F,))],
            [sub(F), AdvertisementUpdate((), (F,))],
            id="different kinds",
        ),
        pytest.param(
            [sub(F), Forward(note()), unsub(F)],
            [sub(F), Forward(note()), unsub(F)],
            id="something in between",
        ),
    ],
)
def test_what_cancels(sent: list[Message], left: list[Message]) -> None:
    assert collected(*sent) == left


# -- links


@pytest.mark.spec("08/8.14")
def test_flushed_before_a_planned_disconnect() -> None:
    router, _ = scripted(
        [Send("there", sub(F)), Send("there", sub(G))], [Send("there", unsub(F)), Close("there")]
    )
    router.publish("bob", note())
    assert router.flush("there") == [Send("there", SubscriptionBatch((sub(F), sub(G))))]
    assert router.publish("bob", note()) == [
        Arm(Flush("there"), 1.0),
        Send("there", unsub(F)),
        Close("there"),
    ]


def test_a_failed_link_takes_its_outbox_along_and_it_is_counted() -> None:
    router = BatchingRouter(CarryingRouter("here"))
    router.link_up("there")
    router.subscribe(ANN, F)
    router.link_down("there")
    assert router.lost == 1
    assert router.neighbors == frozenset()
    assert router.expired(Flush("there")) == []
    # A new link is told everything, and only once, also if it comes up again unannounced.
    router.link_up("there")
    router.link_up("there")
    assert router.flush("there") == [Send("there", sub(F))]
    assert router.lost == 2


@pytest.mark.spec("08/8.14")
def test_a_withdrawal_that_waits_arrives_before_the_link_goes() -> None:
    """Otherwise the neighbor would go on with what it was told before."""
    here, there = BatchingRouter(CarryingRouter("here")), BatchingRouter(CarryingRouter("there"))
    here.link_up("there")
    there.link_up("here")
    here.subscribe(ANN, F)
    for flushed in (1, 0):
        for output in here.flush("there"):
            there.receive("here", cast(Send, output).message)
        assert there.table_size().remote == flushed
        here.unsubscribe(ANN)
    here.link_down("there")
    assert here.lost == 0


# -- whole networks

LINKS: list[tuple[BrokerId, BrokerId]] = [(1, 2), (2, 3), (2, 4), (4, 5)]
BROKERS: list[BrokerId] = [1, 2, 3, 4, 5]
RING: list[tuple[BrokerId, BrokerId]] = [*LINKS, (5, 1)]
WANTED = ("x > 0", "x > 2", "x = 3", "x in (1, 3)", "y = 1", "x > 0 and y = 1")
_acts = st.lists(
    st.tuples(
        st.sampled_from(
            (
                "subscribe",
                "subscribe",
                "unsubscribe",
                "publish",
                "flush",
                "steps",
                "steps",
                "settle",
            )
        ),
        st.integers(0, 59),
    ),
    max_size=40,
)
Make = Callable[[BrokerId], Router]


class Hurried(Host):
    """A host under which outboxes are also emptied while messages are on their way."""

    def flush(self, number: int) -> None:
        links = [channel for link in self.links for channel in (link, link[::-1])]
        at, to = links[number % len(links)]
        router = cast(BatchingRouter, self.router(at))
        self.apply(at, router.flush(to))


def run(net: Host, acts: list[tuple[str, int]], advertise: bool = False) -> None:
    """Clients at all brokers do what the acts say, while messages are on their way."""
    clients = [net.client(at=broker, id=f"at {broker}") for broker in BROKERS]
    held: list[tuple[Client, FilterId]] = []
    if advertise:
        for client in clients:
            client.advertise("x > 1" if client.at == 1 else "true")
    for act, number in acts:
        client = clients[number % len(clients)]
        if act == "subscribe":
            held.append((client, client.subscribe(WANTED[number % len(WANTED)])))
        elif act == "unsubscribe" and held:
            client, id = held.pop(number % len(held))
            client.unsubscribe(id)
        elif act == "publish":
            client.publish({"x": number % 4, "y": number % 3})
        elif act == "steps":
            for _ in range(number % 7):
                net.step()
        elif act == "flush" and isinstance(net, Hurried):
            net.flush(number)
        elif act == "settle":
            net.settle()
    net.settle()


@pytest.mark.spec("R-03.04", "R-08.59", "03/P9")
@settings(max_examples=36)
@given(_acts, st.sampled_from(STRATEGIES), st.integers(2, 5), st.integers(0, 2**32), st.booleans())
def test_deliveries_stay_exact_on_trees(
    acts: list[tuple[str, int]], routing: str, limit: int, seed: int, advertise: bool
) -> None:
    """Whatever the interleaving; the orders that trees keep are kept as well."""
    offers = "covering" if advertise else None
    net = Hurried(
        {b: BatchingRouter(CarryingRouter(b, routing, offers), limit=limit) for b in BROKERS},
        LINKS,
        seed=seed,
        advertisements=advertise,
    )
    run(net, acts, advertise)
    report = net.check(order=("fifo", "causal"))
    assert report.ok, report
    assert net.counters.lost == 0


@pytest.mark.spec("R-03.04")
@settings(max_examples=30)
@given(_acts, st.integers(0, 2**32))
def test_any_router_can_be_wrapped(acts: list[tuple[str, int]], seed: int) -> None:
    makers: list[tuple[Make, Any]] = [
        (FirstArrivalRouter, RING),
        (FloodingRouter, RING),
        (lambda b: SubscriptionFloodingRouter(b, "identity"), None),
    ]
    for make, links in makers:
        net = Hurried({b: BatchingRouter(make(b), limit=4) for b in BROKERS}, links, seed=seed)
        run(net, acts)
        report = net.check()
        assert report.ok, report


@pytest.mark.spec("R-03.04")
@settings(max_examples=30)
@given(_acts, st.sampled_from(STRATEGIES))
def test_there_are_never_more_messages(acts: list[tuple[str, int]], routing: str) -> None:
    """With the same order of arrivals: every act settled before the next."""
    acts = [act for each in acts for act in (each, ("settle", 0))]
    plain = Host({b: CarryingRouter(b, routing) for b in BROKERS}, LINKS)
    batched = Host({b: BatchingRouter(CarryingRouter(b, routing)) for b in BROKERS}, LINKS)
    run(plain, acts)
    run(batched, acts)
    assert batched.counters.messages <= plain.counters.messages
    assert batched.counters.delivered == plain.counters.delivered


@pytest.mark.spec("R-03.04")
def test_fewer_messages_more_delay() -> None:
    """A burst of 50 over four hops: 200 messages or 4, and the wait at each hop."""

    def burst(make: Make) -> tuple[int, int, float]:
        line: list[BrokerId] = [1, 2, 3, 4, 5]
        net = Host({b: make(b) for b in line}, pairwise(line))
        sink = net.client(at=5)
        sink.subscribe("true")
        net.settle()
        before, start = net.counters.copy(), net.now
        source = net.client(at=1)
        for x in range(50):
            source.publish({"x": x})
        net.settle()
        assert [n["x"] for n in sink.received] == list(range(50))
        assert net.check(order=("fifo",)).ok
        return len(sink.received), (net.counters - before).notifications, net.now - start

    assert burst(CarryingRouter) == (50, 200, 0.0)
    assert burst(lambda b: BatchingRouter(CarryingRouter(b), delay=1.0)) == (50, 4, 4.0)


@pytest.mark.spec("08/8.14")
def test_subscribing_and_unsubscribing_at_once_costs_nothing() -> None:
    net = Host({b: BatchingRouter(CarryingRouter(b)) for b in BROKERS}, LINKS)
    client = net.client(at=1)
    for text in WANTED:
        client.unsubscribe(client.subscribe(text))
    net.settle()
    assert net.counters.messages == 0
