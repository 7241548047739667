"""What clients and neighbors may make a broker keep, believe or wait for."""

from datetime import UTC, datetime
from itertools import chain, pairwise
from math import inf, nan
from typing import Any

import msgspec
import pytest
from live_histories import small
from overlay import Overlay

from stentor.errors import (
    FilterTooComplex,
    InvalidConfiguration,
    InvalidPattern,
    NotPermitted,
    Overloaded,
    ProtocolError,
)
from stentor.filters import Filter
from stentor.filters.effort import effort
from stentor.matching import Index
from stentor.model import Notification, NotificationId, decode, encode
from stentor.node import detection, reading
from stentor.node.agenda import Append, CloseLink, Persist, ToClient, ToLink
from stentor.node.allowance import Allowance
from stentor.node.border import Rights
from stentor.node.bounds import Bounds
from stentor.node.checks import EPOCH_AHEAD
from stentor.node.core import Core
from stentor.node.durable import Durable
from stentor.node.feed import Feed, Run
from stentor.node.interest import Interest
from stentor.node.log import LastValue
from stentor.node.offsets import Offsets
from stentor.node.parts import durables, progress, traffic
from stentor.node.parts.deliveries import PATIENCE, SERVED_AT_ONCE, YIELDED
from stentor.node.parts.overlay import MARK_EVERY, RESERVE_PATIENCE
from stentor.node.parts.probing import AGAIN_FIRST, LINKS_PATIENCE
from stentor.node.parts.routing import EFFORT, UNLINKED_AT_ONCE, Routing
from stentor.node.parts.settlements import REFUSED
from stentor.node.parts.subscribing import UNKNOWN_STREAMS
from stentor.node.parts.wanted import EVERY as WANTED_EVERY
from stentor.node.parts.wanted import STORED as WANTED_STORED
from stentor.node.reading import LOOKED_BYTES, stretch
from stentor.node.settling import Settling
from stentor.node.streams import Directory, Probes
from stentor.protocol import messages as m
from stentor.routing import tree_router
from stentor.routing.graph import GraphRouter
from stentor.routing.table import Local
from stentor.routing.tree.layer import STEERED, TOLD_AT_ONCE
from stentor.simulation.journal import MemoryLog

CLOCK = 1_000_000.0


class Alone:
    """A broker whose disk writes at once, and what its clients hear."""

    def __init__(self, **options: Any) -> None:
        self.log = MemoryLog("a#")
        self.core = Core("a", self.log, now=0.0, clock=CLOCK, **options)
        self.stored: dict[str, bytes | None] = {}
        self.heard: dict[int, list[Any]] = {}
        self.sent: list[ToLink] = []
        self.closed: list[str] = []

    def join(self, id: int, name: str = "ann", **options: Any) -> None:
        self.heard[id] = []
        self.core.join(id, name, newest=self.log.published.get(name), **options)

    def say(self, id: int, *messages: Any) -> list[Any]:
        """What the client is told in answer."""
        before = len(self.heard[id])
        for message in messages:
            self.core.heard(id, message)
            self.flush()
        return self.heard[id][before:]

    def hear(self, neighbor: str, *messages: Any) -> None:
        """A neighbor says something."""
        for message in messages:
            self.core.receive(neighbor, message)
            self.flush()

    def flush(self) -> None:
        while True:
            actions = self.core.take()
            if not actions and not self.core.has_work:
                return
            for action in actions:
                match action:
                    case ToLink():
                        self.sent.append(action)
                    case CloseLink():
                        self.closed.append(action.neighbor)
                    case ToClient(session, message):
                        self.heard[session].append(message)
                    case Append():
                        first = self.log.write(action, CLOCK)
                        self.core.committed([(action.context, first, action.items)])
                    case Persist():
                        self.stored[action.name] = action.data
                        self.core.stored(action.context, None)
            if self.core.has_work:
                self.core.work()

    def tick(self, now: float) -> None:
        self.core.tick(now, CLOCK + now)
        self.flush()

    def publish(self, id: int, name: str, sequence: int, **options: Any) -> list[Any]:
        item = note(name, sequence, epoch=options.pop("epoch", 0))
        return self.say(id, m.Publish(1_000 + sequence, [item], **options))


def note(producer: str, sequence: int, *, epoch: int = 0) -> bytes:
    return encode(Notification({"x": sequence}, id=NotificationId(producer, epoch, sequence)))


def told(answers: list[Any], kind: type) -> list[Any]:
    return [answer for answer in answers if isinstance(answer, kind)]


def codes(answers: list[Any]) -> list[str]:
    return [answer.code for answer in told(answers, m.Failure)]


# -- durable subscriptions belong to somebody


def test_a_group_is_for_the_grant_of_its_members() -> None:
    """Each member takes a part of the work, so a stranger among them takes it from the others."""
    alone = Alone()
    for id, (name, owner) in enumerate((("ann", "desk"), ("eve", "mallory"), ("bob", "desk")), 1):
        alone.join(id, name, owner=owner)
    join = m.Subscribe(1, "x > 1", 10, group="g")
    for id in (1, 2, 3):
        assert told(alone.say(id, join), m.Subscribed)
    # Who calls a group the same has another one.
    groups = alone.core._subscriptions.held.values()
    assert sorted(len(group.consumers) for group in groups) == [1, 2]


def test_a_last_value_is_for_the_grant_that_published_it() -> None:
    alone = Alone()
    for id, (name, owner) in enumerate((("feed", "market"), ("eve", "junk"), ("ann", "desk")), 1):
        alone.join(id, name, owner=owner)
    alone.publish(1, "feed", 1, retain={0: "IBM"})
    alone.publish(1, "feed", 2, retain={0: "IBM"})
    alone.publish(2, "eve", 7, retain={0: "IBM"})

    def last(text: str) -> list[int]:
        heard = alone.say(3, m.Subscribe(1, text, 10, retained=True), m.Unsubscribe(1))
        return [decode(i)["x"] for d in told(heard, m.Deliver) if d.retained for i in d.items]

    assert last("x < 5") == [2]
    assert sorted(last("")) == [2, 7]


def test_the_name_of_a_durable_subscription_belongs_to_the_grant_that_made_it() -> None:
    """Another grant may use the same one, for something of its own."""
    alone = Alone()
    alone.join(1, "ann", owner="desk")
    alone.join(2, "eve", owner="mallory")
    alone.join(3, "bob", owner="desk")
    assert told(alone.say(1, m.Subscribe(1, "x > 1", 10, durable="d")), m.Subscribed)
    (theirs,) = told(alone.say(2, m.Subscribe(1, "x > 5", 10, durable="d")), m.Subscribed)
    assert not theirs.resumed
    assert not told(alone.heard[1], m.Ended)
    kept = {(d.owner, d.label, str(d.interest)) for d in alone.core.durables.values()}
    assert kept == {("desk", "d", "x > 1"), ("mallory", "d", "x > 5")}
    (taken,) = told(alone.say(3, m.Subscribe(1, "x > 1", 10, durable="d")), m.Subscribed)
    assert taken.resumed


def test_nobody_can_name_what_is_of_another_grant() -> None:
    alone = Alone()
    alone.join(1, "ann", owner="desk")
    alone.join(2, "eve")
    alone.say(1, m.Subscribe(1, "", 10, durable="d"))
    (name,) = alone.core.durables
    failed = alone.say(2, m.Subscribe(1, "", 10, durable=name))
    assert codes(failed) == [InvalidConfiguration.code]


def test_who_owns_it_is_stored() -> None:
    alone = Alone()
    alone.join(1, "ann", owner="desk")
    alone.say(1, m.Subscribe(1, "x > 1", 10, durable="d"))
    ((name, data),) = [each for each in alone.stored.items() if not each[0].startswith("\x00")]
    assert data is not None
    again = Alone()
    again.core.restore({name: data})
    again.join(1, "ann", owner="desk")
    again.join(2, "eve", owner="mallory")
    asked = m.Subscribe(1, "x > 1", 10, durable="d")
    for id, resumed in ((1, True), (2, False)):
        (answer,) = told(again.say(id, asked), m.Subscribed)
        assert answer.resumed == resumed


def test_what_nobody_owns_belongs_to_who_takes_it_first() -> None:
    """It was made before there were grants."""
    alone = Alone()
    alone.core.restore({"d": Durable("d", Interest([Filter("x > 1")]), since=0.0).to_data()})
    asked = m.Subscribe(1, "x > 1", 10, durable="d")
    for id, (owner, resumed) in enumerate((("desk", True), ("mallory", False), ("desk", True)), 1):
        alone.join(id, f"c{id}", owner=owner)
        (answer,) = told(alone.say(id, asked), m.Subscribed)
        assert answer.resumed == resumed


def test_data_from_before_there_were_owners_can_be_read() -> None:
    durable = Durable("d", Interest([Filter("x > 1")]), since=7.0, owner="desk")
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(durable.to_data())[:5])
    assert Durable.from_data("d", older).owner is None
    assert Durable.from_data("d", durable.to_data()).owner == "desk"


@pytest.mark.spec("01/A-18")
def test_members_of_a_durable_group_have_the_same_grant() -> None:
    alone = Alone()
    alone.join(1, "ann", owner="desk")
    alone.join(2, "eve", owner="mallory")
    alone.say(1, m.Subscribe(1, "x > 1", 10, durable="d", group="g"))
    joining = m.Subscribe(1, "x > 1", 10, durable="d", group="g")
    assert told(alone.say(2, joining), m.Subscribed)  # a group of its own
    assert {d.owner for d in alone.core.durables.values()} == {"desk", "mallory"}


