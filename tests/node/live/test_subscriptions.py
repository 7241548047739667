"""Who consumes a feed, what is confirmed, what is kept, and what producers are told."""

from itertools import pairwise

import hypothesis
import pytest
from hypothesis import strategies as st

from stentor.errors import JournalDamaged, UnknownStrategy
from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.model import Notification, NotificationId, encode
from stentor.node.clock import Clock
from stentor.node.demand import LINGER, MANY, Demands
from stentor.node.durable import Durable
from stentor.node.feed import Feed, Run
from stentor.node.interest import Interest
from stentor.node.reading import Fetches, Pending
from stentor.node.settling import Settling
from stentor.node.subscription import Consumer, Subscription
from stentor.protocol.messages import VOLATILE, Settlement

S = "b1#0"
ALL = Filter("true")


def note(sequence: int, producer: str = "p", **attributes: object) -> bytes:
    return encode(
        Notification(attributes or {"x": sequence}, id=NotificationId(producer, 0, sequence))
    )


def subscription(*credits: int, durable: Durable | None = None, **options: str) -> Subscription:
    feed = Feed("ann/1")
    feed.heads(0, {S: 0, "b2#0": 0})
    settling = Settling(Settlement(), durable, Clock()) if "group" in options else None
    found = Subscription(
        feed,
        Interest([ALL]),
        durable=durable,
        settling=settling,
        **options,  # type: ignore[arg-type]
    )
    for i, credit in enumerate(credits):
        found.add(Consumer(i, 1, credit))
    return found


def offer(to: Subscription, *offsets: int, stream: str = S) -> None:
    to.feed.offer(Run(stream, list(offsets), [note(offset) for offset in offsets]))


def given(to: Subscription, blocked: set[int] | None = None) -> list[tuple[int, list[int]]]:
    return [(c.session, run.offsets) for c, run in to.deliveries(blocked or set())]


def unsettled(of: Subscription) -> list[int]:
    assert of.settling is not None
    return [entry.offset for entry in of.settling]


def test_a_consumer_is_given_what_it_has_credit_for() -> None:
    one = subscription(2)
    offer(one, 1, 2, 3)
    assert given(one, {0}) == []
    assert given(one) == [(0, [1, 2])]
    assert given(one) == []
    one.consumers[0].credit += 5
    assert given(one) == [(0, [3])]


@pytest.mark.spec("R-07.60")
def test_repeats_do_not_hold_up_what_comes_behind_them() -> None:
    """A producer that moved is in two streams; the credit is for what is new."""
    durable = Durable("desk", Interest([ALL]), since=0.0)
    for i in (1, 2):
        durable.remember(NotificationId("p", 0, i))
    one = subscription(2, durable=durable)
    offer(one, 1, 2, 3, 4, 5)
    assert given(one) == [(0, [3, 4])]
    assert one.repeated == 2


def test_news_is_what_the_consumer_cannot_know() -> None:
    one = subscription(1)
    assert one.news() == {S: 0, "b2#0": 0}
    assert one.news() == {}
    offer(one, 3, 7)
    assert one.news() == {S: 2}
    given(one)
    assert one.news() == {S: 6}
    one.consumers[0].credit = 1
    given(one)
    assert one.news() == {}


@pytest.mark.spec("R-07.60")
def test_a_durable_subscription_confirms_up_to_a_position() -> None:
    durable = Durable("desk", Interest([ALL]), since=0.0)
    one = subscription(9, durable=durable)
    offer(one, 1, 2, 3)
    given(one)
    consumer = one.consumers[0]
    assert one.confirm(consumer, {S: 2, "unheard of": 10**9})
    assert durable.positions == {S: 2}
    assert [offset for _, offset, _ in consumer.given] == [3]
    assert NotificationId("p", 0, 2) in durable.recent
    assert NotificationId("p", 0, 3) not in durable.recent
    assert not one.confirm(consumer, {S: 1})


@pytest.mark.spec("01/A-18")
def test_a_member_confirms_in_the_order_of_giving() -> None:
    durable = Durable("desk", Interest([ALL]), since=0.0, group=True)
    shared = subscription(1, 1, durable=durable, group="g")
    first, second = shared.consumers
    offer(shared, 1, 2)
    assert sorted(given(shared)) == [(0, [2]), (1, [1])]
    shared.remove(second)
    first.credit = 2
    assert given(shared) == [(0, [1])]
    shared.confirm(first, {S: 2})  # said before it was given 1
    assert unsettled(shared) == [1]
    assert durable.positions[S] == 0
    shared.confirm(first, {S: 2})  # nor does saying it again mean 1
    assert unsettled(shared) == [1]
    shared.confirm(first, {S: 1})
    assert not unsettled(shared)
    shared.pass_over()
    assert durable.positions == {S: 2, "b2#0": 0}


