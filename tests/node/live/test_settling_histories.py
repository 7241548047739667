"""Each notification is settled once or becomes one dead letter, whatever fails.

The histories are in `settling_histories`; thousands run when asked for.
"""

import pytest
import takeover_histories
from hypothesis import given, settings
from hypothesis import strategies as st
from overlay import Overlay
from settling_histories import NAME, run_history

from stentor.errors import DurableElsewhere
from stentor.filters import Filter
from stentor.model import Notification, NotificationId, decode, encode
from stentor.model.codec import decode_headers
from stentor.model.dead_letter import PRODUCER
from stentor.node.clock import Clock
from stentor.node.durable import Durable, Refusal
from stentor.node.feed import Feed, Run
from stentor.node.interest import Interest
from stentor.node.settling import Settling
from stentor.node.subscription import Consumer, Subscription
from stentor.protocol import messages as m
from stentor.simulation.client import SimulatedInbox

PROMISES = pytest.mark.spec("R-07.41", "R-07.60")


@PROMISES
def test_histories() -> None:
    for seed in range(40):
        run_history(seed)


@PROMISES
@pytest.mark.parametrize("seed", [5447, 6486])
def test_nothing_overtakes_what_was_refused_whoever_is_attached_by_then(seed: int) -> None:
    """One was refused on its way to a client once more, one is a dead letter on its way to disk."""
    run_history(seed)


@PROMISES
@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_any_history(seed: int) -> None:
    run_history(seed)


@pytest.mark.slow
@PROMISES
def test_two_thousand_histories() -> None:
    for seed in range(1_000, 3_000):
        run_history(seed)


@pytest.mark.spec("R-07.41")
@pytest.mark.parametrize("first", [0, pytest.param(1_000, marks=pytest.mark.slow)])
def test_nothing_is_lost_by_those_who_take_over(first: int) -> None:
    for seed in range(first, first + (first or 60)):
        takeover_histories.run_history(seed)


def settled(terms: m.Settlement, **options: object) -> tuple[Overlay, SimulatedInbox]:
    """A broker with a durable subscriber, and what it subscribes to."""
    sim = Overlay([], brokers=["b0"])
    inbox = sim.client(at="b0").open("exists x", durable=NAME, settlement=terms, **options)
    sim.settle()
    return sim, inbox


def refuse(inbox: SimulatedInbox) -> None:
    """The application asks for the next one, and cannot deal with it."""
    found = inbox.hand_out()
    assert found is not None
    (stream, offset), _ = found
    inbox.client.settle(inbox, refused=[m.Refused(stream, offset, 0.0, "wrong")])


def letters(sim: Overlay) -> int:
    entries = [decode(data) for data, _ in sim.hosts["b0"].log.entries]
    return sum(e.id is not None and e.id.producer.startswith(PRODUCER) for e in entries)


@PROMISES
@pytest.mark.parametrize("written", [False, True])
def test_a_crash_leaves_both_the_dead_letter_and_the_state_or_neither(written: bool) -> None:
    sim, inbox = settled(m.Settlement(attempts=1, dead_letter=True))
    sim.client(at="b0").send([{"x": 1}])
    sim.settle()
    refuse(inbox)
    sim.advance()  # the refusal is heard; the dead letter is on its way
    home = sim.hosts["b0"]
    if not written:
        home.log.entries = home.log.entries[:1]
        home.durables[NAME] = _state_without_letter(home.durables[NAME])
    assert letters(sim) == written
    sim.crash("b0")
    sim.restart("b0")
    sim.settle()
    assert letters(sim) == 1
    assert not inbox.waiting
    assert home.core.durables[NAME].positions["b0#"] >= 1


def _state_without_letter(data: bytes) -> bytes:
    """As it was before the transaction: refused once, and not done."""
    durable = Durable.from_data(NAME, data)
    durable.take_back({"b0#": 0})
    durable.recent = type(durable.recent)(forget_as_new=True)
    durable.refuse("b0#", 1, 0.0, "wrong")
    return durable.to_data()


@PROMISES
def test_a_full_disk_only_delays_a_dead_letter() -> None:
    sim, inbox = settled(m.Settlement(attempts=1, dead_letter=True))
    sim.client(at="b0").send([{"x": 1}])
    sim.settle()
    sim.disks_fail = True
    refuse(inbox)
    for _ in range(3):
        sim.advance()
        sim.tick(1.1)
    assert letters(sim) == 0
    sim.disks_fail = False
    sim.settle()
    assert letters(sim) == 1
    assert sim.hosts["b0"].core.counters["dead_letters"] == 1