def test_what_a_removed_broker_kept_is_kept_beside_what_another_grant_calls_the_same() -> None:
    alone = Alone()
    own = Durable("d", Interest([Filter("x > 1")]), since=0.0, positions={"b#": 1}, owner="desk")
    alone.core.restore({"d": own.to_data()})
    theirs = Durable(
        "d", Interest([Filter("x > 1")]), since=0.0, positions={"b#": 9}, owner="mallory"
    )
    stored = alone.core.import_durables("b#", {"d": theirs.to_data()})
    assert len(stored) == 1
    assert "d" not in stored
    alone.join(1, "eve", owner="mallory")
    alone.join(2, "ann", owner="desk")
    asked = m.Subscribe(1, "x > 1", 10, durable="d")
    assert all(told(alone.say(id, asked), m.Subscribed)[0].resumed for id in (1, 2))
    kept = {d.owner: d.positions["b#"] for d in alone.core.durables.values()}
    assert kept == {"desk": 1, "mallory": 9}


# -- positions


def test_nobody_has_read_more_of_a_journal_than_there_is() -> None:
    alone = Alone()
    alone.join(1)
    alone.publish(1, "ann", 1)
    far = {"a#": 10**6}
    answers = alone.say(1, m.Subscribe(1, "", 10, durable="d", positions=far))
    assert told(answers, m.Subscribed)
    alone.say(1, m.Confirm(1, far, 9))
    assert alone.core.durables["d"].positions == {"a#": 1}
    (delivered,) = told(alone.publish(1, "ann", 2), m.Deliver)
    assert delivered.offsets == [2]


def test_not_even_before_the_journal_was_looked_at() -> None:
    alone = stuck()
    alone.join(1)
    far = {"a#": 10**6}
    alone.core.heard(1, m.Subscribe(1, "", 10, durable="d", positions=far))
    alone.core.heard(1, m.Confirm(1, far, 9))
    assert alone.core.durables["d"].positions == {"a#": 0}


def test_nor_less_than_nothing() -> None:
    alone = Alone()
    alone.join(1)
    alone.publish(1, "ann", 1)
    for number, position in enumerate((-5, 2**64 - 1), 1):
        answers = alone.say(1, m.Subscribe(number, "", 10, positions={"a#": position}))
        assert told(answers, m.Subscribed)
    assert alone.core.subscriptions["ann@1/1"].feed.positions == {"a#": 1}
    assert alone.core.subscriptions["ann@1/2"].feed.positions == {"a#": 1}


@pytest.mark.parametrize("seed", range(20))
def test_nor_more_of_the_journals_of_others(seed: int) -> None:
    """Whatever is published meanwhile comes, in whatever order things happen."""
    sim = Overlay([("a", "b"), ("b", "c")], seed=seed)
    publisher, subscriber = sim.client("c"), sim.client("a")
    publisher.send([{"x": 1}])
    sim.advance()
    sub = subscriber.open("", positions={"c#": 10**6})
    sub.options.clear()
    sim.advance(sim.rng.randint(0, 20))
    publisher.send([{"x": 2}, {"x": 3}])
    sim.advance()
    publisher.send([{"x": 4}])
    sim.advance()
    offsets = [offset for _, offset, _ in sub.given]
    assert offsets[-1] == 4
    assert offsets == list(range(offsets[0], 5))
    (feed,) = [s.feed for s in sim.hosts["a"].core.subscriptions.values()]
    assert feed.positions["c#"] == 4


def test_what_was_asked_for_by_a_claim_that_did_not_hold_is_asked_for_again() -> None:
    feed = Feed("ann/1", since=0.0, positions={"b#": 100}, probe=1)
    (wish,) = feed.wishes()
    feed.fetches("b#")
    feed.offer(Run("b#", [4], [b"4"]))
    feed.stretch(Run("b#", [], []), asked=wish.first, through=100, head=3, low=1)
    assert feed.positions == {"b#": 3}
    (wish,) = feed.wishes()
    assert wish.first == 4
    feed.heads(1, {"b#": 3})
    assert [run.offsets for run in feed.take(9)] == [[4]]


def test_positions_of_streams_that_nobody_knows_are_few() -> None:
    alone = Alone()
    alone.join(1)
    many = {f"s{i}": i for i in range(2 * UNKNOWN_STREAMS)}
    alone.say(1, m.Subscribe(1, "", 10, positions={**many, "a#": 0}))
    feed = alone.core.subscriptions["ann@1/1"].feed
    assert len(feed.positions) == UNKNOWN_STREAMS + 1
    assert "a#" in feed.positions


# -- epochs


@pytest.mark.parametrize("volatile", [False, True])
def test_an_epoch_far_ahead_is_refused(volatile: bool) -> None:
    alone = Alone()
    alone.join(1)
    latest = int((CLOCK + EPOCH_AHEAD) * 1000)
    (refused,) = told(alone.publish(1, "ann", 1, epoch=latest + 1, volatile=volatile), m.Rejected)
    assert "a day ahead" in refused.message
    assert alone.log.head == 0
    assert not told(alone.publish(1, "ann", 2, epoch=latest, volatile=volatile), m.Rejected)


# -- ids


@pytest.mark.spec("R-01.13")
@pytest.mark.parametrize("volatile", [False, True])
def test_an_id_that_comes_again_with_other_content_is_refused(volatile: bool) -> None:
    """As long as the first is on its way to the journal; each of several batches is searched."""
    alone = Alone()
    alone.join(1)

    def items(x: int, *sequences: int) -> list[bytes]:
        return [encode(Notification({"x": x}, id=NotificationId("ann", 5, s))) for s in sequences]

    for number, sequences in enumerate([(0, 1), (2,), (5, 6, 8)], 1):
        alone.core.heard(1, m.Publish(number, items(0, *sequences)))
    alone.core.heard(1, m.Publish(4, items(0, 0, 1, 2)))  # sent again
    mixed = items(0, 0) + items(1, 1, 2) + items(0, 5) + items(1, 6, 7, 8, 9)
    alone.core.heard(1, m.Publish(5, mixed, volatile=volatile))
    alone.core.heard(1, m.Publish(6, items(0, 8) + items(1, 8), atomic=True))
    alone.flush()
    several, whole = told(alone.heard[1], m.Rejected)
    assert (several.number, several.items) == (5, [1, 2, 4, 6])
    assert "ann:5:1" in several.message
    assert (whole.number, whole.items) == (6, [0, 1])
    journaled = [decode(data) for data, _ in alone.log.entries]
    assert [n.id.sequence for n in journaled if n.id] == [0, 1, 2, 5, 6, 8] + [9] * (not volatile)
    assert told(alone.heard[1], m.Published)[-1].through == 6


# -- demand


def test_demand_is_told_to_who_may_publish_all_of_it() -> None:
    alone = Alone()
    permitted = Filter("x > 10")
    alone.join(1, "ann", may_advertise=permitted.covers)
    alone.join(2, "bob")
    alone.say(2, m.Subscribe(1, "x > 11 and secret = 1", 10))
    answers = alone.say(1, m.Advertise(1, "", demand=True))
    assert codes(answers) == [NotPermitted.code]
    assert not told(answers, m.Demand)
    assert told(alone.say(1, m.Advertise(2, "x > 20", demand=True)), m.Demand)
    assert told(alone.say(1, m.Advertise(3, "")), m.Done)


# -- limits


def test_durable_subscriptions_are_bounded() -> None:
    alone = Alone(bounds=Bounds(durables=2))
    alone.join(1)
    for i in (1, 2):
        assert not codes(alone.say(1, m.Subscribe(i, "", 10, durable=f"d{i}")))
    assert codes(alone.say(1, m.Subscribe(3, "", 10, durable="d3"))) == [Overloaded.code]
    assert codes(alone.say(1, m.Subscribe(3, "", 10, durable="d3", group="g"))) == [Overloaded.code]
    assert not codes(alone.say(1, m.Subscribe(4, "", 10, durable="d2")))  # it exists
    alone.say(1, m.Unsubscribe(1, forget=True))
    assert not codes(alone.say(1, m.Subscribe(3, "", 10, durable="d3")))


@pytest.mark.spec("01/A-18")
def test_groups_are_bounded() -> None:
    alone = Alone(bounds=Bounds(groups=2))
    alone.join(1)
    for i in (1, 2):
        assert not codes(alone.say(1, m.Subscribe(i, "", 10, group=f"g{i}")))
    assert codes(alone.say(1, m.Subscribe(3, "", 10, group="g3"))) == [Overloaded.code]
    assert not codes(alone.say(1, m.Subscribe(4, "", 10, group="g2")))  # it exists
    alone.say(1, m.Unsubscribe(1))
    assert not codes(alone.say(1, m.Subscribe(3, "", 10, group="g3")))


@pytest.mark.parametrize("kind", ["durable", "group"])
def test_one_grant_cannot_use_up_what_all_share(kind: str) -> None:
    owners = ["mallory", "desk", "shop"]
    alone = Alone(bounds=Bounds(durables=12, groups=12, owners=tuple(owners)))
    for id, owner in enumerate(owners, 1):
        alone.join(id, owner, owner=owner)

    def take(id: int) -> int:
        """How many it can get."""
        for i in range(20):
            if codes(alone.say(id, m.Subscribe(i, "", 10, **{kind: f"{id}-{i}"}))):
                return i
        return 20

    assert take(1) == 8
    assert take(2) == take(3) == 2


