"""Whatever fails and in whatever order things happen, everything that is promised is kept.

The histories are in `live_histories`; thousands run when asked for. Here also what a history does
not have: planned schedules for faults that chance finds rarely.
"""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import judge, judge_empty
from live_histories import run_history, small
from overlay import Overlay, said

from stentor.filters import Filter
from stentor.model import Notification, encode
from stentor.node.agenda import ToClient
from stentor.protocol import messages as m
from stentor.simulation.client import Client

PROMISES = pytest.mark.spec("R-07.60", "R-07.73", "R-01.69", "R-01.96", "01/A-14")


@PROMISES
def test_histories() -> None:
    for seed in range(12):
        run_history(seed)


@PROMISES
@settings(max_examples=10)
@given(st.integers(0, 2**32))
def test_any_history(seed: int) -> None:
    run_history(seed)


@pytest.mark.slow
@PROMISES
def test_two_thousand_histories() -> None:
    for seed in range(1_000, 3_000):
        run_history(seed)


def test_a_history_depends_on_its_seed_alone() -> None:
    """Not on the order of sets, which each process has for itself; so every one can be repeated."""
    program = Path(__file__).with_name("traced_histories.py")
    seeds = ["1147", "2014:rendezvous", "2100:rendezvous", "7:settling"]
    traces = [
        subprocess.run(
            [sys.executable, program, *seeds],
            env=os.environ | {"PYTHONHASHSEED": str(number)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in (0, 1)
    ]
    assert traces[0] == traces[1]
    assert len(traces[0].splitlines()) == len(seeds)


def line_of(*names: str) -> Overlay:
    """Brokers one behind the other."""
    return Overlay(list(pairwise(names)))


def only(sim: Overlay, *allowed: tuple[str, str]) -> None:
    """Let happen all that can, but messages only on these links."""
    sim.schedule.lazy = set()
    while True:
        found = [(k, w) for k, w in sim.choices() if k != "link" or w in allowed]
        if not found:
            return
        sim.happen(*found[0])


def publish(client: Client, *xs: int) -> None:
    for x in xs:
        client.send([{"x": x}])


@pytest.mark.spec("R-07.60")
def test_what_is_published_behind_a_broken_link_comes_when_it_is_mended() -> None:
    sim = line_of("a", "b", "c")
    near, far = sim.client(at="a"), sim.client(at="c")
    sim.settle()
    sim.disconnect("b", "c")
    sub = near.open("true")  # the broker c cannot be asked
    sim.advance()
    assert sub.in_force is not None
    publish(far, 1, 2)
    sim.advance()
    assert not sub.given
    sim.settle()
    assert [offset for _, offset, _ in sub.given] == [1, 2]
    judge(sim)


@pytest.mark.spec("R-07.60")
def test_the_beginning_is_known_even_if_the_stream_is_interrupted_at_once() -> None:
    """A link fails twice: before the subscription is in force, and right after."""
    sim = line_of("a", "b", "c")
    near, far = sim.client(at="a"), sim.client(at="c")
    sim.settle()
    publish(far, 0)
    sim.settle()
    sub = near.open("true")
    only(sim)  # the probe is on its way
    sim.disconnect("b", "c")
    sim.connect("b", "c")
    only(sim, ("b", "a"), ("b", "c"), ("c", "b"))  # c begins afresh, before the probe reaches b
    only(sim, ("a", "b"), ("b", "c"), ("c", "b"), ("b", "a"))
    assert sub.in_force is not None
    sim.disconnect("b", "c")
    publish(far, 1)
    sim.settle()
    assert [offset for _, offset, _ in sub.given if offset > 1] == [2]
    judge(sim)


@pytest.mark.spec("R-07.60")
def test_an_echo_from_before_a_restart_answers_nothing() -> None:
    """The broker a restarts while the answer to its probe is still under way to b."""
    sim = line_of("a", "b", "c")
    far = sim.client(at="c")
    sim.settle()
    near = sim.client(at="a")
    sub = near.open("x = 1")
    only(sim, ("a", "b"), ("b", "c"))
    assert any(isinstance(m.decoder.decode(d), m.Echo) for d in sim.schedule.waiting(("c", "b")))
    sim.crash("a")
    sim.restart("a")
    sim.connect("a", "b")
    near.connect(sim.hosts["a"])
    # Everything but what c hears: it has not forgotten the filter nor heard of the new one.
    only(sim, ("a", "b"))
    only(sim, ("a", "b"), ("b", "a"), ("c", "b"))
    assert sub.in_force is None
    publish(far, 1)
    only(sim, ("a", "b"), ("b", "a"), ("c", "b"))
    sim.settle()
    publish(far, 1)
    sim.settle()
    assert sub.given[-1][1] == 2
    judge(sim)


@pytest.mark.spec("R-07.60")
def test_a_probe_gets_through_although_one_from_before_a_restart_waits() -> None:
    """A wave of the old life hangs at b, which waits for d; the new life counts from below."""
    sim = Overlay([("a", "b"), ("b", "c"), ("c", "d")])
    near = sim.client(at="a")
    sim.settle()
    for _ in range(5):
        near.close(near.open("true"))
        sim.settle()
    near.open("x = 1")
    only(sim, ("a", "b"), ("b", "c"))
    sim.crash("a")
    sim.now = -999.0  # and the clock has been set back
    sim.restart("a")
    sim.connect("a", "b")
    near.connect(sim.hosts["a"])
    sim.settle()
    judge(sim)


@pytest.mark.spec("R-07.60")
def test_a_chunk_for_a_subscription_that_was_taken_over_is_not_for_the_next() -> None:
    sim = line_of("a", "b")
    publisher = sim.client(at="b")
    first, second = sim.client(at="a"), sim.client(at="a")
    first.open("x > 3", durable="desk")
    sim.settle()
    first.disconnect()
    publish(publisher, *range(6))
    only(sim, ("a", "b"), ("b", "a"))
    first.connect(sim.hosts["a"])
    only(sim, ("a", "b"))  # its request is answered; the answer is on its way
    waiting = [m.decoder.decode(data) for data in sim.schedule.waiting(("b", "a"))]
    assert any(isinstance(message, m.Chunk) and message.items for message in waiting)
    sub = second.open("true", durable="desk")
    only(sim, ("a", "b"))
    sim.settle()
    assert [offset for _, offset, _ in sub.given] == [1, 2, 3, 4, 5, 6]


@pytest.mark.spec("R-01.96")
def test_a_producer_that_reconnects_twice_is_journaled_once() -> None:
    """The line of a producer lives on while any of its connections uses it."""
    sim = Overlay([], brokers=["a"])
    host = sim.hosts["a"]
    client = sim.client(at="a")
    publish(client, 1)
    sim.happen("up", client)
    client.disconnect()
    client.connect(host)
    sim.happen("disk", "a")
    sim.happen("written", "a")  # what the first connection brought is on disk; the second goes on
    publish(client, 2)
    while said(client):
        sim.happen("up", client)
    client.disconnect()
    client.connect(host)  # with the second publication still on its way to the disk
    sim.settle()
    assert host.log.head == 2
    judge(sim)


@pytest.mark.spec("R-01.96")
def test_a_new_line_is_not_forgotten_with_the_old_one() -> None:
    sim = Overlay([], brokers=["a"])
    host = sim.hosts["a"]
    old, new = sim.client(at="a", id="p"), sim.client(id="p")
    sim.disks_fail = True
    publish(old, 1)
    sim.happen("up", old)
    sim.happen("disk", "a")
    line = host.core.sessions[old.session].line
    host.sessions.pop(old.session)  # it is not told that it is closed
    sim.happen("written", "a")
    sim.disks_fail = False
    new.unanswered = old.unanswered
    new.connect(host)
    while said(new):
        sim.happen("up", new)
    host.core.leave(old.session)
    new.disconnect()
    new.connect(host)
    sim.clients.remove(old)
    sim.settle()
    assert host.log.head == 1
    assert host.core.sessions[new.session].line is not line


def test_where_a_subscription_begins_is_told_before_that_it_is_in_force() -> None:
    sim = line_of("a", "b")
    publish(sim.client(at="b"), 1, 2)
    sim.settle()
    client = sim.client(at="a")
    client.open("x = 7")
    sim.advance()
    kinds = [type(answer) for answer in client.answers]
    assert kinds == [m.Progress, m.Subscribed]
    assert client.answers[0].positions == {"a#": 0, "b#": 2}


@pytest.mark.spec("R-07.60")
def test_a_confirmation_that_comes_too_late_is_not_said_to_be_on_disk() -> None:
    sim = Overlay([], brokers=["a"])
    first, second = sim.client(at="a"), sim.client(at="a")
    sub = first.open("true", durable="desk")
    sim.settle()
    publish(second, 1)
    sim.settle()
    first.confirm(sub, request=True)
    taken = second.open("true", durable="desk")
    while said(second):
        sim.happen("up", second)
    sim.settle()
    assert [type(a) for a in first.answers[-2:]] == [m.Ended, m.Failure]
    assert len(taken.given) == 1


def test_a_refused_subscription_leaves_nothing_behind() -> None:
    sim = Overlay([], brokers=["a"])
    client = sim.client(at="a")
    held = client.open("true", durable="desk")
    sim.settle()
    core = sim.hosts["a"].core
    for wrong in (
        m.Subscribe(100, "true", 1, durable="new", overflow="explode"),
        m.Subscribe(101, "true", 1, durable="new", group="g", choice="best"),
        m.Subscribe(102, "true", 1, durable="desk", group="g"),
        m.Subscribe(103, "true", 1, durable="desk", overflow="explode"),
    ):
        core.heard(client.session, wrong)
        [action] = core.take()
        assert isinstance(action, ToClient)
        assert isinstance(action.message, m.Failure)
    assert list(core.durables) == ["desk"]
    assert list(core.subscriptions) == ["durable desk"]
    assert not held.over
    client.close(held, forget=True)
    sim.settle()
    assert "desk" not in sim.hosts["a"].durables
    client.disconnect()
    sim.clients.clear()
    judge_empty(sim)


@pytest.mark.spec("R-07.60")
def test_a_gap_is_reported_in_its_place() -> None:
    sim = line_of("a", "b")
    publisher = sim.client(at="b")
    client = sim.client(at="a")
    client.slow, client.window = True, 1
    sub = client.open("true", limit=2)
    sim.settle()
    sim.disconnect("a", "b")
    publish(publisher, *range(8))
    sim.advance()
    sim.hosts["b"].log.trim(6)
    sim.settle()
    assert [(g.first, g.last) for g in sub.gaps] == [(1, 5)]
    assert [offset for _, offset, _ in sub.given] == [6, 7, 8]
    gap = next(i for i, a in enumerate(client.answers) if isinstance(a, m.Gap))
    deliver = next(i for i, a in enumerate(client.answers) if isinstance(a, m.Deliver))
    assert gap < deliver
    judge(sim)


def test_a_full_set_of_requests_does_not_keep_the_broker_busy() -> None:
    """Who has to wait for others to be answered is not work that can be done now."""
    sim = line_of("a", "b")
    publish(sim.client(at="b"), *range(5))
    sim.settle()
    with small(stretch=2, fetches=1):
        client = sim.client(at="a")
        subs = [client.open(f"x >= {x}", since=0.0) for x in range(3)]
        core = sim.hosts["a"].core
        while len(core.catching_up.fetches) < 1 or core.has_work:
            [found] = [c for c in sim.choices() if c[0] != "down" and c[1] != ("b", "a")][:1] or [
                ("link", ("b", "a"))
            ]
            sim.happen(*found)
        assert not core.has_work
        sim.settle()
    assert [len(sub.given) for sub in subs] == [5, 4, 3]


@pytest.mark.spec("R-07.73")
def test_who_offers_something_again_is_not_told_of_demand_that_has_ended_meanwhile() -> None:
    """What had come for the offer before was still to be looked at when that was withdrawn."""
    sim = Overlay([], brokers=["a"])
    producer, consumer = sim.client(at="a"), sim.client(at="a")
    producer.offer(Filter("x > 0"))
    sim.settle()

    def unless_it_can_wait() -> None:
        while found := [choice for choice in sim.choices() if choice[0] != "work"]:
            sim.happen(*found[0])

    sub = consumer.open("x = 1")
    unless_it_can_wait()
    producer.disconnect()
    consumer.close(sub)
    unless_it_can_wait()
    producer.connect(sim.hosts["a"])
    sim.settle()
    assert list(producer.demand.values()) == [[]]


def test_who_has_read_further_than_the_new_broker_knows_does_not_go_back() -> None:
    """A broker that need not ask how far a stream is knows only how far it has come here."""
    sim = line_of("a", "b")
    publisher, mover = sim.client(at="a"), sim.client(at="a")
    sim.client(at="b").open("x = 1")
    sim.settle()
    publish(publisher, 5, 5, 5)
    sim.advance()
    sub = mover.open("x = 1 and y = 1")
    sim.advance()
    assert sub.positions["a#"] == 3
    mover.disconnect()
    mover.connect(sim.hosts["b"])
    sim.advance()
    assert sub.positions["a#"] == 3
    publisher.send([{"x": 1, "y": 1}])
    sim.settle()
    assert [offset for _, offset, _ in sub.given] == [4]
    judge(sim)


def test_publishers_do_not_wait_for_a_subscriber_that_has_left() -> None:
    sim = Overlay([], brokers=["a"])
    slow, publisher = sim.client(at="a"), sim.client(at="a")
    slow.slow, slow.window = True, 0
    sub = slow.open("true", overflow="block", limit=1)
    sim.advance()
    publish(publisher, 1, 2)
    sim.advance()
    assert len(publisher.unanswered) == 2
    slow.disconnect()
    sim.ended(sub)
    sim.clients.remove(slow)
    sim.settle()
    assert not publisher.unanswered
    judge(sim)


@pytest.mark.spec("R-03.27", "R-01.21")
def test_an_advertisement_outlives_what_was_published_under_it() -> None:
    """The publisher is gone before its broker has routed what the disk holds of it."""
    sim = Overlay([("a", "b")], advertisements="covering")
    near, far = sim.client(at="a"), sim.client(at="b")
    sub = near.open("x = 1")
    far.offer(Filter("x = 1"))
    sim.settle()
    publish(far, 1)
    sim.happen("up", far)
    sim.happen("disk", "b")
    far.disconnect()
    # What it had is taken down, and that has come around, before the disk is heard.
    while found := [each for each in sim.choices() if each[0] in ("work", "link")]:
        sim.happen(*found[0])
    only(sim, ("a", "b"), ("b", "a"))
    assert [offset for _, offset, _ in sub.given] == [1]
    sim.settle()
    judge(sim)


@PROMISES
def test_histories_where_advertisements_steer() -> None:
    for seed in range(8):
        run_history(seed, steered=True)


@PROMISES
def test_histories_with_brokers_that_hang() -> None:
    for seed in range(20):
        run_history(seed, hangs=True)


def test_nobody_waits_for_a_broker_that_hangs() -> None:
    """A subscription is in force without it; what it publishes when it is back comes, too."""
    sim = Overlay([("a", "b"), ("b", "c")])
    near, middle, far = (sim.client(at=name) for name in "abc")
    publish(far, 1)
    sim.settle()
    sub = near.open("true")
    sim.hang("c", 8)
    assert sub.in_force is not None
    publish(far, 2)
    publish(middle, 3)
    sim.hang("c", 2)
    assert [(stream, offset) for stream, offset, _ in sub.given] == [("b#", 1)]
    sim.settle()
    assert [(stream, offset) for stream, offset, _ in sub.given] == [("b#", 1), ("c#", 2)]
    judge(sim)


@PROMISES
def test_histories_of_graphs() -> None:
    for seed in range(12):
        run_history(seed, shape="graph")


@PROMISES
@pytest.mark.spec("R-03.34", "R-03.36", "R-07.70")
def test_histories_of_rendezvous() -> None:
    for seed in range(12):
        run_history(seed, shape="rendezvous")


@PROMISES
def test_a_filter_that_gives_way_to_a_wider_one_is_owed_a_type_that_is_new() -> None:
    """The wider one is on its way when a broker that had nothing for the narrow one has something.

    Nobody there knew of the narrow one, and of the wider one only when that had been routed.
    """
    sim = Overlay([("a", "b")], rendezvous=True)
    producer, consumer = sim.client(at="a"), sim.client(at="b")
    producer.send([Notification({"x": 1}, type="t.v")])
    narrow = consumer.open("isa t.u")
    sim.settle()
    consumer.open("isa t")
    only(sim)
    producer.send([Notification({"x": 2}, type="t.u")])
    only(sim, ("a", "b"))
    sim.settle()
    assert [offset for _, offset, _ in narrow.given] == [2]
    judge(sim)


@PROMISES
def test_a_type_that_was_first_published_in_a_partition_is_owed_from_the_first_on() -> None:
    """Who asked for it before was not linked with a broker that had nothing of it."""
    sim = Overlay([("a", "b"), ("b", "c"), ("c", "d")], rendezvous=True)
    producer, consumer = sim.client(at="d"), sim.client(at="a")
    sub = consumer.open("isa t")
    sim.settle()
    assert sub.in_force is not None
    sim.disconnect("b", "c")
    sim.advance()
    producer.send([Notification({"x": x}, type="t") for x in range(3)])
    sim.advance()
    sim.now -= 500.0  # and the clocks of those who are apart need not agree
    sim.settle()
    assert [offset for _, offset, _ in sub.given] == [1, 2, 3]
    judge(sim)


@pytest.mark.spec("R-07.60")
def test_what_is_confirmed_is_on_disk_when_that_is_answered() -> None:
    sim = Overlay([], brokers=["a"])
    client, publisher = sim.client(at="a"), sim.client(at="a")
    sub = client.open("true", durable="desk")
    sim.settle()
    publish(publisher, 1)
    sim.settle()
    before = len(client.answers)
    client.confirm(sub, request=True)

    def happen(*kinds: str) -> None:
        while found := [each for each in sim.choices() if each[0] in kinds]:
            sim.happen(*found[0])

    happen("up", "down", "work")
    assert client.answers[before:] == []
    happen("disk")
    happen("written", "down", "work")
    assert [type(answer) for answer in client.answers[before:]] == [m.Done]


def test_who_does_not_read_gets_what_waits_when_it_reads_again() -> None:
    sim = Overlay([], brokers=["a"])
    client, publisher = sim.client(at="a"), sim.client(at="a")
    sub = client.open("true")
    sim.advance()
    sim.stop_reading(client)
    publish(publisher, 1, 2)
    sim.advance()
    assert sub.given == []
    sim.read_on(client)
    sim.advance()
    assert [offset for _, offset, _ in sub.given] == [1, 2]


@PROMISES
def test_an_answer_from_before_it_was_asked_for_does_not_put_it_in_force() -> None:
    """The probe was on its way when the second client came; what that asks for is behind it."""
    sim = line_of("a", "b")
    sim.settle()
    clients = [sim.client(at="a") for _ in range(2)]
    subs = []
    for x, client in enumerate(clients):
        subs.append(client.open(f"x = {x}"))
        while said(client):
            sim.happen("up", client)
    while not sim.schedule.waiting(("b", "a")):
        sim.happen("link", ("a", "b"))
    only(sim, ("b", "a"))
    assert [sub.in_force is not None for sub in subs] == [True, False]
    sim.settle()
    assert subs[1].in_force is not None


@PROMISES
@pytest.mark.spec("R-03.27", "R-07.60")
@pytest.mark.parametrize("shape", ["tree", "graph"])
def test_an_advertisement_that_steers_waits_for_nobody_who_hangs(shape: str) -> None:
    """That one hears of it later, and reads from the journal what is published under it."""
    links = [("a", "b"), ("b", "c"), ("c", "d")]
    sim = Overlay(links, advertisements="covering", graph=shape == "graph")
    producer, near, far = (sim.client(at=name) for name in "abd")
    subs = [near.open("x = 1"), far.open("x = 1", durable="desk")]
    sim.settle()
    producer.offer(Filter("x = 1"))
    sim.hang("c", 8)
    assert [answer for answer in producer.answers if isinstance(answer, m.Done)]
    publish(producer, 1)
    sim.hang("c", 4)
    assert [len(sub.given) for sub in subs] == [1, 0]
    sim.settle()
    publish(producer, 1)
    sim.settle()
    judge(sim)
    for sub in subs:
        assert [(stream, offset) for stream, offset, _ in sub.given] == [("a#", 1), ("a#", 2)]


def test_nobody_answers_for_a_stream_that_was_not_asked_of_it() -> None:
    sim = Overlay([("a", "b"), ("a", "c")], queue=10_000)
    for name in ("b", "c"):
        publish(sim.client(at=name), 1)
    sim.settle()
    client = sim.client(at="a")
    sub = client.open("true", since=0.0)
    core = sim.hosts["a"].core
    while len(core.catching_up.fetches) < 2:
        found = sim.choices()
        sim.happen(*next((each for each in found if each[0] in ("up", "work")), found[0]))
    numbers = {p.stream: number for number, p in core.catching_up.fetches._pending.items()}
    core.receive("b", m.Chunk("a#", numbers["b#"], "c#", [], [], 9, 9, 0))
    sim.settle()
    assert ("c#", 1) in {(stream, offset) for stream, offset, _ in sub.given}


@PROMISES
def test_a_durable_is_owed_what_brokers_publish_that_it_has_never_met() -> None:
    sim = line_of("a", "b")
    sim.disconnect("a", "b")
    reader, publisher = sim.client(at="a"), sim.client(at="b")
    sub = reader.open("true", durable="desk")
    sim.advance()
    assert sub.in_force is not None
    reader.restart()  # it knows nothing but the name
    publish(publisher, 1)
    sim.advance()
    sim.connect("a", "b")
    sim.advance()
    reader.connect(sim.hosts["a"])
    sim.settle()
    assert [(stream, offset) for stream, offset, _ in sub.given] == [("b#", 1)]


@pytest.mark.spec("R-07.40", "R-07.60")
@pytest.mark.parametrize("options", [{}, {"durable": "desk"}, {"since": 0.0}])
@pytest.mark.parametrize("dies", [False, True])
def test_retention_of_a_stream_that_was_never_met_is_a_gap(
    options: dict[str, object], dies: bool
) -> None:
    """What it was owed by a broker that it could not reach is gone before it can."""
    sim = line_of("a", "b")
    reader, publisher = sim.client(at="a"), sim.client(at="b")
    publish(publisher, 1)
    sim.disconnect("a", "b")
    sim.advance()
    sim.tick(1.0)
    sub = reader.open("true", **options)
    sim.advance()
    assert sub.in_force is not None
    sim.tick(1.0)
    for x in (2, 3, 4):
        publish(publisher, x)
        sim.advance()
    sim.hosts["b"].log.trim(4)
    if dies:
        reader.disconnect()
    sim.settle()
    judge(sim)
    assert [(gap.stream, gap.first, gap.last) for gap in sub.gaps] == [("b#", 1, 3)]
    assert [(stream, offset) for stream, offset, _ in sub.given] == [("b#", 4)]


def test_who_began_later_than_what_retention_has_taken_misses_nothing() -> None:
    sim = line_of("a", "b")
    reader, publisher = sim.client(at="a"), sim.client(at="b")
    for x in (1, 2):
        publish(publisher, x)
        sim.advance()
    sim.disconnect("a", "b")
    sim.tick(1.0)
    sub = reader.open("true", durable="desk")
    sim.advance()
    sim.tick(1.0)
    publish(publisher, 3)
    sim.advance()
    sim.hosts["b"].log.trim(2)
    sim.settle()
    judge(sim)
    assert not sub.gaps
    assert [(stream, offset) for stream, offset, _ in sub.given] == [("b#", 3)]


def test_subscribers_know_how_far_streams_are_that_have_nothing_for_them() -> None:
    sim = line_of("a", "b", "c")
    sub = sim.client(at="a").open("x = 7")
    sim.client(at="a").open("x = 1")
    publisher = sim.client(at="c")
    sim.settle()
    publish(publisher, 2, 3, 2)
    sim.settle()
    assert sub.positions["c#"] == 3


@pytest.mark.parametrize("volatile", [False, True])
def test_what_comes_a_second_time_by_another_way_is_not_passed_on(volatile: bool) -> None:
    sim = Overlay([("a", "b"), ("b", "c")], graph=True)
    sim.client(at="c").open("true", volatile=True)
    sim.settle()
    [id] = sim.client(at="a").send([{"x": 1}], volatile=volatile)
    sim.settle()
    between, before = sim.hosts["b"], sim.counters.copy()
    newest = between.core.traffic._newest["a#", volatile]
    again = m.Forward("a#", [newest], [encode(sim.publications[id].notification)], volatile)
    between.core.receive("a", again)
    between.flush()
    sim.settle()
    assert not (sim.counters - before).notifications
    assert between.core.counters["off_path"] == 1