@pytest.mark.spec("01/A-18")
def test_a_group_is_confirmed_as_far_as_all_members_are() -> None:
    durable = Durable("desk", Interest([ALL]), since=0.0, group=True)
    shared = subscription(1, 2, durable=durable, group="g")
    offer(shared, 1, 2, 3, 4)
    assert sorted(given(shared)) == [(0, [2]), (1, [1]), (1, [3])]
    first, second = shared.consumers
    shared.confirm(first, {S: 2})
    assert durable.positions.get(S) == 0
    shared.confirm(second, {S: 1})
    assert durable.positions[S] == 2
    shared.confirm(second, {S: 3})
    assert durable.positions[S] == 3  # 4 waits


def test_a_gap_is_told_to_all_members() -> None:
    shared = subscription(5, 5, group="g")
    feed = shared.feed
    feed.interrupted(S, 1)
    feed.fetches(S)
    feed.stretch(Run(S, [4], [note(4)]), asked=1, through=4, head=4, low=4)
    assert given(shared) == [(0, [1, 3]), (1, [1, 3]), (1, [4])]


def test_what_one_member_cannot_take_waits_for_it_under_affinity() -> None:
    shared = subscription(5, 0, group="g", choice="key:x")
    offer(shared, *range(1, 10))
    ready = given(shared)
    shared.consumers[1].credit = 9
    late = given(shared)
    assert {session for session, _ in ready} <= {0}
    taken = sorted(offset for _, found in ready + late for offset in found)
    assert taken == [*range(1, 10)]


def test_volatile_ones_are_not_remembered() -> None:
    shared = subscription(5, group="g")
    shared.feed.offer(Run(VOLATILE, [], [note(1)]))
    assert given(shared) == [(0, [])]
    assert not unsettled(shared)


def test_a_group_needs_a_way_to_choose() -> None:
    for choice in ("best", "key:"):
        with pytest.raises(UnknownStrategy):
            subscription(group="g", choice=choice)


# -- what is kept