def test_a_grant_can_be_allowed_less() -> None:
    alone = Alone()
    allowance = Allowance(subscriptions=3, durables=1, groups=1, weight=40)
    alone.join(1, "ann", owner="desk", allowance=allowance)
    alone.join(2, "bob", owner="desk", allowance=allowance)
    alone.join(3, "eve", owner="shop")
    assert not codes(alone.say(1, m.Subscribe(1, "", 10, durable="d1")))
    assert codes(alone.say(2, m.Subscribe(1, "", 10, durable="d2"))) == [Overloaded.code]
    assert not codes(alone.say(2, m.Subscribe(1, "", 10, group="g1")))
    assert codes(alone.say(1, m.Subscribe(2, "", 10, group="g2"))) == [Overloaded.code]
    heavy = "x in (1, 3, 5, 7, 9, 11)"
    for asked in (m.Subscribe(2, heavy, 10), m.Advertise(1, heavy), m.Subscribe(2, [heavy], 10)):
        assert codes(alone.say(1, asked)) == [NotPermitted.code]
    assert not codes(alone.say(1, m.Subscribe(2, ["x = 1"], 10)))
    assert codes(alone.say(1, m.Amend(9, 2, [heavy]))) == [NotPermitted.code]
    assert codes(alone.say(2, m.Subscribe(3, "", 10))) == [Overloaded.code]
    assert not codes(alone.say(3, m.Subscribe(3, heavy, 10, durable="d2", group="g2")))
    alone.say(1, m.Unsubscribe(2))
    assert not codes(alone.say(2, m.Subscribe(3, "", 10)))


def test_a_grant_publishes_no_faster_than_it_may() -> None:
    """What comes too fast waits, and others do not wait for it."""
    alone = Alone()
    for id, name in ((1, "ann"), (2, "bob")):
        alone.join(id, name, owner="desk", allowance=Allowance(rate=10))
    alone.join(3, "eve", owner="shop")
    for i in range(1, 31):
        alone.publish(1, "ann", i)
    alone.publish(2, "bob", 1)
    assert alone.core.head == 12  # a second's worth, one more, and one of another client
    for i in range(1, 31):
        assert told(alone.publish(3, "eve", i), m.Published)
    heads = []
    for tenth in range(1, 31):
        alone.tick(tenth / 10)
        heads.append(alone.core.head - 30)
    assert heads == sorted(heads)
    assert all(b - a <= 1 for a, b in pairwise(heads))
    assert heads[-1] == 31
    assert told(alone.heard[1], m.Published)[-1].through == 1_030
    for i in range(31, 80):
        alone.publish(1, "ann", i)
    with pytest.raises(ProtocolError, match="at most 10"):
        alone.publish(1, "ann", 80)


def test_what_is_attached_is_known() -> None:
    alone = Alone()
    alone.join(1)
    alone.join(2, "bob")
    alone.say(1, m.Subscribe(1, "", 10, durable="d"))
    durable = alone.core.durables["d"]
    assert alone.core.is_attached(durable)
    alone.say(2, m.Subscribe(1, "", 10, durable="d"))  # takes it over
    assert alone.core.is_attached(durable)
    alone.core.leave(2)
    assert not alone.core.is_attached(durable)


# -- how far a stream was known to be


def test_what_was_not_routed_yet_is_not_known_to_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscribers are told meanwhile how far the stream is, and go on behind that."""
    monkeypatch.setattr(traffic, "COST_AT_ONCE", 1)
    alone = Alone()
    alone.core.link_up("b")
    alone.hear("b", m.Streams([m.Origin("b#", "b")], []))
    alone.join(1)
    alone.say(1, m.Subscribe(1, "", 10))
    [(_, probe)] = [a for a in alone.sent if isinstance(a.message, m.Probe)]
    alone.hear("b", m.Echo(probe.origin, probe.number, {"b#": 0}))
    items = [note("bob", sequence) for sequence in range(3)]
    steps = alone.core.hear_neighbor("b", m.Forward("b#", [1, 2, 3], items))
    next(steps)
    alone.tick(progress.EVERY)
    list(steps)
    alone.flush()
    given = told(alone.heard[1], m.Deliver)
    assert [offset for each in given for offset in each.offsets] == [1, 2, 3]


def beside(b: list[str], c: list[str], **options: Any) -> Alone:
    """A broker with two neighbors, through each of which brokers of these names are reached."""
    alone = Alone(**options)
    for neighbor, behind in (("b", b), ("c", c)):
        alone.core.link_up(neighbor)
        alone.hear(neighbor, m.Streams([m.Origin(f"{name}#", name) for name in behind], []))
    return alone


def probes(alone: Alone) -> list[m.Probe]:
    return [each.message for each in alone.sent if isinstance(each.message, m.Probe)]


def test_a_link_in_reserve_is_kept_for_a_while() -> None:
    alone = beside(["b", "d"], ["c", "d"])
    alone.tick(MARK_EVERY)
    alone.tick(RESERVE_PATIENCE)
    assert alone.closed == []
    alone.tick(3 * RESERVE_PATIENCE)
    assert alone.closed == ["c"]


def test_what_was_dropped_is_made_known_to_those_behind_only() -> None:
    overlay = beside(["b"], ["c"]).core.overlay
    assert overlay.broken("b#", "c") == m.Streams([m.Origin("b#", "b")], [])
    assert overlay.broken("b#", "b") is None
    assert overlay.broken("x#", "b") is None


def test_a_probe_waits_for_links_but_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Directory, "is_settled", False)
    alone = beside(["b"], ["c"])
    alone.join(1)
    alone.say(1, m.Subscribe(1, "x > 1", 10))
    assert not probes(alone)
    alone.tick(LINKS_PATIENCE)
    assert len(probes(alone)) == 2


def test_a_probe_comes_when_neighbors_have_been_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer would say that a filter is in force of which they have not heard."""
    alone = beside(["b"], ["c"])
    alone.join(1)
    with monkeypatch.context() as patched:
        patched.setattr(Routing, "is_serving", True)
        alone.say(1, m.Subscribe(1, "x > 1", 10))
        assert not probes(alone)
    alone.tick(1.0)
    assert len(probes(alone)) == 2


def test_what_is_published_waits_for_its_advertisement_to_be_in_force() -> None:
    alone = beside(["b"], [], router=tree_router("a", "covering", "covering"))
    alone.join(1)
    alone.say(1, m.Advertise(1, "x >= 0"))
    alone.publish(1, "ann", 0)
    assert alone.log.head == 0
    for probe in probes(alone):
        for neighbor in ("b", "c"):
            alone.hear(neighbor, m.Echo(probe.origin, probe.number, {}))
    assert alone.log.head == 1


def test_a_lease_lasts_from_when_it_was_renewed() -> None:
    alone = Alone()
    alone.join(1)
    alone.say(1, m.Subscribe(1, "x > 1", 10, lease=3.0))
    alone.tick(2.0)
    alone.say(1, m.Renew(1))
    alone.tick(4.9)
    assert not told(alone.heard[1], m.Ended)
    alone.tick(5.1)
    assert told(alone.heard[1], m.Ended)


class TestReminders:
    def linked(self, *neighbors: str) -> Alone:
        alone = Alone()
        for each in neighbors:
            alone.core.link_up(each)
        alone.flush()
        return alone

    def marks(self, alone: Alone, to: str) -> list[m.Mark]:
        found = [a.message for a in alone.sent if a.neighbor == to]
        return [message for message in found if isinstance(message, m.Mark)]

    def test_who_comes_back_is_told_how_far_it_was(self) -> None:
        alone = self.linked("b#")
        up = m.Streams([m.Origin("b#", "b")], [])
        alone.hear("b#", up)
        assert self.marks(alone, "b#") == [m.Mark("b#", 0)]  # nobody has heard of it
        alone.hear("b#", m.Forward("b#", [7], [note("bob", 1)]), m.Mark("b#", 9))
        alone.core.link_down("b#")
        alone.core.link_up("b#")
        alone.hear("b#", up)
        assert self.marks(alone, "b#")[1:] == [m.Mark("b#", 9)]

    def test_so_is_who_is_further_away(self) -> None:
        """Those on the way may have forgotten it."""
        alone = self.linked("b", "c")
        alone.hear("b", m.Streams([m.Origin("x#", "x")], []))
        assert self.marks(alone, "b") == []
        alone.hear("c", m.Mark("x#", 5), m.Mark("x#", 4), m.Mark("x#", 6))
        assert self.marks(alone, "b") == [m.Mark("x#", 5), m.Mark("x#", 6)]

    def test_durable_subscriptions_remember_it_over_a_restart(self) -> None:
        alone = self.linked("b")
        durable = Durable("d", Interest([Filter("")]), since=0.0, positions={"b#": 12})
        alone.core.restore({"d": durable.to_data()})
        alone.hear("b", m.Streams([m.Origin("b#", "b")], []))
        assert self.marks(alone, "b") == [m.Mark("b#", 12)]

    def test_the_broker_knows_what_it_is_told(self) -> None:
        alone = self.linked("b", "c")
        assert alone.core.used is None
        alone.hear("b", m.Mark("a#", 0))
        assert alone.core.used == 0
        alone.hear("c", m.Mark("a#", 8), m.Mark("a#", 3))
        assert alone.core.used == 8

    def test_who_may_not_publish_everything_is_not_believed(self) -> None:
        alone = Alone()
        alone.core.link_up("b", Rights("partner", Filter("x > 1"), None))
        alone.hear("b", m.Mark("a#", 8))
        assert alone.core.used is None

    def test_what_clients_say_of_it_is_kept_apart(self) -> None:
        alone = Alone()
        alone.join(1)
        alone.publish(1, "ann", 1)
        alone.say(1, m.Subscribe(1, "", 10, positions={"a#": 1}))
        assert alone.core.journals.claimed == 0
        alone.say(1, m.Subscribe(2, "", 10, positions={"a#": 5}))
        assert (alone.core.journals.claimed, alone.core.used) == (5, None)


