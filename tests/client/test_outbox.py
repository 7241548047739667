"""Publications on their way: frames, windows, answers, lost connections."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stentor.client.outbox import FRAME_BYTES, FRAME_ITEMS, Outbox, pieces
from stentor.errors import NotPermitted, Overloaded, StentorError, Unreachable


def numbers() -> Any:
    return itertools.count(1).__next__


def drain(outbox: Outbox, number: Any) -> list[Any]:
    return list(iter(lambda: outbox.take(number), None))


def test_what_is_put_before_it_is_taken_shares_a_frame() -> None:
    outbox, number = Outbox(), numbers()
    outbox.put([b"a"], newest=0)
    outbox.put([b"b", b"c"], newest=2, retain={1: "key"})
    (message,) = drain(outbox, number)
    assert (message.items, message.retain) == ([b"a", b"b", b"c"], {2: "key"})
    outbox.put([b"d"], newest=3)
    assert [m.items for m in drain(outbox, number)] == [[b"d"]]


def test_volatile_and_atomic_ones_have_frames_of_their_own() -> None:
    outbox = Outbox()
    outbox.put([b"a"], newest=0)
    outbox.put([b"b"], newest=1, volatile=True)
    outbox.put([b"c", b"d"], newest=3, atomic=True)
    outbox.put([b"e"], newest=4)
    sent = drain(outbox, numbers())
    assert [(m.items, m.volatile, m.atomic) for m in sent] == [
        ([b"a"], False, False),
        ([b"b"], True, False),
        ([b"c", b"d"], False, True),
        ([b"e"], False, False),
    ]


def test_frames_are_bounded_in_items_and_bytes() -> None:
    outbox = Outbox(limit=10_000)
    for i in range(FRAME_ITEMS + 1):
        outbox.put([b"x"], newest=i)
    outbox.put([bytes(FRAME_BYTES)], newest=FRAME_ITEMS + 1)
    assert [len(m.items) for m in drain(outbox, numbers())] == [FRAME_ITEMS, 1, 1]


@given(st.lists(st.integers(0, FRAME_BYTES // 2), max_size=12))
def test_pieces_are_the_same_in_order_and_fit(sizes: list[int]) -> None:
    items = [bytes(size) for size in sizes]
    cut = list(pieces(items))
    assert [len(i) for piece in cut for i in piece] == sizes
    assert all(sum(map(len, piece)) <= FRAME_BYTES for piece in cut)


def test_the_window_bounds_what_is_unanswered() -> None:
    outbox, number = Outbox(), numbers()
    outbox.connected(-1, window=3, max_frame=0)
    for i in range(4):
        outbox.put([b"x", b"y"], newest=2 * i + 1, atomic=True)
    assert len(drain(outbox, number)) == 1
    outbox.published(1)
    assert [m.number for m in drain(outbox, number)] == [2]


def test_what_fits_into_no_frame_is_refused_at_once() -> None:
    outbox = Outbox()
    outbox.connected(-1, window=2, max_frame=1000)
    with pytest.raises(Overloaded, match="1000"):
        outbox.put([bytes(2000)], newest=0)
    with pytest.raises(Overloaded, match="transaction"):
        outbox.put([bytes(600), bytes(600)], newest=1, atomic=True)
    with pytest.raises(Overloaded, match="allows 2"):
        outbox.put([b"x"] * 3, newest=2, atomic=True)
    assert len(outbox) == 0


def test_a_frame_that_another_broker_would_take_fails_at_this_one() -> None:
    outbox, errors = Outbox(), []
    outbox.connected(-1, window=0, max_frame=10_000)
    outbox.put([bytes(5000)], newest=0, waiter=errors.append)
    outbox.put([b"small"], newest=1, atomic=True)
    drain(outbox, numbers())
    outbox.connection_lost()
    outbox.connected(-1, window=0, max_frame=1000)
    assert [type(e) for e in errors] == [Overloaded]
    assert [m.items for m in drain(outbox, numbers())] == [[b"small"]]


def test_refused_items_fail_alone_and_are_not_sent_again() -> None:
    outbox, number, told = Outbox(), numbers(), dict[str, StentorError | None]()
    unheard = list[Any]()
    outbox.on_refusal = lambda items, error: unheard.append(items)
    for i, name in enumerate("abc"):
        outbox.put(
            [name.encode()],
            newest=i,
            retain={0: name},
            waiter=lambda error, name=name: told.update({name: error}),
        )
    drain(outbox, number)
    outbox.rejected(1, [1], NotPermitted("no"))
    assert list(told) == ["b"]
    outbox.connection_lost()
    (again,) = drain(outbox, number)
    assert (again.number, again.items, again.retain) == (1, [b"a", b"c"], {0: "a", 1: "c"})
    outbox.rejected(1, [1], NotPermitted("nor that"))  # the second of what was sent: "c"
    assert isinstance(told["c"], NotPermitted)
    outbox.published(1)
    assert told["a"] is None
    assert (len(outbox), outbox.rejections, unheard) == (0, 2, [])


def test_refusals_nobody_waits_for_are_told_with_their_items() -> None:
    outbox, told = Outbox(), list[Any]()
    outbox.on_refusal = lambda items, error: told.append((items, str(error)))
    outbox.put([b"a"], newest=0)
    outbox.put([b"b"], newest=1, waiter=lambda _: None)
    outbox.put([b"c", b"d"], newest=3)
    drain(outbox, numbers())
    outbox.rejected(1, [2], NotPermitted("no"))
    outbox.rejected(1, None, NotPermitted("none"))
    assert told == [([b"c"], "no"), ([b"a", b"d"], "none")]
    assert len(outbox) == 0
    outbox.put([bytes(900)], newest=4)
    outbox.put([bytes(900)], newest=5, waiter=lambda _: None)
    outbox.connected(-1, 0, 1_000)
    assert [(items, error.partition(",")[0]) for items, error in told[2:]] == [
        ([bytes(900)], "2 publications of 1810 bytes")
    ]


def test_volatile_ones_on_their_way_are_lost_with_the_connection() -> None:
    outbox, told = Outbox(), list[Any]()
    outbox.put([b"a"], newest=0, volatile=True, waiter=told.append)
    drain(outbox, numbers())
    outbox.put([b"b"], newest=1, volatile=True)
    outbox.connection_lost()
    assert isinstance(told[0], Unreachable)
    assert outbox.lost == 1
    assert [m.items for m in drain(outbox, numbers())] == [[b"b"]]


def test_a_barrier_waits_for_everything_before_it_and_nothing_after() -> None:
    outbox, number, told = Outbox(), numbers(), list[str]()
    outbox.barrier(lambda _: told.append("at once"))
    outbox.put([b"a"], newest=0, atomic=True)
    outbox.put([b"b"], newest=1, atomic=True)
    drain(outbox, number)
    outbox.barrier(lambda _: told.append("both"))
    outbox.put([b"c"], newest=2)
    outbox.rejected(2, [0], NotPermitted("no"))
    assert told == ["at once"]
    outbox.published(1)
    assert told == ["at once", "both"]


def test_giving_up_tells_everybody() -> None:
    outbox, told = Outbox(), list[Any]()
    outbox.put([b"a"], newest=0, waiter=told.append)
    drain(outbox, numbers())
    outbox.put([b"b"], newest=1, waiter=told.append)
    outbox.barrier(told.append)
    outbox.fail(Unreachable("for good"))
    assert [type(e) for e in told] == [Unreachable] * 3
    assert len(outbox) == 0


class Publishing(RuleBasedStateMachine):
    """The outbox against a broker that journals what is new, over connections that break."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox()
        self.number = numbers()
        self.sequence = 0
        self.journal: list[int] = []
        self.acknowledged: list[int] = []
        self.wire: list[Any] = []
        self.answers: list[int] = []
        self.up = False

    @rule(count=st.integers(1, 5), atomic=st.booleans())
    def publish(self, count: int, atomic: bool) -> None:
        ids = list(range(self.sequence, self.sequence + count))
        self.sequence += count
        self.outbox.put(
            [str(i).encode() for i in ids],
            newest=ids[-1],
            atomic=atomic,
            waiter=lambda error: self.acknowledged.extend(ids) if error is None else None,
        )

    @precondition(lambda self: not self.up)
    @rule(window=st.integers(5, 12))
    def connect(self, window: int) -> None:
        self.up = True
        self.outbox.connected(self.journal[-1] if self.journal else -1, window, 0)

    @precondition(lambda self: self.up)
    @rule()
    def send(self) -> None:
        self.wire += drain(self.outbox, self.number)

    @precondition(lambda self: self.wire)
    @rule()
    def journal_one(self) -> None:
        message = self.wire.pop(0)
        newest = self.journal[-1] if self.journal else -1
        self.journal += [int(i) for i in message.items if int(i) > newest]
        self.answers.append(message.number)

    @precondition(lambda self: self.answers)
    @rule()
    def answer(self) -> None:
        self.outbox.published(self.answers.pop(0))

    @precondition(lambda self: self.up)
    @rule()
    def lose_connection(self) -> None:
        self.up = False
        self.wire.clear()
        self.answers.clear()
        self.outbox.connection_lost()

    @invariant()
    def acknowledged_is_journaled_in_order_and_once(self) -> None:
        assert self.journal == list(range(len(self.journal)))
        assert self.acknowledged == self.journal[: len(self.acknowledged)]

    def teardown(self) -> None:
        if not self.up:
            self.connect(100)
        while len(self.outbox):
            self.send()
            while self.wire:
                self.journal_one()
            while self.answers:
                self.answer()
        assert self.acknowledged == list(range(self.sequence))


TestPublishing = Publishing.TestCase
TestPublishing.settings = settings(max_examples=50, stateful_step_count=30)