@PROMISES
def test_who_hands_it_over_leaves_dead_letters_to_the_heir() -> None:
    """One behind the copy that the heir gets would be lost there, or made once more."""
    sim, inbox = settled(m.Settlement(attempts=1, dead_letter=True))
    sim.client(at="b0").send([{"x": 1}])
    sim.settle()
    core = sim.hosts["b0"].core
    core.pause(True)
    refuse(inbox)
    sim.settle()
    assert letters(sim) == 0
    stored = Durable.from_data(NAME, sim.hosts["b0"].durables[NAME])
    assert stored.refused["b0#"][1].attempts == 1
    core.pause(False)
    sim.settle()
    assert letters(sim) == 1


def test_the_same_notification_in_two_streams_is_given_once() -> None:
    """A publisher that turned to another broker before it was answered."""
    sim = Overlay([("b0", "b1")])
    inbox = sim.client(at="b0").open("exists x", durable=NAME, settlement=m.Settlement())
    publisher = sim.client(at="b0", id="p")
    sim.settle()
    publisher.send([{"x": 1}])
    again = list(publisher.unanswered)
    sim.settle()
    publisher.disconnect()
    publisher.unanswered.extend(again)
    publisher.connect(sim.hosts["b1"])
    sim.settle()
    assert [sim.hosts[name].log.head for name in ("b0", "b1")] == [1, 1]
    found = inbox.hand_out()
    assert found is not None
    assert inbox.hand_out() is None
    inbox.client.settle(inbox, done=[found[0]])
    sim.settle()
    assert inbox.hand_out() is None
    durable = sim.hosts["b0"].core.durables[NAME]
    assert (durable.is_done("b0#", 1), durable.is_done("b1#", 1)) == (True, True)


def test_a_member_that_was_told_that_it_could_not_be_stored_is_given_nothing() -> None:
    """Its client has no such subscription, and would settle nothing."""
    sim, inbox = settled(m.Settlement(), group="g")
    late = sim.client(at="b0")
    sim.disks_fail = True
    sim.hosts["b0"].core.durables[NAME].stored = False  # it has come from elsewhere
    refused = late.open("exists x", **inbox.options)
    sim.advance()
    assert refused.in_force is None
    sim.disks_fail = False
    sim.client(at="b0").send([{"x": x} for x in range(10)])
    sim.advance()
    assert len(inbox.waiting) == 10


def test_who_comes_back_to_what_is_stored_needs_no_room() -> None:
    sim, inbox = settled(m.Settlement(), group="g")
    sim.client(at="b0").send([{"x": x} for x in range(10)])
    sim.settle()
    sim.disks_fail = True
    sim.crash("b0")
    sim.restart("b0")
    inbox.client.connect(sim.hosts["b0"])
    sim.advance()
    assert len(inbox.waiting) == 10


@pytest.mark.parametrize("room", [True, False])
def test_an_operator_who_moves_it_waits_for_the_dead_letter_on_its_way(room: bool) -> None:
    sim = Overlay([("b0", "b1")])
    terms = m.Settlement(attempts=1, dead_letter=True)
    inbox = sim.client(at="b0").open("exists x", durable=NAME, settlement=terms)
    sim.client(at="b0").send([{"x": 1}])
    sim.settle()
    sim.disks_fail = True
    refuse(inbox)
    sim.advance()
    heard: list[object] = []
    new = sim.hosts["b1"].core
    new.homes.fetch(NAME, heard.append)
    sim.advance()
    assert NAME not in new.durables
    sim.disks_fail = not room
    for _ in range(12):
        sim.tick(1.0)
        sim.advance(10_000)
    assert (NAME in new.durables) == room
    if room:
        assert heard == [None]
        assert letters(sim) == 1
    else:
        assert [type(error) for error in heard] == [DurableElsewhere]


def test_dead_letters_reach_those_who_ask_where_advertisements_steer() -> None:
    sim = Overlay([("b0", "b1")], advertisements="covering")
    publisher = sim.client(at="b0")
    publisher.offer(Filter("exists x"))
    terms = m.Settlement(attempts=1, dead_letter=True)
    inbox = sim.client(at="b0").open("exists x", durable=NAME, settlement=terms)
    far = sim.client(at="b1").open("exists cause", durable="far", settlement=m.Settlement())
    sim.settle()
    publisher.send([{"x": 1}])
    sim.settle()
    refuse(inbox)
    sim.settle()
    assert [held.notification["durable"] for held in far.waiting.values()] == [NAME]