@pytest.mark.parametrize(
    "interest",
    [
        Interest([Filter("x > 1")], fixed=True),
        Interest([]),
        Interest([Filter("x > 1"), Filter("y > 1")]),
    ],
    ids=str,
)
def test_a_durable_subscription_is_read_as_it_was_written(interest: Interest) -> None:
    durable = Durable("desk", interest, since=7.0, group=True)
    durable.confirm({S: 0, "b2#0": 9})
    durable.remember(NotificationId("p", 0, 3))
    again = Durable.from_data("desk", durable.to_data())
    assert (again.interest, again.since, again.group) == (interest, 7.0, True)
    assert again.positions == {S: 0, "b2#0": 9}  # also where nothing was published yet
    assert NotificationId("p", 0, 3) in again.recent


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x95\xa1(\x00\x80\x80\xc2", b"\x90"])
def test_a_damaged_one_is_reported(data: bytes) -> None:
    with pytest.raises(JournalDamaged, match="desk"):
        Durable.from_data("desk", data)


# -- requests


def test_requests_are_forgotten_with_who_asked() -> None:
    fetches = Fetches()
    first = fetches.add(Pending("durable desk", S, 7, False))
    fetches.add(Pending("ann/1", S, 7, False))
    fetches.forget("durable desk")
    assert fetches.answered(first) is None
    assert len(fetches) == 1
    assert [p.feed for p in fetches.cancel(S)] == ["ann/1"]
    assert len(fetches) == 0


def test_numbers_of_requests_cannot_be_guessed() -> None:
    fetches = Fetches()
    numbers = [fetches.add(Pending("ann/1", S, 7, False)) for _ in range(100)]
    steps = {b - a for a, b in pairwise(numbers)}
    assert len(set(numbers)) == 100
    assert len(steps) == 99
    assert max(numbers) > 2**50


# -- demand


@pytest.mark.spec("R-07.73", "01/A-14")
def test_a_producer_is_told_what_overlaps_its_offer() -> None:
    demands = Demands(lambda: [Filter("x = 1"), Filter("x = 5"), Filter("y = 1")])
    demands.watch((1, 1), Filter("x < 3"))
    assert demands.changes(0.0) == [((1, 1), ["x = 1", "y = 1"])]
    demands.entry(Filter("x = 2"), there=True)
    demands.entry(Filter("x = 7"), there=True)
    assert demands.changes(0.0) == [((1, 1), ["x = 1", "x = 2", "y = 1"])]
    demands.entry(Filter("x = 2"), there=True)  # of another destination
    assert demands.changes(0.0) == []
    demands.forget((1, 1))
    demands.entry(Filter("x = 2"), there=False)
    assert demands.changes(99.0) == []
    assert not demands


@pytest.mark.spec("R-07.73")
def test_the_end_of_demand_lingers() -> None:
    demands = Demands(lambda: [Filter("x = 1")])
    demands.watch((1, 1), ALL)
    demands.changes(0.0)
    demands.entry(Filter("x = 1"), there=False)
    assert demands.changes(0.0) == []
    demands.entry(Filter("x = 1"), there=True)  # it came back in time
    assert demands.changes(LINGER + 1) == []
    demands.entry(Filter("x = 1"), there=False)
    assert demands.changes(5.0) == []
    assert demands.changes(5.0 + LINGER) == [((1, 1), [])]


@pytest.mark.spec("R-07.73")
def test_very_many_filters_are_told_as_everything() -> None:
    demands = Demands(lambda: [Filter(f"x = {i}") for i in range(MANY + 1)])
    demands.watch((1, 1), ALL)
    assert demands.changes(0.0) == [((1, 1), [""])]
    demands.entry(Filter("x = 0"), there=False)
    [(_, texts)] = demands.changes(0.0)
    assert len(texts) == MANY


@pytest.mark.spec("R-07.73")
@hypothesis.given(st.data(), st.integers(1, 30))
def test_demand_that_is_worked_off_in_steps_ends_where_it_should(
    data: st.DataObject, at_once: int
) -> None:
    filters = [Filter(text) for text in ("x = 1", "x = 2", "x > 1", "y = 1", "x = 1 and y = 2", "")]
    happenings = ("offer", "forget", "come", "go", "work", "tell", "block")
    asked: dict[Filter, None] = {}
    demands = Demands(lambda: asked, at_once)
    offers: dict[tuple[int, int], Filter] = {}
    told: dict[tuple[int, int], list[str]] = {}
    blocked: set[int] = set()
    for now in range(data.draw(st.integers(1, 25))):
        filter = data.draw(st.sampled_from(filters))
        match data.draw(st.sampled_from(happenings)):
            case "offer":
                offer = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
                if offer not in offers:
                    offers[offer] = filter
                    demands.watch(offer, filter)
            case "forget" if offers:
                offer = data.draw(st.sampled_from(sorted(offers)))
                del offers[offer]
                told.pop(offer, None)
                demands.forget(offer)
            case "come":
                asked[filter] = None
                demands.entry(filter, there=True)
            case "go":
                asked.pop(filter, None)
                demands.entry(filter, there=False)
            case "work":
                demands.work()
            case "block":
                blocked ^= {1}
                if not blocked:
                    demands.unblock(1)
            case "tell":
                news = dict(demands.changes(float(now), blocked))
                assert blocked.isdisjoint(session for session, _ in news)
                told |= news
    demands.unblock(1)
    while demands.has_work:
        demands.work()
        told |= dict(demands.changes(1_000.0))
    told |= dict(demands.changes(2_000.0))
    assert told == {
        offer: sorted(str(f) for f in asked if f.overlaps(filter))
        for offer, filter in offers.items()
    }


def test_offers_that_wait_to_be_compared_hold_no_filters() -> None:
    """Thousands of offers would each keep a list of thousands of filters."""
    taken = []

    def asked() -> list[Filter]:
        taken.append([Filter(f"x = {i}") for i in range(100)])
        return taken[-1]

    demands = Demands(asked, at_once=10)
    for number in range(50):
        demands.watch((1, number), ALL)
    assert not taken
    demands.work()
    demands.work()
    assert len(taken) == 1
    while demands.has_work:
        demands.work()
        demands.changes(0.0)
    assert len(taken) == 50


def test_an_offer_that_takes_the_number_of_another_is_compared_with_everything() -> None:
    demands = Demands(lambda: [Filter("x = 1"), Filter("x = 2"), Filter("x = 3")], at_once=2)
    demands.watch((1, 1), Filter("y = 1"))
    demands.work()
    demands.forget((1, 1))
    demands.watch((1, 1), ALL)
    told = []
    while demands.has_work:
        demands.work()
        told += demands.changes(0.0)
    assert told == [((1, 1), ["x = 1", "x = 2", "x = 3"])]


def test_a_filter_that_comes_is_compared_with_few_offers_in_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    demands = Demands(list, at_once=30)
    for i in range(200):
        demands.watch((1, i), Filter(f"x > {i} and y < {i}"))
    while demands.has_work:
        demands.work()
        demands.changes(0.0)
    compared = 0
    overlaps = Conjunct.overlaps

    def counting(one: Conjunct, other: Conjunct) -> bool:
        nonlocal compared
        compared += 1
        return overlaps(one, other)

    monkeypatch.setattr(Conjunct, "overlaps", counting)
    demands.entry(Filter("x > 100 and y < 150"), there=True)
    told: list[tuple[int, int]] = []
    while demands.has_work:
        before = compared
        demands.work()
        assert compared - before <= 30
        told += [offer for offer, _ in demands.changes(0.0)]
    assert compared == len(told) == 200