# -- what journals keep for durable subscriptions


@pytest.mark.spec("R-07.40")
class TestWanted:
    def alone(self) -> Alone:
        alone = Alone()
        for neighbor in ("b", "c"):
            alone.core.link_up(neighbor)
        alone.hear("b", m.Streams([m.Origin("b#", "b"), m.Origin("x#", "x")], []))
        alone.hear("c", m.Streams([m.Origin("c#", "c")], []))
        return alone

    def said(self, alone: Alone) -> list[tuple[str, m.Wanted]]:
        found = [(a.neighbor, a.message) for a in alone.sent if isinstance(a.message, m.Wanted)]
        alone.sent.clear()
        return [(to, wanted) for to, wanted in found if wanted.since < inf or wanted.first < inf]

    def test_brokers_of_streams_are_told_what_is_needed(self) -> None:
        alone = self.alone()
        for name, position in (("d", 4), ("e", 7)):
            durable = Durable(name, Interest([Filter("")]), since=5.0, positions={"x#": position})
            alone.core.restore({name: durable.to_data()})
        alone.tick(WANTED_EVERY)
        assert self.said(alone) == [
            ("b", m.Wanted("b#", "a#", inf, 5.0)),
            ("b", m.Wanted("x#", "a#", 5.0, inf)),
            ("c", m.Wanted("c#", "a#", inf, 5.0)),
        ]
        alone.tick(2 * WANTED_EVERY)
        assert self.said(alone) == []  # nothing is new

    def test_what_is_needed_no_longer_is_said_a_round_later(self) -> None:
        """By then its new home has said that it needs it, if it has one."""
        alone = self.alone()
        durable = Durable("d", Interest([Filter("")]), since=5.0, positions={"x#": 4})
        alone.core.restore({"d": durable.to_data()})
        alone.tick(WANTED_EVERY)
        assert ("b", m.Wanted("x#", "a#", 5.0, inf)) in self.said(alone)
        alone.core.durables["d"].done["x#"] = Offsets(9)
        alone.tick(2 * WANTED_EVERY)
        assert self.said(alone) == []
        alone.tick(3 * WANTED_EVERY)
        assert self.said(alone) == [("b", m.Wanted("x#", "a#", 10.0, inf))]

    def test_what_is_needed_is_the_least_that_anybody_needs(self) -> None:
        alone = self.alone()
        assert alone.core.wanted.low("a#") is None
        alone.hear("b", m.Wanted("a#", "b#", 9.0, inf))
        alone.hear("b", m.Wanted("a#", "x#", 3.0, inf))
        assert alone.core.wanted.low("a#") == 3
        alone.hear("b", m.Wanted("a#", "x#", inf, inf))  # it was deleted, or has moved
        assert alone.core.wanted.low("a#") == 9
        alone.hear("c", m.Wanted("a#", "c#", inf, 0.0))
        assert alone.core.wanted.low("a#") == 1

    def test_a_journal_is_looked_into_once_however_many_need_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        alone = self.alone()
        alone.hear("b", *(m.Wanted("a#", f"b#{i}", inf, float(i)) for i in range(9, 99)))
        asked: list[float] = []
        monkeypatch.setattr(alone.log, "offset_at", lambda since: asked.append(since) or 7)
        assert alone.core.wanted.low("a#") == 7
        assert asked == [9.0]

    def test_it_outlives_a_restart_and_is_passed_on(self) -> None:
        alone = self.alone()
        alone.hear("b", m.Wanted("a#", "b#", 9.0, inf))
        alone.tick(WANTED_EVERY)
        data = alone.stored[WANTED_STORED]
        assert data is not None
        again = self.alone()
        again.core.restore({WANTED_STORED: data})
        assert again.core.wanted.low("a#") == 9
        wanted = m.Wanted("x#", "c#", 2.0, inf)
        again.hear("c", wanted)
        assert ("b", wanted) in self.said(again)


# -- publishers that wait


class TestBlock:
    def alone(self, limit: int = 1, **options: Any) -> Alone:
        alone = Alone()
        alone.join(1, "slow", **options)
        alone.join(2, "fast")
        alone.say(1, m.Subscribe(1, "", 0, overflow="block", limit=limit))
        return alone

    def test_nobody_waits_for_long(self) -> None:
        alone = self.alone()
        assert not told(alone.publish(2, "fast", 1), m.Published)
        alone.tick(PATIENCE / 2)
        assert not told(alone.heard[2], m.Published)
        alone.tick(PATIENCE)
        assert told(alone.heard[2], m.Published)
        assert not alone.core.congested
        assert told(alone.publish(2, "fast", 2), m.Published)
        assert told(alone.publish(2, "fast", 3), m.Published)

    def test_who_takes_little_is_not_waited_for_again_and_again(self) -> None:
        alone = self.alone()
        alone.publish(2, "fast", 1)
        alone.tick(PATIENCE)
        for i in range(2, 2 * YIELDED):
            assert told(alone.publish(2, "fast", i), m.Published)
            alone.say(1, m.Credit(1, 1))
            alone.tick(PATIENCE * i / 2)
        delivered = told(alone.heard[1], m.Deliver)
        assert [o for each in delivered for o in each.offsets] == list(range(1, 2 * YIELDED - 1))

    def test_who_has_caught_up_is_waited_for_again_after_a_while(self) -> None:
        alone = self.alone()
        alone.publish(2, "fast", 1)
        alone.tick(PATIENCE)
        alone.say(1, m.Credit(1, 1))
        alone.tick(PATIENCE * YIELDED)
        assert told(alone.publish(2, "fast", 2), m.Published)
        alone.say(1, m.Credit(1, 1))
        alone.tick(PATIENCE * (YIELDED + 1))
        assert not told(alone.publish(2, "fast", 3), m.Published)
        alone.say(1, m.Credit(1, 1))
        assert len(told(alone.heard[2], m.Published)) == 3

    def test_one_after_the_other_wait_no_longer_than_one(self) -> None:
        alone = self.alone()
        for number in range(2, 6):
            text = f"x >= {number}"
            alone.say(1, m.Subscribe(number, text, 0, overflow="block", limit=1))
        for i in range(1, 6):
            alone.publish(2, "fast", i)
            alone.tick(PATIENCE * i / 6)
            assert not told(alone.heard[2], m.Published)
        alone.tick(PATIENCE)
        assert told(alone.heard[2], m.Published)[-1].through == 1_005

    def test_it_is_told_and_counted(self) -> None:
        alone = self.alone()
        alone.publish(2, "fast", 1)
        alone.tick(PATIENCE)
        assert told(alone.heard[1], m.Yielded) == [m.Yielded(1, PATIENCE)]
        assert alone.core.counters["yielded"] == 1

    def test_what_no_journal_holds_is_dropped_then(self) -> None:
        alone = self.alone(limit=2)
        for i in range(1, 5):
            alone.publish(2, "fast", i, volatile=True)
        alone.tick(PATIENCE)
        (subscription,) = alone.core.subscriptions.values()
        assert (len(subscription.feed), subscription.feed.dropped) == (4, 0)
        alone.publish(2, "fast", 5, volatile=True)
        assert (len(subscription.feed), subscription.feed.dropped) == (2, 3)

    def test_a_grant_may_have_less_of_it_or_nothing(self) -> None:
        alone = self.alone(allowance=Allowance(block=PATIENCE / 10))
        alone.publish(2, "fast", 1)
        alone.tick(PATIENCE / 10)
        assert told(alone.heard[2], m.Published)
        alone.join(3, "viewer", allowance=Allowance(overflow=("spill",)))
        assert codes(alone.say(3, m.Subscribe(1, "", 0, overflow="block"))) == [NotPermitted.code]
        assert codes(alone.say(3, m.Subscribe(2, "", 0, overflow="spill"))) == []

    def test_who_is_slow_but_takes_loses_nothing(self) -> None:
        alone = self.alone(limit=3)
        for i in range(1, 40):
            alone.publish(2, "fast", i, volatile=True)
            alone.tick(i * PATIENCE / 2)
            alone.say(1, m.Credit(1, 1))
        assert not told(alone.heard[1], m.Yielded)
        (subscription,) = alone.core.subscriptions.values()
        assert not subscription.feed.dropped


# -- what waits for probes


def stuck(**options: Any) -> Alone:
    """A neighbor that answers no probe."""
    alone = Alone(**options)
    alone.core.link_up("b")
    alone.core.receive("b", m.Streams([m.Origin("b#", "b")], []))
    alone.flush()
    return alone


def test_who_comes_and_goes_while_a_probe_is_under_way_leaves_nothing() -> None:
    alone = stuck()
    alone.join(1)
    for number in range(1, 100):
        alone.say(1, m.Subscribe(number, "", 10), m.Unsubscribe(number))
    assert not alone.core.probing.settling
    alone.say(1, m.Subscribe(100, "", 10))
    assert len(alone.core.probing.settling) == 1
    alone.core.leave(1)
    assert not alone.core.probing.settling


def test_advertisements_that_wait_for_a_probe_are_bounded() -> None:
    """Also if they are withdrawn at once."""
    alone = stuck(
        bounds=Bounds(subscriptions=3), router=tree_router("a", advertisements="covering")
    )
    alone.join(1)
    alone.join(2, "bob")
    for number in range(1, 4):
        assert not codes(alone.say(1, m.Advertise(number, "x > 1"), m.Unadvertise(number)))
    refused = m.Advertise(4, "x > 1")
    assert codes(alone.say(1, refused)) == [Overloaded.code]
    assert "wait until it has answered" in told(alone.heard[1], m.Failure)[0].message
    assert not codes(alone.say(2, m.Advertise(1, "x > 1")))
    alone.core.leave(2)
    while alone.core.probing.waiting(1):
        alone.core.receive("b", m.Echo("a#", alone.core.probing.probes.number, {"b#": 0}))
        alone.flush()
    assert [each.number for each in told(alone.heard[1], m.Done)].count(3) == 2
    assert not codes(alone.say(1, refused))
    assert not told(alone.heard[2], m.Done)
    alone.core.leave(1)
    assert not alone.core.probing.waiting(1)


