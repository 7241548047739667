"""What a rendezvous overlay rests on: holdings, stock, hearsay, positions of streams away."""

from __future__ import annotations

import pytest

from stentor.filters import Filter
from stentor.model import Notification, NotificationId, encode
from stentor.model.codec import decode_headers
from stentor.node.agenda import Append
from stentor.node.feed import Feed, Run
from stentor.node.holdings import Holdings
from stentor.node.interest import Interest
from stentor.node.journals import Journals
from stentor.node.marks import KEPT, Marks
from stentor.node.session import Line
from stentor.node.stock import Stock
from stentor.protocol.messages import Types
from stentor.simulation.journal import MemoryLog

S = "b2#0"


def items(*types: str | None) -> list[bytes]:
    return [
        encode(Notification({"x": i}, type=type, id=NotificationId("ann", 0, i)))
        for i, type in enumerate(types)
    ]


def journal(*types: str | None, retain: list[tuple[str, int]] | None = None) -> MemoryLog:
    log = MemoryLog(S, at_once=2)
    log.write(Append(items(*types), "ann", (0, 0), Line((0, 0)), retain or [], None), 0.0)
    return log


def looked_through(holdings: Holdings) -> list[str]:
    found: list[str] = []
    while holdings.has_work:
        found += holdings.work()
    return found


# -- holdings


@pytest.mark.spec("R-03.35")
def test_a_journal_is_looked_through_from_the_beginning() -> None:
    holdings = Holdings(Journals(journal("a.b", None, "c", "a", "d")))
    assert holdings.through() == {S: 0}
    assert sorted(looked_through(holdings)) == ["a", "a.b", "c", "d"]
    assert holdings.through() == {S: 5}
    assert [holdings.before(key) for key in ("a", "a.b", "c", "d", "e")] == [0, 0, 2, 4, 5]


def test_what_is_published_meanwhile_may_have_been_there_before() -> None:
    holdings = Holdings(Journals(journal("a", "b", "c", "d", "e")))
    holdings.work()  # there are no last values
    holdings.work()
    assert holdings.through() == {S: 2}
    assert holdings.note(decode_headers(items("d", "d"))) == ["d"]
    assert holdings.before("d") == 2
    assert sorted(looked_through(holdings)) == ["c", "e"]


def test_what_retention_took_is_held_by_its_last_values() -> None:
    log = journal("a", "b", retain=[("key", 0)])
    log.trim(2)
    assert sorted(looked_through(Holdings(Journals(log)))) == ["a", "b"]


def test_what_is_published_first_makes_a_type_known() -> None:
    holdings = Holdings(Journals(MemoryLog(S)))
    assert looked_through(holdings) == []
    assert sorted(holdings.note(decode_headers(items("a.b", None)))) == ["a", "a.b"]
    assert holdings.note(decode_headers(items("a.b", "a"))) == []
    assert holdings.before("a") == 0


# -- stock


def test_a_neighbor_says_from_where_on_there_may_be_something() -> None:
    stock = Stock()
    stock.heard("b2", Types(S, [("a", 3), ("a.b", 7), ("+c", 0)], [], {S: 9, "old#": 4}))

    def nothing(text: str, stream: str = S) -> int:
        return stock.nothing_up_to("b2", stream, Interest([Filter(text)]))

    assert [nothing(f"isa {name}") for name in ("a", "a.b", "c")] == [3, 7, 9]
    assert nothing("isa a or isa c") == 3
    assert nothing("x > 1") == 0
    assert (nothing("isa c", "old#"), nothing("isa a", "old#")) == (4, 0)
    stock.heard("b2", Types(S, [], ["a.b"], {S: 12}))
    assert nothing("isa a.b") == 12
    stock.link_down("b2")
    assert nothing("isa a") == 0


def test_what_an_inbox_asks_for_anew_is_owed_nothing_of_the_past() -> None:
    stock, interest = Stock(), Interest([Filter("isa c")])
    stock.heard("b2", Types(S, [("a", 3)], [], {S: 9}))
    interest.amend([Filter("isa a")], [])
    assert stock.nothing_up_to("b2", S, interest) == 3
    interest.recent[Filter("isa a")] = 5
    assert stock.nothing_up_to("b2", S, interest) == 9
    interest.in_force(4)
    assert stock.nothing_up_to("b2", S, interest) == 9
    interest.in_force(5)
    assert stock.nothing_up_to("b2", S, interest) == 3


# -- marks and feeds


def test_hearsay_is_no_mark() -> None:
    marks = Marks()
    assert [marks.heard_say(S, head) for head in (5, 3, 5)] == [True, False, False]
    assert (marks.heads, marks.hearsay) == ({}, {S: 5})
    marks.heard(S, 7)
    assert (marks.end(S), marks.heads, marks.hearsay) == (7, {}, {S: 7})
    for i in range(KEPT):
        marks.heard_say(f"s{i}", i)
    assert len(marks.hearsay) == KEPT


def test_a_feed_begins_where_streams_were_that_do_not_come() -> None:
    feed = Feed("ann/1")
    assert feed.heads(1, {}, away={S: 5})
    assert feed.settled
    assert feed.positions == {S: 5}
    assert not feed.mark(S, 9), "nothing moves it but the stream itself"
    assert not list(feed.wishes())
    feed.skip(S, 7)
    feed.interrupted(S, 2)
    [wish] = feed.wishes()
    assert (wish.stream, wish.first) == (S, 8)
    feed.fetches(S)
    feed.stretch(Run(S, [9], [b"nine"]), asked=8, through=10, head=10, low=1)
    assert not feed.heads(2, {S: 10})
    assert [run.offsets for run in feed.take(10)] == [[9]]
    assert feed.mark(S, 11)


def test_a_stream_that_is_lost_while_it_was_read_goes_on_from_there() -> None:
    feed = Feed("ann/1", positions={S: 3})
    feed.heads(1, {}, away={S: 50})
    assert feed.settled
    assert feed.positions == {S: 3}, "what lies between may be owed"


def test_who_asks_for_the_past_waits_for_streams_that_do_not_come() -> None:
    feed = Feed("ann/1", since=0.0)
    feed.heads(1, {}, away={S: 50})
    [wish] = feed.wishes()
    assert (wish.first, wish.since) == (0, 0.0)