def handed(inbox: SimulatedInbox) -> tuple[tuple[str, int], int]:
    """What the application gets next, and how often that was given."""
    found = inbox.hand_out()
    assert found is not None
    return found[0], found[1].attempt


@PROMISES
@pytest.mark.parametrize("lost", ["connection", "process", "broker"])
def test_attempts_are_counted_over_whatever_is_lost(lost: str) -> None:
    sim, inbox = settled(m.Settlement(attempts=3, least=0.1))
    client = inbox.client
    sim.client(at="b0").send([{"x": 1}])
    sim.settle()
    for attempt in (1, 2):
        key, given = handed(inbox)
        assert given == attempt
        client.settle(inbox, begun=[key], refused=[m.Refused(*key, 0.0, "wrong", attempt)])
        sim.settle()
        if lost == "broker":
            sim.crash("b0")
        elif lost == "process":
            client.restart()
        else:
            client.disconnect()
        sim.settle()
    assert handed(inbox)[1] == 3


@PROMISES
def test_what_is_refused_without_a_connection_is_told_as_soon_as_there_is_one() -> None:
    """The library does so; until then what it is given again is no news to the application."""
    sim, inbox = settled(m.Settlement(attempts=5, least=0.1))
    client = inbox.client
    sim.client(at="b0").send([{"x": 1}, {"x": 2}])
    sim.settle()
    key, _ = handed(inbox)
    client.disconnect()
    client.settle(inbox, refused=[m.Refused(*key, 0.0, "wrong", 1)])
    sim.settle()
    assert handed(inbox) == (key, 2)
    assert not inbox.waiting  # it comes behind that
    client.settle(inbox, done=[key])
    sim.settle()
    assert handed(inbox) == ((key[0], key[1] + 1), 1)


@PROMISES
def test_a_refusal_that_comes_too_late_says_nothing_about_the_next_attempt() -> None:
    """The deadline has passed, and it was given again, when the first refusal is heard."""
    sim, inbox = settled(m.Settlement(attempts=2, least=0.1, deadline=1.0))
    sim.client(at="b0").send([{"x": 1}])
    sim.settle()
    key, _ = handed(inbox)
    core, session = sim.hosts["b0"].core, inbox.client.session
    core.heard(session, m.Settle(inbox.number, {}, begun={key[0]: [key[1]]}))
    sim.tick(1.1)
    sim.advance()
    sim.tick(1.1)
    sim.advance()
    assert handed(inbox) == (key, 2)
    late = m.Refused(*key, 0.0, "wrong", 1)
    core.heard(session, m.Settle(inbox.number, {}, refused=[late]))
    sim.settle()
    [durable] = core.durables.values()
    assert [r.attempts for r in durable.refused[key[0]].values()] == [1]


@PROMISES
def test_who_needs_longer_is_given_longer() -> None:
    sim, inbox = settled(m.Settlement(least=0.1, deadline=2.0))
    sim.client(at="b0").send([{"x": 1}])
    sim.settle()
    key, _ = handed(inbox)
    inbox.client.settle(inbox, begun=[key], extended=[(*key, 5.0)])
    sim.advance()
    for _ in range(4):
        sim.tick(1.0)
        sim.advance()
    assert list(inbox.hands) == [key]
    for _ in range(2):
        sim.tick(1.0)
        sim.advance()
    assert handed(inbox) == (key, 2)


def test_a_home_that_is_fenced_tells_of_the_dead_letter_that_was_on_its_way() -> None:
    """Or the new home would give it again, and there would be a second one."""
    sim = Overlay([("b0", "b1")])
    terms = m.Settlement(attempts=1, dead_letter=True)
    inbox = sim.client(at="b0").open("exists x", durable=NAME, settlement=terms)
    sim.settle()
    sim.client(at="b0").send([{"x": 1}])
    sim.settle()
    refuse(inbox)
    old, new = (sim.hosts[name] for name in ("b0", "b1"))
    while not old.core.durables[NAME].dying:
        assert sim.step()
    assert letters(sim) == 0
    known = old.core.homes.registry.get(NAME)
    assert known is not None
    word = m.Homes([m.Home(NAME, known.term + 1, new.core.directory.own, known.since)])
    for host, other in ((old, "b1"), (new, "b0")):
        host.core.receive(other, word)
        host.flush()
    sim.settle()
    assert letters(sim) == 1
    assert list(old.core.durables) == []
    assert new.core.durables[NAME].is_done("b0#", 1)
    assert not inbox.waiting