@pytest.mark.parametrize("durable", [None, "d"])
@pytest.mark.parametrize("last", ["b", "evil"])
def test_only_who_leads_to_a_stream_says_how_far_it_is(durable: str | None, last: str) -> None:
    """A neighbor that answers for the stream of another does not make anybody miss what comes."""
    alone = stuck()
    alone.core.link_up("evil")
    alone.core.receive("evil", m.Streams([m.Origin("evil#", "evil")], []))
    alone.join(1)
    alone.say(1, m.Subscribe(1, "x > 0", 10, durable=durable))
    probe = alone.core.probing.probes.number
    echoes = {
        "b": m.Echo("a#", probe, {"b#": 3}),
        "evil": m.Echo("a#", probe, {"evil#": 0, "b#": 10**9, "a#": 10**9}),
    }
    for neighbor in sorted(echoes, key=lambda name: name == last):
        alone.core.receive(neighbor, echoes[neighbor])
    alone.flush()
    assert told(alone.heard[1], m.Subscribed)
    alone.core.receive("evil", m.Mark("b#", 10**9))
    alone.core.receive("b", m.Forward("b#", [4], [note("bob", 4)]))
    alone.publish(1, "ann", 5)
    assert [d.offsets for d in told(alone.heard[1], m.Deliver)] == [[4], [1]]


def test_a_position_that_a_stream_never_had_is_taken_back() -> None:
    """Who leads to a stream can say anything of it; not for longer than it does."""
    alone = stuck()
    alone.join(1)
    alone.say(1, m.Subscribe(1, "x > 0", 10, durable="d"))
    probe = alone.core.probing.probes.number
    alone.core.receive("b", m.Echo("a#", probe, {"b#": 10**9}))
    alone.flush()
    assert alone.core.durables["d"].positions["b#"] == 10**9
    alone.core.link_down("b")
    alone.core.link_up("c")
    alone.core.receive("c", m.Streams([m.Origin("b#", "b"), m.Origin("c#", "c")], []))
    alone.flush()
    probe = alone.core.probing.probes.number
    alone.core.receive("c", m.Echo("a#", probe, {"b#": 3, "c#": 0}))
    # How far it is at least; the journal tells how far it is.
    [fetch] = [n for n, f in alone.core.catching_up.fetches._pending.items() if f.stream == "b#"]
    alone.core.receive("c", m.Chunk("a#", fetch, "b#", [], [], through=10**9, head=3))
    alone.flush()
    assert alone.core.durables["d"].positions["b#"] == 3
    stored = alone.stored["d"]
    assert stored is not None
    assert Durable.from_data("d", stored).positions["b#"] == 3
    alone.core.receive("c", m.Forward("b#", [4], [note("bob", 4)]))
    alone.flush()
    assert [d.offsets for d in told(alone.heard[1], m.Deliver)] == [[4]]


@pytest.mark.parametrize("left_out", [True, False])
def test_a_request_that_may_be_lost_does_not_keep_its_place(left_out: bool) -> None:
    """One that somebody did not pass on, who did not know yet where we are, is never answered."""
    with small(stretch=1_000, fetches=1):
        alone = stuck()
        alone.join(1)
        alone.say(1, m.Subscribe(1, "", 10, since=0.0))
        first = alone.core.probing.probes.number
        alone.core.receive("b", m.Streams([m.Origin("b#", "b")], []))
        alone.flush()
        [lost] = alone.core.catching_up.fetches._pending
        alone.core.receive("b", m.Echo("a#", first, {} if left_out else {"b#": 0}))
        alone.flush()
        # Nothing is proved yet; and who does not answer is not asked for anything.
        assert (lost in alone.core.catching_up.fetches._pending) == (not left_out)
        alone.tick(AGAIN_FIRST)
        alone.core.receive("b", m.Echo("a#", alone.core.probing.probes.number, {"b#": 1}))
        alone.flush()
        [again] = alone.core.catching_up.fetches._pending
        assert again != lost
        alone.core.receive("b", m.Chunk("a#", again, "b#", [1], [note("bob", 1)], 1, head=1))
        alone.flush()
    assert [d.offsets for d in told(alone.heard[1], m.Deliver)] == [[1]]


def test_what_has_passed_here_counts_though_its_broker_said_less_later() -> None:
    """Or who asks now would be told that it will come, and it has been."""
    alone = stuck()
    alone.core.link_up("c")
    alone.core.receive("c", m.Streams([m.Origin("c#", "c")], []))
    alone.join(1)
    alone.say(1, m.Subscribe(1, "x > 0", 10))
    probe = alone.core.probing.probes.number
    alone.core.receive("b", m.Echo("a#", probe, {"b#": 3}))
    alone.core.receive("b", m.Forward("b#", [4], [note("bob", 4)]))
    alone.core.receive("b", m.Mark("b#", 3))
    alone.flush()
    alone.core.receive("c", m.Probe("c#", 1))
    [echo] = [
        action.message
        for action in alone.core.take()
        if isinstance(action, ToLink) and isinstance(action.message, m.Echo)
    ]
    assert echo.heads == {"a#": 0, "b#": 4}


def test_a_broker_has_one_wave() -> None:
    probes = Probes("b#")
    for number in range(1, 100):
        probes.passed("a", m.Probe("a#", number), {"a": 0, "c": 0}, {"b#": 3})
    assert len(probes._waves) == 1
    assert probes.echoed("c", m.Echo("a#", 98, {}), {"b#": 3}) == ([], None)
    sends, _ = probes.echoed("c", m.Echo("a#", 99, {}), {"b#": 3})
    assert sends == [("a", m.Echo("a#", 99, {"b#": 3}))]


def test_probes_of_nobody_are_not_kept() -> None:
    alone = stuck()
    alone.core.link_up("c")
    alone.core.take()
    for number in range(100):
        alone.core.receive("b", m.Probe(f"z{number}#", 1))
    assert not [origin for origin in alone.core.probing.probes._waves if origin.startswith("z")]
    answers = [action.message for action in alone.core.take()]  # type: ignore[union-attr]
    assert m.Echo("z7#", 1, {}) in answers


# -- what one step does


def asking(*numbers: int) -> m.Subscriptions:
    return m.Subscriptions([(f"x = {i}", f"x = {i}") for i in numbers], [])


def test_what_a_neighbor_asked_for_goes_in_steps() -> None:
    alone = Alone()
    core = alone.core
    told: set[str] = set()

    def listen() -> None:
        for action in core.take():
            if isinstance(action, ToLink) and action.neighbor == "c#":
                message = action.message
                if isinstance(message, m.Subscriptions):
                    told.update(text for _, text in message.added)
                    told.difference_update(map(str, message.removed))

    for neighbor in ("b#", "c#"):
        core.link_up(neighbor)
    core.receive("b#", asking(*range(1_000)))
    listen()
    assert len(told) == 1_000
    core.link_down("b#")
    listen()
    assert 0 < len(told) < 1_000
    assert core.is_unlinking("b#")
    assert core.neighbors == ["c#"]
    while core.has_work:
        before = len(told)
        core.work()
        listen()
        assert before - len(told) <= UNLINKED_AT_ONCE
    assert not told
    assert not core.is_unlinking("b#")
    core.link_down("c#")
    assert core.router.plane.is_empty


def test_filters_of_a_neighbor_that_cost_much_are_taken_in_steps() -> None:
    """Half of all boxes have to be looked at for each of them."""
    alone = Alone()
    core = alone.core
    for neighbor in ("b#", "c#"):
        core.link_up(neighbor)
    sides = [i * 7 % 1_500 for i in range(1_500)]
    texts = [f"x > {i} and y < {i}" for i in sides]
    spent = []
    before = effort.left
    for _ in core.hear_neighbor("b#", m.Subscriptions([(text, text) for text in texts], [])):
        spent.append(before - effort.left)
        before = effort.left
    assert max(spent) < 2 * EFFORT < sum(spent)
    assert len(core.router.plane.subscriptions.table) == len(texts)


@pytest.mark.parametrize("graph", [False, True])
def test_an_advertisement_calls_for_many_subscriptions_in_steps(graph: bool) -> None:
    """Who hears that it is in force has been asked for all of them."""
    count = 1_000
    if graph:
        alone = Alone(router=GraphRouter("a#", "covering", "covering", at_once=32))
    else:
        alone = Alone(router=tree_router("a#", advertisements="covering", at_once=32))
    core = alone.core
    core.join(1, "ann")
    for i in range(count):
        core.heard(1, m.Subscribe(i, f"x{i} = 1", 10))
    core.link_up("b#")
    if graph:
        core.receive("b#", m.Links([m.LinkState("b#", 1, (("a#", 1),), (m.Origin("b#", "b"),))]))
    else:
        core.receive("b#", m.Streams([m.Origin("b#", "b")], []))
    core.take()
    key = ("b#", 1) if graph else "true"
    messages = m.Advertisements([(key, "true")], []), m.Probe("b#", 1)
    told = 0
    before = effort.left
    for message in messages:
        for _ in core.hear_neighbor("b#", message):
            assert before - effort.left < 2 * STEERED
            before = effort.left
            for action in core.take():
                if isinstance(action, ToLink) and isinstance(action.message, m.Subscriptions):
                    assert len(action.message.added) < count // 2
                    told += len(action.message.added)
                if isinstance(action, ToLink) and isinstance(action.message, m.Echo):
                    assert told == count
    assert told == count


