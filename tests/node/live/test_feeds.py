"""A feed, mode by mode and policy by policy, and against a model on generated inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import InvalidConfiguration, UnknownStrategy
from stentor.node.feed import Feed, Run
from stentor.node.reading import STRETCH
from stentor.protocol.messages import VOLATILE

S = "b1#0"


def run(*offsets: int) -> Run:
    return Run(S, list(offsets), [b"%d" % offset for offset in offsets])


def volatile(*items: bytes) -> Run:
    return Run(VOLATILE, [], list(items))


def offsets(feed: Feed, credit: int = 1_000) -> list[int]:
    return [offset for each in feed.take(credit) for offset in each.offsets]


def is_live(feed: Feed) -> bool:
    return feed.settled


def fetched(feed: Feed, *found: int, through: int, head: int, low: int = 1) -> None:
    """The feed wants one stretch, and this is it."""
    [wish] = feed.wishes()
    feed.fetches(S)
    feed.stretch(run(*found), asked=wish.first, through=through, head=head, low=low)


def live(position: int = 0, **options: object) -> Feed:
    feed = Feed("ann/1", **options)  # type: ignore[arg-type]
    assert feed.heads(0, {S: position})
    return feed


# -- joining


def test_what_comes_before_the_subscription_is_in_force_is_queued() -> None:
    feed = Feed("ann/1", probe=3)
    feed.offer(run(7))
    assert not feed.heads(2, {S: 6})  # of a probe from before
    assert feed.positions == {S: 7}
    assert not is_live(feed)
    assert feed.heads(3, {S: 9})
    assert feed.positions == {S: 9}
    assert is_live(feed)
    feed.offer(run(8, 9, 10))
    assert offsets(feed) == [7, 10]


def test_what_came_before_the_beginning_is_not_fetched_again() -> None:
    """The answer may be of before it: heads are counted where the probe turns round."""
    feed = Feed("ann/1", probe=1)
    feed.offer(run(7))
    assert feed.heads(1, {S: 6})
    assert feed.positions == {S: 7}
    feed.offer(run(7, 8))
    feed.interrupted(S, 2)
    feed.heads(2, {S: 9})
    fetched(feed, 9, through=9, head=9)
    assert offsets(feed) == [7, 8, 9]


def test_an_interruption_before_the_beginning_does_not_move_it() -> None:
    """The answer says where the stream was; what came behind that may be lost."""
    feed = Feed("ann/1", probe=1)
    feed.interrupted(S, 2)
    assert feed.heads(1, {S: 4})
    assert feed.catching == [S]
    assert feed.waits_for(1)
    fetched(feed, 5, 6, through=6, head=6)
    assert not list(feed.wishes())  # it is at the head, and waits for the probe
    feed.heads(2, {S: 6})
    assert is_live(feed)
    assert offsets(feed) == [5, 6]


def test_a_feed_that_has_not_begun_waits_also_if_nothing_else_does() -> None:
    """What it was sent may fill its queue, and be read again, before it is in force."""
    feed = Feed("ann/1", probe=3, limit=2)
    feed.offer(run(5, 6, 7))
    fetched(feed, 5, 6, 7, through=7, head=7)
    assert offsets(feed) == [5, 6, 7]
    assert is_live(feed)
    assert not feed.heads(2, {S: 7})  # of a probe from before
    assert feed.waits_for(2)
    assert feed.heads(3, {S: 7})
    assert not feed.waits_for(3)


def test_brokers_that_could_not_be_asked_are_read_from_the_time_of_the_making_on() -> None:
    feed = Feed("ann/1", probe=1, made=50.0)
    feed.interrupted("b2#0", 2)
    feed.heads(1, {S: 0})
    feed.interrupted("b3#0", 2)
    feed.heads(2, {S: 0, "b2#0": 8, "b3#0": 9})
    assert [(w.stream, w.first, w.since) for w in feed.wishes()] == [
        ("b2#0", 0, 50.0),
        ("b3#0", 0, 50.0),
    ]


# -- catching up


def test_history_joins_live_traffic_without_gap_or_repeat() -> None:
    feed = Feed("ann/1", since=5.0, probe=1)
    feed.offer(run(6))
    assert not feed.heads(1, {S: 5})
    feed.offer(run(7))
    [wish] = feed.wishes()
    assert (wish.first, wish.since) == (0, 5.0)
    feed.fetches(S)
    feed.stretch(run(3, 4), asked=0, through=4, head=7, low=1)
    fetched(feed, 5, 6, through=6, head=7)
    assert is_live(feed)
    assert offsets(feed) == [3, 4, 5, 6, 7]
    feed.offer(run(7, 8))
    assert offsets(feed) == [8]


def test_an_interruption_while_history_is_read_makes_the_cover_unknown_again() -> None:
    """Also if nothing of the stream has been read yet."""
    feed = Feed("ann/1", since=5.0, probe=1)
    feed.heads(1, {S: 3})
    feed.offer(run(4))
    feed.interrupted(S, 2)  # 5 is lost
    feed.offer(run(6))
    fetched(feed, 1, 2, 3, 4, 5, 6, through=6, head=6)
    assert not is_live(feed)
    feed.heads(2, {S: 6})
    assert is_live(feed)
    assert offsets(feed) == [1, 2, 3, 4, 5, 6]


def test_an_answer_to_a_probe_from_before_the_interruption_says_nothing() -> None:
    feed = live(4)
    feed.interrupted(S, 2)
    feed.heads(1, {S: 9})
    assert not is_live(feed)
    assert feed.waits_for(1)
    fetched(feed, 5, 8, through=9, head=9)
    feed.heads(2, {S: 9})
    assert is_live(feed)
    assert feed.positions == {S: 9}


def test_the_cover_lies_behind_what_the_buffer_has_lost() -> None:
    """The buffer overflows before the probe is answered, and after."""
    feed = live(0, limit=2)
    feed.interrupted(S, 1)
    for offset in (1, 2, 3, 4):
        feed.offer(run(offset))  # 3 empties the buffer
    assert feed.buffered == 1
    feed.heads(1, {S: 2})
    fetched(feed, 1, 2, through=2, head=4)
    assert not is_live(feed)
    feed.offer(run(5))
    feed.offer(run(6))  # empties it again
    assert offsets(feed) == [1, 2]
    fetched(feed, 3, 4, 5, through=5, head=6)
    assert not is_live(feed)
    assert offsets(feed) == [3, 4, 5]
    fetched(feed, 6, through=6, head=6)
    assert is_live(feed)
    assert offsets(feed) == [6]


def test_a_chunk_that_nobody_waits_for_is_ignored() -> None:
    feed = live(2)
    feed.stretch(run(3), asked=3, through=3, head=3, low=1)
    feed.stretch(Run("b9#0", [1], [b"1"]), asked=1, through=1, head=1, low=1)
    feed.fetch_failed("b9#0")
    assert feed.positions == {S: 2}
    assert not len(feed)


def test_a_failed_fetch_is_wanted_again() -> None:
    feed = live(2)
    feed.interrupted(S, 1)
    [wish] = feed.wishes()
    feed.fetches(S)
    assert not list(feed.wishes())
    feed.fetch_failed(S)
    assert list(feed.wishes()) == [wish]


def test_what_retention_took_is_reported_in_its_place() -> None:
    feed = live(2)
    feed.offer(run(3))
    feed.interrupted(S, 1)
    fetched(feed, 8, through=8, head=8, low=7)
    taken = feed.take(10)
    assert [(r.offsets, r.gap) for r in taken] == [([3], False), ([4, 6], True), ([8], False)]
    assert feed.positions == feed.passed == {S: 8}


def test_a_late_answer_reports_no_gap_that_is_none() -> None:
    """It was asked for before the stream was read on."""
    feed = live(0, limit=1)
    feed.interrupted(S, 1)
    feed.fetches(S)
    feed.heads(1, {S: 0})  # nothing was missed
    feed.offer(run(1))
    feed.offer(run(2))  # too much: it reads on from 2
    feed.stretch(run(2), asked=1, through=2, head=2, low=2)
    assert [r.gap for r in feed.take(5)] == [False, False]


def test_streams_take_turns_and_the_queue_stays_small() -> None:
    feed = Feed("ann/1", since=0.0, limit=4 * STRETCH)
    streams = [f"b{i}#0" for i in range(5)]
    feed.heads(0, dict.fromkeys(streams, 9))
    asked = []
    for wish in feed.wishes():
        feed.fetches(wish.stream)
        asked.append(wish.stream)
    assert asked == streams[:3]  # with these, three quarters of the limit
    feed.fetch_failed(asked[0])
    assert next(feed.wishes()).stream == streams[3]


# -- live


def test_marks_move_live_streams_only() -> None:
    feed = live(3)
    assert feed.mark(S, 5)
    assert not feed.mark(S, 5)
    assert not feed.mark("b9#0", 5)
    feed.interrupted(S, 1)
    assert not feed.mark(S, 9)
    assert feed.positions == {S: 5}


def test_passed_stays_below_what_waits() -> None:
    feed = live(3)
    feed.offer(run(5, 8))
    assert feed.positions == {S: 8}
    assert feed.passed == {S: 4}
    feed.take(1)
    assert feed.passed == {S: 7}
    feed.take(1)
    assert feed.passed == {S: 8}


# -- policies


def test_spill_loses_nothing_that_a_journal_holds() -> None:
    feed = live(limit=2)
    for offset in (1, 2, 3, 4):
        feed.offer(run(offset))
    assert feed.catching == [S]
    assert len(feed) == 2
    assert feed.dropped == 0
    assert offsets(feed) == [1, 2]
    fetched(feed, 3, 4, through=4, head=4)
    assert is_live(feed)
    assert offsets(feed) == [3, 4]


def test_spill_while_joining_begins_with_what_did_not_fit() -> None:
    feed = Feed("ann/1", limit=1, probe=1)
    feed.offer(Run("b2#0", [1], [b"1"]))
    feed.offer(run(7))
    assert feed.positions == {"b2#0": 1, S: 6}
    feed.heads(1, {S: 7, "b2#0": 1})
    feed.take(1)
    fetched(feed, 7, through=7, head=7)
    assert offsets(feed) == [7]
    assert is_live(feed)


def test_drop_oldest_keeps_the_newest() -> None:
    feed = live(limit=3, overflow="drop_oldest")
    feed.offer(run(1, 2))
    feed.offer(run(3, 4))
    feed.offer(run(5, 6, 7, 8, 9))
    assert (feed.dropped, len(feed)) == (6, 3)
    assert offsets(feed) == [7, 8, 9]
    assert is_live(feed)


def test_drop_oldest_keeps_word_of_a_gap() -> None:
    feed = live(limit=2, overflow="drop_oldest")
    feed.interrupted(S, 1)
    feed.heads(1, {S: 4})
    fetched(feed, 4, through=4, head=4, low=4)
    feed.offer(run(5, 6))
    assert [(r.offsets, r.gap) for r in feed.take(5)] == [([1, 3], True), ([5, 6], False)]


def test_drop_newest_keeps_the_oldest() -> None:
    feed = live(limit=3, overflow="drop_newest")
    feed.offer(run(1, 2))
    feed.offer(run(3, 4))
    feed.offer(run(5))
    assert (feed.dropped, len(feed)) == (2, 3)
    assert offsets(feed) == [1, 2, 3]
    feed.offer(run(6))
    assert offsets(feed) == [6]


def test_disconnect_gives_nothing_behind_what_did_not_fit() -> None:
    """Or the subscriber would come back behind it, and never know."""
    feed = live(limit=2, overflow="disconnect")
    feed.offer(run(1, 2))
    feed.offer(run(3))
    assert feed.overflowed
    assert offsets(feed) == [1, 2]
    feed.offer(run(4))
    assert offsets(feed) == []
    assert not feed.mark(S, 9)
    assert feed.passed == {S: 2}


@pytest.mark.parametrize("overflow", ["spill", "drop_oldest", "drop_newest", "disconnect"])
def test_what_no_journal_holds_is_dropped_oldest_first(overflow: str) -> None:
    feed = live(limit=3, overflow=overflow)
    feed.offer(volatile(b"a", b"b"))
    feed.offer(run(1))
    assert not feed.overflowed
    feed.offer(volatile(b"c", b"d"))
    assert [item for each in feed.take(10) for item in each.items] == [b"1", b"c", b"d"]
    assert feed.dropped == 2
    assert feed.overflowed == (overflow == "disconnect")


def test_block_keeps_more_of_what_no_journal_holds_but_not_all() -> None:
    feed = live(limit=2, overflow="block")
    feed.offer(volatile(b"a"))
    feed.offer(volatile(b"b", b"c", b"d"))
    assert feed.congested
    assert feed.dropped == 0
    feed.offer(volatile(b"e"))
    assert [item for each in feed.take(9) for item in each.items] == [b"b", b"c", b"d", b"e"]


def test_last_values_are_not_dropped_for_what_no_journal_holds() -> None:
    feed = live(limit=2)
    feed.put_last_values([b"x", b"y"])
    feed.offer(volatile(b"a"))
    assert [each.items for each in feed.take(5)] == [[b"x", b"y"]]


def test_last_values_come_before_everything_else() -> None:
    feed = live()
    feed.held = True
    feed.offer(run(1))
    assert feed.take(5) == []
    feed.put_last_values([b"x", b"y"])
    first, second = feed.take(5)
    assert first.retained
    assert first.items == [b"x", b"y"]
    assert second.offsets == [1]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidConfiguration):
        Feed("ann/1", limit=0)
    with pytest.raises(UnknownStrategy):
        Feed("ann/1", overflow="explode")


# -- against a model


@given(st.data())
@pytest.mark.spec("R-07.60")
def test_any_interleaving_gives_each_offset_once_and_in_order(data: st.DataObject) -> None:
    """One stream of which all is wanted; live traffic is lost now and then, never unnoticed."""
    limit = data.draw(st.integers(1, 4))
    feed = Feed("ann/1", limit=limit, probe=1)
    head = data.draw(st.integers(0, 3))
    begun: int | None = None
    probe, probing = 0, False
    under_way = False
    got: list[int] = []
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(
            st.sampled_from(["publish", "lose", "probe", "echo", "fetch", "answer", "take"])
        )
        if action == "publish":
            head += 1
            feed.offer(run(head))
        elif action == "lose":
            head += 1
            feed.interrupted(S, probe + 1)
            under_way = False
        elif action == "probe" and not probing:
            probe, probing = probe + 1, True
        elif action == "echo" and probing:
            probing = False
            if feed.heads(probe, {S: head}):
                begun = head
        elif action == "fetch" and not under_way:
            for wish in feed.wishes():
                feed.fetches(S)
                under_way, asked = True, wish.first
        elif action == "answer" and under_way:
            under_way = False
            through = min(head, asked + data.draw(st.integers(0, 2)))
            feed.stretch(
                run(*range(asked, through + 1)), asked=asked, through=through, head=head, low=1
            )
        elif action == "take":
            got += offsets(feed, data.draw(st.integers(1, 3)))
        assert feed.buffered <= limit
        assert len(feed) + feed.buffered <= 2 * limit + 3
    for _ in range(1_000):  # everything is answered
        got += offsets(feed)
        if is_live(feed) and begun is not None:
            break
        if under_way:
            feed.fetch_failed(S)
            under_way = False
        probe += 1
        if feed.heads(probe, {S: head}):
            begun = head
        for wish in feed.wishes():
            feed.fetches(S)
            feed.stretch(
                run(*range(wish.first, head + 1)), asked=wish.first, through=head, head=head, low=1
            )
    assert got == sorted(set(got))
    assert begun is not None
    assert [offset for offset in got if offset > begun] == list(range(begun + 1, head + 1))


# -- volatile feeds


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 9), st.integers(1, 3))))
def test_a_volatile_feed_gives_what_comes_and_nothing_of_a_stream_twice(
    runs: list[tuple[str, int, int]],
) -> None:
    feed = Feed("ann/1", volatile=True)
    had: dict[str, int] = {}
    expected = []
    for stream, first, count in runs:
        offsets = list(range(first, first + count))
        feed.interrupted(stream, 1)  # it does not care
        feed.offer(Run(stream, offsets, [b"%d" % offset for offset in offsets]))
        expected += [(stream, o) for o in offsets if o > had.get(stream, 0)]
        had[stream] = max(offsets[-1], had.get(stream, 0))
    given = [(run.stream, o) for run in feed.take(10_000) for o in run.offsets]
    assert given == expected
    assert not list(feed.wishes())
    assert not feed.catching
    assert feed.positions == feed.passed == {}


def test_a_volatile_feed_that_is_full_drops_the_oldest_whether_it_is_journaled_or_not() -> None:
    feed = Feed("ann/1", volatile=True, limit=3)
    feed.offer(Run("a", [1, 2], [b"1", b"2"]))
    feed.offer(Run("", [], [b"v"]))
    feed.offer(Run("a", [3, 4], [b"3", b"4"]))
    assert [data for run in feed.take(10) for data in run.items] == [b"v", b"3", b"4"]
    assert feed.dropped == 2