def test_what_was_refused_counts_when_it_comes_by_way_of_another_stream() -> None:
    """Its publisher has published it twice, and another home reads the second one first."""
    item = encode(Notification({"x": 1}, id=NotificationId("p", 0, 1)))
    durable = Durable(NAME, Interest([Filter("exists x")]), since=0.0)
    durable.begin("b0#", 0)
    durable.refused["b0#"] = {1: Refusal(2, 0.0, "wrong", "p:0:1")}
    durable = Durable.from_data(NAME, durable.to_data())
    settling = Settling(m.Settlement(attempts=5), durable, Clock(0.0, 0.0))
    settling.admit(Run("b1#", [7], [item]), decode_headers([item]))
    (entry,) = settling
    assert entry.attempt == 3
    assert durable.refused == {"b0#": {}, "b1#": {7: Refusal(2, 0.0, "wrong", "p:0:1")}}


def test_what_is_ready_keeps_its_order_when_some_of_it_is_settled() -> None:
    """By priority, and where that is the same, as it was published."""
    settling = Settling(m.Settlement(ranked=True), None, Clock(0.0, 0.0))
    consumer = Consumer(1, 1, 10)
    settling.join(consumer)
    items = [
        encode(Notification({"x": i}, id=NotificationId("p", 1, i), priority=i % 3))
        for i in range(1, 10)
    ]
    settling.admit(Run("s", [*range(1, 10)], items), decode_headers(items))
    assert [entry.offset for entry in settling.ready] == [2, 5, 8, 1, 4, 7, 3, 6, 9]
    settling.settle(consumer, m.Settle(1, {"s": [5, 1, 9]}))
    settling.ready.append(settling.ready.popleft())
    assert [entry.offset for entry in settling.ready] == [8, 2, 4, 7, 3, 6]
    assert len(settling) == 6


def test_attempts_elsewhere_count_when_two_copies_are_united() -> None:
    """What is done there is given to nobody, and what was tried there was tried."""
    durable = Durable(NAME, Interest([Filter()]), since=0.0)
    durable.begin("b0#", 0)
    terms = m.Settlement(attempts=5, least=1.0, most=1.0, overtake=True)
    settling = Settling(terms, durable, Clock())
    consumer = Consumer(1, 1, 100)
    settling.join(consumer)
    items = [encode(Notification({"x": k}, id=NotificationId("p", 1, k))) for k in range(4)]
    settling.admit(Run("b0#", [1, 2, 3, 4], items), decode_headers(items))
    held = settling.ready.popleft()
    settling.give(held, consumer)
    theirs = Durable.from_data(NAME, durable.to_data())
    theirs.settle("b0#", 2)
    for offset in (1, 3):
        for _ in range(2):
            theirs.refuse("b0#", offset, 0.0, "wrong")
    durable.merge(theirs)
    settling.united()
    assert [entry.offset for entry in settling.ready] == [4]
    settling.tick(100)
    assert [(e.offset, e.attempt) for e in settling.ready] == [(4, 1), (3, 3)]
    refused = m.Refused("b0#", 1, None, "no", 1)
    assert settling.settle(consumer, m.Settle(1, {}, refused=[refused]))
    assert durable.refused["b0#"][1].attempts == 3


def test_what_is_for_nobody_is_passed_over_beside_what_was_settled_before_it_came() -> None:
    """A transaction of an earlier connection has settled the first before it is read again."""
    durable = Durable(NAME, Interest([Filter()]), since=0.0)
    durable.begin("b0#", 0)
    feed = Feed("durable billing", positions={"b0#": 0}, resumed=True)
    settling = Settling(m.Settlement(), durable, Clock())
    sub = Subscription(feed, durable.interest, durable=durable, settling=settling)
    sub.add(Consumer(1, 1, 100))
    durable.settle("b0#", 1)
    items = [encode(Notification({"x": k}, id=NotificationId("p", 1, k))) for k in (1, 3)]
    feed.heads(1, {"b0#": 3})
    feed.fetches("b0#")
    feed.stretch(Run("b0#", [1, 3], items), asked=1, through=3, head=3, low=1)
    given = [run.offsets for _, run in sub.deliveries(set())]
    assert given == [[3]]
    assert durable.is_done("b0#", 2)
