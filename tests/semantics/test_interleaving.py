"""Recordings of single components, joined to one legal order of all that happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import DecodeError
from stentor.model import Notification, NotificationId, encode
from stentor.semantics import Condition, Notify, Pub, Trace, check
from stentor.semantics.interleaving import interleaved
from stentor.semantics.lines import ACKNOWLEDGED, BEGIN, CONFIRMED, IN_FORCE, Line, decoded


def about(sequence: int, producer: str = "a") -> dict[str, object]:
    id = NotificationId(producer, 0, sequence)
    body = encode(Notification({"x": sequence}, id=id))
    return {"nid": str(id), "producer": producer, "seq": sequence, "body": body}


def pub(pos: int, sequence: int, comp: str = "a") -> Line:
    return Line(pos=pos, op="pub", comp=comp, **about(sequence, comp))  # type: ignore[arg-type]


def notify(pos: int, sequence: int, comp: str = "b", fid: str | None = None, of: str = "a") -> Line:
    return Line(pos=pos, op="notify", comp=comp, fid=fid, **about(sequence, of))  # type: ignore[arg-type]


def sub(pos: int, comp: str = "b", fid: str = "1") -> Line:
    return Line(pos=pos, op="sub", comp=comp, fid=fid, filter="")


def unsub(pos: int, comp: str = "b", fid: str = "1") -> Line:
    return Line(pos=pos, op="unsub", comp=comp, fid=fid)


def step(pos: int, name: str, comp: str = "b", **more: object) -> Line:
    return Line(pos=pos, op="internal", step=name, comp=comp, **more)  # type: ignore[arg-type]


def words(trace: Trace) -> list[str]:
    return [str(action) for action in trace if not str(action).startswith("internal")]


# -- one order


def test_a_delivery_waits_for_its_publication_whatever_the_clocks_say() -> None:
    late = [pub(1_000, 0), pub(1_001, 1)]
    early = [sub(1), notify(2, 0), notify(3, 1), unsub(4)]
    assert words(interleaved([early, late]).trace) == [
        *("sub(b, 1: true)", "pub(a, a:0:0)", "notify(b, a:0:0)", "pub(a, a:0:1)"),
        *("notify(b, a:0:1)", "unsub(b, 1)"),
    ]


def test_what_nobody_published_stays_a_phantom() -> None:
    assert check(interleaved([[sub(1), notify(2, 0)]]).trace).conditions == {Condition.PHANTOM}


def test_recordings_that_wait_for_each_other_are_told_as_they_are() -> None:
    """No true ones do: each published after it was notified of what the other published."""
    one = [sub(1, "a"), notify(2, 0, "a", of="b"), pub(3, 0, "a")]
    two = [sub(1, "b"), notify(2, 0, "b", of="a"), pub(3, 0, "b")]
    trace = interleaved([one, two]).trace
    assert len(trace) == 6
    assert check(trace).conditions == {Condition.PHANTOM}


@st.composite
def runs(draw: st.DrawFn) -> list[list[tuple[str, object]]]:
    """What components did, in one true order, dealt out to each; and how wrong each clock is."""
    components = draw(st.integers(1, 4))
    published: list[tuple[int, int]] = []
    heard: list[set[tuple[int, int]]] = [set() for _ in range(components)]
    count = [0] * components
    done: list[tuple[int, str, tuple[int, int]]] = []
    for _ in range(draw(st.integers(0, 25))):
        who = draw(st.integers(0, components - 1))
        open = [each for each in published if each not in heard[who]]
        if open and draw(st.booleans()):
            which = draw(st.sampled_from(open))
            heard[who].add(which)
            done.append((who, "notify", which))
        else:
            which = (who, count[who])
            count[who] += 1
            published.append(which)
            done.append((who, "pub", which))
    skew = [draw(st.integers(-50, 50)) for _ in range(components)]
    return [
        [sub(-100 + skew[i], f"c{i}", "1")]
        + [
            pub(time + skew[i], which[1], f"c{i}")
            if op == "pub"
            else notify(time + skew[i], which[1], f"c{i}", "1", of=f"c{which[0]}")
            for time, (who, op, which) in enumerate(done)
            if who == i
        ]
        for i in range(components)
    ]  # type: ignore[return-value]


def of(trace: Sequence[object], component: str) -> Iterator[str]:
    for action in trace:
        if getattr(action, "component", None) == component:
            yield str(action)


@pytest.mark.spec("R-01.15", "R-01.17")
@given(runs())
def test_every_joined_run_is_legal_however_wrong_the_clocks_are(
    recordings: list[list[Line]],
) -> None:
    trace = interleaved(recordings).trace
    assert len(trace) == sum(map(len, recordings))
    for i, lines in enumerate(recordings):
        assert list(of(trace, f"c{i}")) == [str(line.action()) for line in lines]
    published: set[NotificationId] = set()
    for action in trace:
        if isinstance(action, Pub):
            published.add(action.id)
        elif isinstance(action, Notify):
            assert action.id in published
    assert check(trace).ok


# -- lives


def test_a_later_life_is_another_component_and_the_earlier_one_is_over() -> None:
    first = [step(1, BEGIN), sub(2, fid="x"), notify(4, 0, fid="x")]  # killed
    second = [step(5, BEGIN), sub(6, fid="y"), notify(7, 0, fid="y")]  # with history
    publisher = [pub(3, 0)]
    for recordings in ([first, second, publisher], [[*first, *second], publisher]):
        trace = interleaved(recordings).trace
        assert words(trace) == [
            *("sub(b, x: true)", "pub(a, a:0:0)", "notify(b, a:0:0)", "unsub(b, x)"),
            *("sub(b (2), y: true)", "notify(b (2), a:0:0)"),
        ]
        assert check(trace).ok


def test_a_second_subscription_belongs_to_the_same_life() -> None:
    lines = [step(1, BEGIN), sub(2), step(3, BEGIN), sub(4, "b#2", "2")]
    assert words(interleaved([lines]).trace)[-1] == "sub(b#2 (2), 2: true)"


def test_a_publication_in_doubt_counts_if_somebody_was_notified_of_it() -> None:
    publisher = [step(1, BEGIN, "a"), *(pub(2 + i, i) for i in range(4))]
    publisher.append(step(7, ACKNOWLEDGED, "a", nid="a:0:1", seq=2))
    joined = interleaved([publisher, [sub(1), notify(9, 3)]])
    assert joined.doubtful == 1
    assert [str(a.id) for a in joined.trace if isinstance(a, Pub)] == ["a:0:1", "a:0:2", "a:0:3"]


def test_a_trace_without_lives_has_no_publications_in_doubt() -> None:
    joined = interleaved([[pub(1, 0)]])
    assert (len(joined.trace), joined.doubtful) == (1, 0)


def test_what_was_not_confirmed_may_come_again_to_another_life() -> None:
    desk = "durable desk"
    publisher = [pub(1, 0), pub(2, 1)]
    first = [sub(3, desk, "x"), notify(4, 0, desk, "x"), notify(5, 1, desk, "x")]
    first.append(step(6, CONFIRMED, desk, fid="x", seq=1))
    second = [sub(7, desk, "y"), notify(8, 1, desk, "y")]
    joined = interleaved([publisher, first, second])
    assert joined.again == 1
    assert check(joined.trace).ok
    # What was confirmed may not, nor twice to the same life.
    for more in (notify(9, 0, desk, "y"), notify(9, 1, desk, "y")):
        joined = interleaved([publisher, first, [*second, more]])
        assert check(joined.trace).conditions == {Condition.DUPLICATE}


# -- settling


def test_settled_recordings_owe_everything() -> None:
    desk = [step(1, BEGIN), sub(2), step(3, IN_FORCE, fid="1"), notify(5, 0), unsub(9)]
    feed = [step(1, BEGIN, "a"), pub(4, 0), pub(6, 1)]
    feed.append(step(7, ACKNOWLEDGED, "a", nid="a:0:0", seq=1))
    assert check(interleaved([desk, feed]).trace).owed == 0
    report = check(interleaved([desk, feed], settled=True).trace)
    assert (report.owed, report.conditions) == (2, {Condition.LOST})
    desk.insert(-1, notify(8, 1))
    report = check(interleaved([desk, feed], settled=True).trace)
    assert (report.owed, report.ok) == (2, True)


def test_nothing_is_owed_to_who_left_before_the_end_or_came_too_late() -> None:
    early = [sub(1, "early", "e"), step(2, IN_FORCE, "early", fid="e"), unsub(3, "early", "e")]
    late = [sub(5, "late", "l"), step(6, IN_FORCE, "late", fid="l"), unsub(9, "late", "l")]
    report = check(interleaved([early, late, [pub(4, 0)]], settled=True).trace)
    assert (report.owed, report.ok) == (0, True)


# -- lines


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"pos": 1}', b'{"pos": "1", "op": "sub"}', b"\xff"]
)
def test_what_is_no_line_is_refused(text: bytes) -> None:
    with pytest.raises(DecodeError, match="not a line of a trace"):
        decoded(text)


@pytest.mark.parametrize("op", ["dance", "sub", "pub", "notify", "unadv"])
def test_a_line_that_makes_no_sense_is_refused(op: str) -> None:
    with pytest.raises(DecodeError, match="makes no sense"):
        Line(pos=1, op=op).action()