@pytest.mark.parametrize("heard", [False, True])
def test_a_new_neighbor_is_told_what_is_asked_for_in_steps(heard: bool) -> None:
    """Until it knows all of it, it is not a neighbor and is not heard."""
    alone = Alone()
    core = alone.core
    count = 1_000
    core.link_up("b#")
    core.receive("b#", asking(*range(count)))
    core.take()
    core.link_up("c#")
    messages = m.Streams([m.Origin("c#", "c")], []), m.Probe("c#", 1)
    steps = chain.from_iterable(core.hear_neighbor("c#", message) for message in messages)
    told: list[str] = []
    while True:
        sent = [a.message for a in core.take() if isinstance(a, ToLink) and a.neighbor == "c#"]
        filters = [message for message in sent if isinstance(message, m.Subscriptions)]
        told += [text for message in filters for _, text in message.added]
        assert sum(len(message.added) for message in filters) <= TOLD_AT_ONCE
        if len(told) == count:
            break
        assert sent == filters
        assert core.neighbors == ["b#"]
        assert not core.directory.reaches("c#")
        assert core.has_work
        next(steps) if heard else core.work()
    assert len(set(told)) == count
    assert isinstance(sent[-1], m.Streams)
    assert core.neighbors == ["b#", "c#"]
    for _ in steps:
        pass
    assert core.directory.reaches("c#")


def test_a_link_may_go_before_the_neighbor_was_told_everything() -> None:
    alone = Alone()
    core = alone.core
    core.link_up("b#")
    core.receive("b#", asking(*range(1_000)))
    core.link_up("c#")
    core.link_down("c#")
    alone.flush()
    assert core.neighbors == ["b#"]
    core.link_down("b#")
    alone.flush()
    assert core.router.plane.is_empty


def test_a_neighbor_that_comes_back_at_once_begins_afresh() -> None:
    alone = Alone()
    core = alone.core
    core.link_up("b#")
    core.receive("b#", asking(*range(1_000)))
    core.link_down("b#")
    assert core.is_unlinking("b#")
    core.link_up("b#")
    assert not core.is_unlinking("b#")
    core.receive("b#", asking(7))
    alone.flush()
    assert [str(row.filter) for row in core.router.plane.subscriptions.table.rows()] == ["x = 7"]


@pytest.mark.parametrize("volatile", [False, True])
def test_one_step_brings_little_to_very_many(volatile: bool) -> None:
    """Each gets everything, in order, whatever the number of steps."""
    alone = Alone()
    alone.join(1)
    alone.join(2, "bob")
    count, published = 2_500, 60
    alone.say(1, *[m.Subscribe(i, f"x >= {-i}", 10**6) for i in range(count)])
    items = [note("bob", i) for i in range(published)]
    given: dict[int, list[bytes]] = {i: [] for i in range(count)}
    core = alone.core
    steps = core.hear(2, m.Publish(1, items, volatile=volatile)) or iter(())
    rest = True
    while rest or core.wants_turn:
        rest = next(steps, steps) is not steps
        if core.has_work:
            core.work()
        actions = core.take()
        delivered = [a.message for a in actions if isinstance(a, ToClient)]
        for message in told(delivered, m.Deliver):
            given[message.number] += message.items
        assert len(told(delivered, m.Deliver)) < SERVED_AT_ONCE + published
        for action in actions:
            if isinstance(action, Append):
                first = alone.log.write(action, CLOCK)
                core.committed([(action.context, first, action.items)])
                rest = True
    assert all(heard == items for heard in given.values())


@pytest.mark.parametrize("volatile", [False, True])
def test_one_event_is_given_to_few_feeds_in_one_step(
    volatile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks meanwhile gets what is published afterwards, and the next event waits."""
    monkeypatch.setattr(traffic, "FED_AT_ONCE", 100)
    alone = Alone()
    alone.join(1)
    alone.join(2, "bob")
    count = 950
    alone.say(1, *[m.Subscribe(i, f"x >= {-i}", 10) for i in range(count)])
    fed: list[str] = []
    offer = Feed.offer

    def counting(feed: Feed, run: Run) -> None:
        fed.append(feed.id)
        offer(feed, run)

    monkeypatch.setattr(Feed, "offer", counting)
    core = alone.core
    head = core.head
    publish = m.Publish(1, [note("bob", 1)], volatile=volatile)
    assert core.hear(2, publish) is None
    for action in core.take():
        if isinstance(action, Append):
            core.committed([(action.context, alone.log.write(action, CLOCK), action.items)])
        elif isinstance(action, ToClient):
            alone.heard[action.session].append(action.message)
    assert 0 < len(fed) <= 100
    late = core.hear(2, m.Subscribe(1, "x > 0", 10))
    assert late is not None
    while "bob@2/1" not in core.subscriptions:
        before = len(fed)
        next(late, None)
        assert len(fed) - before <= 100
        if len(fed) < count:
            assert core.head == head
    assert len(fed) == len(set(fed)) == count
    assert core.head == head + (not volatile)
    alone.flush()
    assert not told(alone.heard[2], m.Deliver)
    assert len(told(alone.heard[1], m.Deliver)) == count


@pytest.mark.parametrize("text", ["x < 0", "x >= 0", "x = 77"])
def test_one_step_looks_at_few_large_entries(text: str) -> None:
    class Whole(MemoryLog):
        """It gives all that is asked for, as a journal in memory does."""

        def read(self, first: int, limit: int) -> list[bytes]:
            return [data for data, _ in self.entries[first - 1 : first - 1 + limit]]

    log = Whole("a#")
    for i in range(100):
        id = NotificationId("ann", 0, i)
        data = encode(Notification({"x": i, "text": "t" * (i % 7) * 10_000}, id=id))
        log.entries.append((data, CLOCK))
    found: list[int] = []
    through = 0
    while through < log.head:
        chunk = stretch(log, log.head, m.Fetch("a#", "b#", 1, text, through + 1, 0.0))
        sizes = [len(data) for data, _ in log.entries[through : chunk.through]]
        assert sizes
        assert sum(sizes) <= LOOKED_BYTES or len(sizes) == 1
        found += chunk.offsets
        through = chunk.through
    assert found == [i for i in range(1, 101) if Filter(text).matches({"x": i - 1})]


@pytest.mark.parametrize("text", ["x < 0", "x >= 0"])
def test_one_step_looks_at_few_large_last_values(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MemoryLog("a#")
    values = {}
    for i in range(100):
        id = NotificationId("ann", 0, i)
        data = encode(Notification({"x": i, "text": "t" * (i % 7) * 10_000}, id=id))
        values[f"k{i:03}"] = LastValue(f"k{i:03}", CLOCK, data)
    monkeypatch.setattr(
        log,
        "last_values",
        lambda after, limit: [v for k, v in values.items() if k > after][:limit],
    )
    looked: list[list[int]] = []
    decode_all = reading.decode_headers

    def counting(items: list[bytes]) -> Any:
        looked.append([len(data) for data in items])
        return decode_all(items)

    monkeypatch.setattr(reading, "decode_headers", counting)
    found = []
    for chunk in reading.last_values(log, m.Fetch("a#", "b#", 1, text, 0, 0.0)):
        if chunk is not None:
            found += chunk.keys
    assert found == [key for i, key in enumerate(values) if Filter(text).matches({"x": i})]
    assert all(sum(sizes) <= LOOKED_BYTES or len(sizes) == 1 for sizes in looked)
    assert sum(map(len, looked)) == len(values)


def steps_of(alone: Alone, id: int, message: Any) -> list[int]:
    """What each step has cost in which the message was dealt with; others have turns in between."""
    spent = []
    before = effort.left
    steps = alone.core.hear(id, message) or iter(())
    more = True
    while more:
        spent.append(before - effort.left)
        alone.flush()
        before = effort.left
        more = next(steps, steps) is not steps
    alone.flush()
    return [*spent, before - effort.left]


def boxes(start: int, count: int) -> list[str]:
    """Half of all of them have to be looked at for each."""
    return [f"x > {i} and y < {i}" for i in range(start, start + 3 * count, 3)]


def crowded() -> Alone:
    alone = Alone()
    alone.core.link_up("b")
    alone.join(1)
    alone.say(1, *[m.Subscribe(i, text, 10) for i, text in enumerate(boxes(0, 1_000))])
    alone.join(2, "bob")
    return alone


def echoed(alone: Alone) -> None:
    """The neighbor has heard of everything."""
    while alone.core.probing.probes.waiting:
        alone.core.receive("b", m.Echo("a#", alone.core.probing.probes.number, {}))
        alone.flush()


@pytest.mark.parametrize("durable", [None, "d"])
def test_an_inbox_is_opened_and_amended_in_steps(durable: str | None) -> None:
    """And all of it is asked for before anybody is told that it is in force."""
    alone = crowded()
    core = alone.core
    echoed(alone)
    first, second = boxes(1, 200), boxes(2, 200)
    costs = steps_of(alone, 2, m.Subscribe(1, first, 10, durable=durable))
    assert max(costs) < 2 * EFFORT < sum(costs)
    echoed(alone)
    assert told(alone.heard[2], m.Subscribed)
    costs = steps_of(alone, 2, m.Amend(2, 1, second, first))
    assert max(costs) < 2 * EFFORT < sum(costs)
    echoed(alone)
    assert [done.number for done in told(alone.heard[2], m.Done)] == [2]
    [inbox] = [s for s in core.subscriptions.values() if not s.interest.fixed]
    table = core.router.plane.subscriptions.table
    routed = set(table.at(Local(inbox.feed.id)).values())
    assert routed == set(inbox.interest) == set(map(Filter, second))


@pytest.mark.parametrize("step", [1, 2])
def test_who_leaves_while_an_inbox_is_opened_leaves_nothing(step: int) -> None:
    alone = crowded()
    core = alone.core
    steps = core.hear(2, m.Subscribe(1, boxes(1, 200), 10, durable="d"))
    assert steps is not None
    for _ in range(step):
        next(steps)
    core.leave(2)
    if step == 1:
        del steps  # they may be left undone
    else:
        assert not list(steps)
    alone.flush()
    assert len(core.subscriptions) == len(core.router.plane.subscriptions.table) == 1_000


def test_who_joins_a_group_while_its_inbox_is_opened_has_all_of_it() -> None:
    alone = crowded()
    core = alone.core
    alone.join(3, "cat")
    echoed(alone)
    filters = boxes(1, 200)
    begun = core.hear(2, m.Subscribe(1, filters, 10, group="g"))
    assert begun is not None
    joined = core.hear(3, m.Subscribe(1, filters, 10, group="g"))
    assert joined is not None
    alone.flush()
    assert not told(alone.heard[3], m.Subscribed)
    amended = core.hear(3, m.Amend(2, 1, [], filters[-50:]))
    core.leave(2)
    del begun
    for steps in (joined, amended or ()):
        for _ in steps:
            pass
    alone.flush()
    echoed(alone)
    assert told(alone.heard[3], m.Subscribed)
    assert told(alone.heard[3], m.Done)
    assert len(core.router.plane.subscriptions.table) == 1_000 + 150


def test_progress_is_told_to_few_at_a_time_where_there_are_many_streams() -> None:
    alone = Alone()
    core = alone.core
    core.link_up("b")
    streams = [m.Origin(f"s{i}#", f"s{i}") for i in range(200)]
    core.receive("b", m.Streams(streams, []))
    alone.join(1)
    alone.say(1, *[m.Subscribe(i, "x > 1", 10) for i in range(300)])
    for origin in streams:
        core.receive("b", m.Mark(origin.stream, 7))
    alone.flush()
    looked = 0
    mark = Feed.mark

    def counting(feed: Feed, stream: str, head: int) -> bool:
        nonlocal looked
        looked += 1
        return mark(feed, stream, head)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Feed, "mark", counting)
        ticks = 0
        while looked < 300 * 200:
            before = looked
            ticks += 1
            core.tick(10.0 + ticks / 10, CLOCK)
            core.take()
            assert 0 < looked - before <= progress.AT_ONCE
    assert ticks > 1


def test_parts_that_have_work_take_turns() -> None:
    """Nobody waits for more than one piece of one of them."""
    alone = crowded()
    core = alone.core
    core.leave(1)
    core.link_up("c")
    core.link_down("b")
    pieces: list[str] = []
    parts = [part for part in core._working if part.has_work]
    assert len(parts) > 1
    with pytest.MonkeyPatch.context() as patch:
        for part in parts:
            kind, work = type(part), type(part).work

            def counted(self: Any, work: Any = work, kind: type = kind) -> None:
                pieces.append(kind.__name__)
                work(self)

            patch.setattr(kind, "work", counted)
        for _ in parts:
            before = len(pieces)
            core.work()
            assert len(pieces) == before + 1
    assert len(set(pieces)) == len(parts)


def settled(alone: Alone, count: int, **terms: Any) -> tuple[str, list[int]]:
    """A client that has so many notifications which it has not settled: their stream, offsets."""
    alone.join(1)
    alone.join(2, "bob")
    settlement = m.Settlement(**terms)
    alone.say(1, m.Subscribe(1, "true", 100_000, durable="d", settlement=settlement))
    ids = (NotificationId("bob", 1, i) for i in range(count))
    alone.say(2, m.Publish(1, [encode(Notification({"x": 1}, id=id)) for id in ids]))
    (subscription,) = alone.core.subscriptions.values()
    assert subscription.settling is not None
    offsets = [entry.offset for entry in subscription.settling]
    assert len(offsets) == count
    return "a#", offsets


@pytest.mark.parametrize("begun", [False, True])
def test_what_is_refused_is_looked_at_in_steps(begun: bool) -> None:
    """Each refusal looks at all that is unsettled."""
    alone = Alone()
    stream, offsets = settled(alone, 2_000)
    refused = [m.Refused(stream, offset) for offset in reversed(offsets)]
    message = m.Settle(1, {}, {stream: offsets} if begun else {}, refused, request=7)
    steps = alone.core.hear(1, message)
    assert steps is not None
    answered = most = 0
    done = False
    for _ in chain(steps, [None]):
        said = [a.message for a in alone.core.take() if isinstance(a, ToClient)]
        withdrawn = sum(isinstance(word, m.Withdrawn) for word in said)
        most = max(most, withdrawn)
        answered += withdrawn
        done |= m.Done(7) in said
        assert not done or answered == len(refused)
    assert answered == len(refused)
    assert most <= REFUSED // 2_000 + 1


def test_what_means_nothing_is_settled_in_steps_and_who_leaves_is_forgotten() -> None:
    alone = Alone()
    stream, offsets = settled(alone, 10)
    nothing = {f"s{i}": [1] * 100 for i in range(900)}
    steps = alone.core.hear(1, m.Settle(1, nothing | {stream: offsets}, request=7))
    assert steps is not None
    assert len(list(steps)) == 91
    (subscription,) = alone.core.subscriptions.values()
    assert subscription.settling is not None
    assert not len(subscription.settling)
    steps = alone.core.hear(1, m.Settle(1, nothing, request=8))
    assert steps is not None
    next(steps)
    alone.core.heard(1, m.Unsubscribe(1))
    assert len(list(steps)) == 0
    alone.flush()
    assert "STN-" in next(w.code for w in alone.heard[1] if isinstance(w, m.Failure))


def test_what_takes_too_long_is_taken_back_in_steps() -> None:
    alone = Alone()
    stream, offsets = settled(alone, 2_000, deadline=5.0)
    alone.say(1, m.Settle(1, {}, {stream: offsets}))
    before = len(alone.heard[1])
    alone.core.tick(10.0, CLOCK + 10)
    assert alone.core.settlements.has_work
    said = [a.message for a in alone.core.take() if isinstance(a, ToClient)]
    assert 0 < sum(isinstance(word, m.Withdrawn) for word in said) <= REFUSED // 2_000 + 1
    alone.flush()
    assert not alone.core.has_work
    gone = [w for w in [*said, *alone.heard[1][before:]] if isinstance(w, m.Withdrawn)]
    assert sorted(offset for word in gone for offset in word.offsets) == offsets


def test_an_inbox_tells_its_changes_in_the_words_that_were_used() -> None:
    alone = Alone()
    alone.join(1)
    alone.say(1, m.Subscribe(1, ["x = 1"], 9))
    answers = alone.say(1, m.Amend(2, 1, ["y  =  2", "x=1"], ["x  = 1", "z = 3"]))
    assert told(answers, m.Amended) == [m.Amended(1, ["y  =  2"], [])]
    answers = alone.say(1, m.Amend(3, 1, [], ["x  = 1", "z = 3"]))
    assert told(answers, m.Amended) == [m.Amended(1, [], ["x  = 1"])]


@pytest.mark.parametrize("fields", [("added",), ("removed",), ("added", "removed")])
def test_a_frame_names_few_keys_of_a_rendezvous(fields: tuple[str, ...]) -> None:
    keys = [f"t{i}" for i in range(m.MAX_KEYS)]
    for more, refused in (([], False), (["t"], True)):
        watch = m.Watch(**{"added": [], "removed": []} | dict.fromkeys(fields, keys + more))
        data = msgspec.msgpack.encode(watch)
        if refused:
            with pytest.raises(msgspec.ValidationError):
                msgspec.msgpack.decode(data, type=m.Watch)
        else:
            assert msgspec.msgpack.decode(data, type=m.Watch) == watch


# -- what is stored


def test_few_states_are_stored_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many that have changed, or large ones; and in the end all of them."""
    monkeypatch.setattr(durables, "STORED", 10)
    alone = Alone()
    alone.join(1)
    alone.join(2, "bob")
    count = 35
    alone.say(1, *[m.Subscribe(i, "x >= 0", 10, durable=f"d{i}") for i in range(count)])
    alone.publish(2, "bob", 1)
    core, before = alone.core, dict(alone.stored)
    for i in range(count):
        core.heard(1, m.Confirm(i, {"a#": 1}))
    stored: list[str] = []
    while len(stored) < count:
        turn = [action for action in core.take() if isinstance(action, Persist)]
        assert 0 < len(turn) <= 10
        stored += [action.name for action in turn]
        alone.stored |= {action.name: action.data for action in turn}
        assert core.has_work == (len(stored) < count)
        core.work()
    assert sorted(stored) == sorted(f"d{i}" for i in range(count))
    assert all(alone.stored[name] != before[name] for name in stored)


# -- transactions


def committing(alone: Alone, taken: list[int], number: int = 1) -> list[Any]:
    name = ("ann", 1, number)
    return alone.say(1, m.Commit(number, [note("ann", number)], {1: {"a#": taken}}, name))


def test_a_transaction_that_names_something_twice_takes_it_once() -> None:
    """And those behind it do not wait for ever."""
    alone = Alone()
    _, offsets = settled(alone, 10)
    assert m.Done(1) in committing(alone, [*offsets[:3], *offsets[:2]])
    assert m.Done(2) in committing(alone, offsets[3:], 2)
    (subscription,) = alone.core.subscriptions.values()
    assert subscription.settling is not None
    assert {entry.offset for entry in subscription.settling}.isdisjoint(offsets)
    assert alone.core.durables["d"].positions["a#"] >= offsets[-1]


def test_so_does_one_who_is_two_members_of_a_group() -> None:
    alone = Alone()
    alone.join(1)
    alone.join(2, "bob")
    terms = m.Settlement(0, 5.0, 5.0)
    for number in (1, 2):
        alone.say(1, m.Subscribe(number, "", 9, durable="d", group="g", settlement=terms))
    alone.publish(2, "bob", 1)
    (delivered,) = told(alone.heard[1], m.Deliver)
    alone.say(1, m.Settle(delivered.number, {}, {}, [m.Refused("a#", 1)]))
    taken = {number: {"a#": [1]} for number in (1, 2)}
    assert m.Done(7) in alone.say(1, m.Commit(7, [note("ann", 7)], taken, ("ann", 1, 1)))


def test_what_a_transaction_has_taken_is_given_to_nobody_meanwhile() -> None:
    """Although it was in line behind another one, which is done before that is on disk."""
    alone = Alone()
    _, offsets = settled(alone, 3)
    alone.say(1, m.Settle(1, {}, {}, [m.Refused("a#", offsets[0], 0.0)]))
    core, before = alone.core, len(alone.heard[1])
    core.heard(1, m.Commit(1, [note("ann", 1)], {1: {"a#": [offsets[1]]}}, ("ann", 1, 1)))
    held_up = core.take()
    assert any(isinstance(action, Append) for action in held_up)
    core.tick(1.0, CLOCK + 1)
    core.heard(1, m.Settle(1, {"a#": [offsets[0]]}))
    given = [
        offset
        for action in core.take()
        if isinstance(action, ToClient) and isinstance(action.message, m.Deliver)
        for offset in action.message.offsets
    ]
    assert given == [offsets[2]]
    for action in held_up:
        if isinstance(action, Append):
            first = alone.log.write(action, CLOCK)
            core.committed([(action.context, first, action.items)])
    alone.flush()
    assert m.Done(1) in alone.heard[1][before:]


def test_a_transaction_looks_once_at_what_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of it is taken that nobody has."""
    alone = Alone()
    _, offsets = settled(alone, 300)
    alone.say(1, m.Settle(1, {}, {}, [m.Refused("a#", offset, 0.0) for offset in offsets[::-1]]))
    (subscription,) = alone.core.subscriptions.values()
    settling = subscription.settling
    assert settling is not None
    for entry in settling:
        entry.due = inf
    settling._lines.clear()
    settling.ready.extend(settling)
    looked = []
    unready = Settling._unready
    monkeypatch.setattr(
        Settling, "_unready", lambda self, some: looked.append(len(some)) or unready(self, some)
    )
    settling.claim([("a#", offset) for offset in offsets[:200]])
    assert looked == [200]
    assert len(settling.ready) == 100
    settling.settle_claimed([("a#", offset) for offset in offsets[:200]])
    assert looked == [200, 200]
    assert len(settling) == 100


# -- numbers that are none


@pytest.mark.parametrize("number", [nan, inf, -inf])
def test_a_refusal_without_a_time_rests_as_the_settlement_says(number: float) -> None:
    alone = Alone()
    _, offsets = settled(alone, 1, least=1.0, most=1.0)
    alone.say(1, m.Settle(1, {}, {}, [m.Refused("a#", offsets[0], number)]))
    before = len(told(alone.heard[1], m.Deliver))
    alone.tick(2.0)
    assert len(told(alone.heard[1], m.Deliver)) == before + 1


@pytest.mark.parametrize("number", [nan, inf, -inf])
def test_a_subscription_begins_at_a_time(number: float) -> None:
    alone = Alone()
    alone.join(1)
    assert codes(alone.say(1, m.Subscribe(1, "", 9, durable="d", since=number))) == [
        InvalidConfiguration.code
    ]
    assert not alone.core.durables


@pytest.mark.parametrize(
    "message",
    [
        m.Pulse("b#", 1, nan),
        m.Pulse("b#", 1, inf),
        m.Wanted("a#", "b#", nan, 0.0),
        m.Wanted("a#", "b#", -inf, 0.0),
        m.Wanted("a#", "b#", 0.0, nan),
    ],
)
def test_a_neighbor_says_when_something_was(message: Any) -> None:
    alone = stuck()
    alone.core.receive("b", m.Streams([m.Origin("b#", "b")], []))
    with pytest.raises(ProtocolError):
        alone.core.receive("b", message)


# -- detectors


def detecting(text: str, events: dict[str, Any], **options: Any) -> m.Detection:
    said = msgspec.json.encode({"pattern": text, "events": events}).decode()
    return m.Detection(said, **options)


PLAIN = {"A": "x = 1", "B": "x = 2"}
HARD = " or ".join(f"(s contains 'k{i}' and x = {i})" for i in range(16))


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("A{1,50}{1,50}", PLAIN),
        ("P", {"P": {"pattern": "A{1,60} || B{1,60}", "events": PLAIN}}),
        (
            " | ".join(f"E{i}" for i in range(50)),
            {f"E{i}": HARD.replace("k", f"k{i}_") for i in range(50)},
        ),
    ],
)
def test_a_pattern_is_read_within_a_budget(text: str, events: dict[str, Any]) -> None:
    """With the filters of all its events, and the patterns that it is defined by."""
    alone = Alone()
    alone.join(1)
    spent = effort.left
    answers = alone.say(1, m.Subscribe(1, "", 9, detect=detecting(text, events)))
    assert spent - effort.left < detection.READ + detection.COMPILED + 1_000
    assert codes(answers)[0] in (InvalidPattern.code, FilterTooComplex.code)
    assert not alone.core.detectors.held


@pytest.mark.parametrize("rubbish", [5, None, ["A"], {"A": 1}])
def test_a_pattern_is_a_text(rubbish: Any) -> None:
    alone = Alone()
    alone.join(1)
    for pattern, events in ((rubbish, PLAIN), ("A", {"A": rubbish}), ("A", rubbish)):
        answers = alone.say(1, m.Subscribe(1, "", 9, detect=detecting(pattern, events)))
        assert codes(answers) == [InvalidPattern.code]


def test_a_detector_is_loaded_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One filter in each; nobody is told that it is in force before."""
    added: list[Any] = []
    add = Index.add
    monkeypatch.setattr(Index, "add", lambda index, *a: added.append(index) or add(index, *a))
    alone = Alone()
    alone.join(1)
    names = [f"E{i}" for i in range(20)]
    events = {name: f"x = {i}" for i, name in enumerate(names)}
    core = alone.core
    core.heard(1, m.Subscribe(1, "", 9, detect=detecting(" | ".join(names), events)))
    (hosted,) = core.detectors.held.values()
    while not hosted.is_loaded:
        assert core.detectors.has_work
        assert not hosted.in_force
        added.clear()
        core.detectors.work()
        assert sum(index is hosted.detector._index for index in added) <= 1
    alone.flush()
    assert told(alone.heard[1], m.Subscribed)


def pairs(count: int) -> list[bytes]:
    """Events of so many partitions, all of the same moment."""
    moment = datetime.fromtimestamp(CLOCK, UTC)
    return [
        encode(Notification({"x": 1, "k": i}, id=NotificationId("bob", 1, i), time=moment))
        for i in range(count)
    ]


@pytest.mark.parametrize("policy", ["best_effort", "guaranteed"])
def test_few_timers_go_off_in_one_step(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many do at the same time; and all that they mean is found."""
    alone = Alone()
    alone.join(1)
    alone.join(2, "bob")
    core, count = alone.core, 500
    text = "A not followed by B within 1s partition by k"
    said = detecting(text, PLAIN, policy=policy, lateness=0.0)
    alone.say(1, m.Subscribe(1, "", 10_000, detect=said))
    alone.say(2, m.Publish(1, pairs(count)))
    (hosted,) = core.detectors.held.values()
    alone.tick(1.0)
    steps: list[int] = []
    take = detection.Hosted._take

    def counted(hosted: detection.Hosted, fed: Any) -> None:
        steps.append(len(fed.detections))
        take(hosted, fed)

    monkeypatch.setattr(detection.Hosted, "_take", counted)
    for i in range(8):
        alone.tick(3.0 + i)
    assert max(steps) <= detection.PORTION
    assert sum(steps) == hosted.found == count
    assert sum(len(d.items) for d in told(alone.heard[1], m.Deliver)) == count


def test_the_state_of_one_detector_is_written_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    to_memo = detection.Hosted.to_memo
    monkeypatch.setattr(
        detection.Hosted, "to_memo", lambda hosted: written.append(hosted.key) or to_memo(hosted)
    )
    alone = Alone()
    alone.join(1)
    alone.join(2, "bob")
    said = detecting("A ; B", PLAIN)
    for i in range(5):
        alone.say(1, m.Subscribe(i, "", 9, durable=f"d{i}", detect=said))
    alone.tick(5.0)
    written.clear()
    core = alone.core
    core.heard(2, m.Publish(1, pairs(5)))
    alone.flush()
    core.tick(10.0, CLOCK + 10)
    while core.wants_turn or len(written) < 5:
        before = len(written)
        actions = core.take()
        assert len(written) - before <= 1
        for action in actions:
            if isinstance(action, Persist):
                core.stored(action.context, None)
        core.work()
    assert len(written) == len(set(written)) == 5
