"""What durable subscriptions and groups owe: each fault that is planted into a good run is found.

A run is written as words, one after the other, each an action of a reader of `durable d`:

    a+          a attaches            a-      it leaves          a!      it is cut off
    a:3         it is given 3         a:3/2   as attempt 2       |       a settling point
    a=3         it has dealt with 3   a#3     that is on disk
    a~3         it refuses 3          a&3     that is on disk    a<3     3 is taken back
    p3          3 is published        w:3     the watcher gets a dead letter of 3 (w:3' another)
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from test_interleaving import pub, step

from stentor.model import NotificationId, encode
from stentor.model.dead_letter import PRODUCER, dead_letter
from stentor.semantics import Condition, ReadingTerms, Report, check
from stentor.semantics.interleaving import interleaved
from stentor.semantics.lines import (
    ATTACHED,
    CONFIRMED,
    CUT_OFF,
    DEALT,
    IN_FORCE,
    LEFT,
    NOTED,
    REFUSED,
    TAKEN,
    Line,
)

D = "durable d"
STEPS = {"+": ATTACHED, "-": LEFT, "!": CUT_OFF, "=": DEALT, "#": CONFIRMED}
STEPS |= {"~": REFUSED, "&": NOTED, "<": TAKEN}


def reader(name: str) -> str:
    return f"{name}/1/1"


def lines(run: str, terms: ReadingTerms) -> list[Line]:
    found = [
        Line(pos=1, op="sub", comp=D, fid="every", filter="exists x"),
        step(2, IN_FORCE, D, fid="every"),
        Line(pos=3, op="sub", comp="w", fid="letters", filter="type = 'DeadLetter'"),
        Line(pos=4, op="quiescent"),
    ]
    for pos, word in enumerate(run.split(), 10):
        match = re.fullmatch(r"(\|)|p(\d+)|(\w)([-+!=#~&<:])(\d*)(?:/(\d+))?('?)", word)
        assert match is not None, word
        point, published, who, what, number, attempt, other = match.groups()
        if point:
            found.append(Line(pos=pos, op="quiescent"))
        elif published:
            found.append(pub(pos, int(published)))
        elif who == "w":
            found.append(
                letter(pos, int(number), int(attempt or terms.attempts), other=bool(other))
            )
        elif what == ":":
            body = pub(pos, int(number))
            more: dict[str, Any] = {"nid": body.nid, "body": body.body, "producer": "a"}
            count = int(attempt or 1)
            found.append(Line(pos=pos, op="notify", comp=D, fid=reader(who), attempt=count, **more))
        else:
            nids = [str(NotificationId("a", 0, int(number)))] if number else []
            of = {"terms": terms} if what == "+" else {}
            found.append(step(pos, STEPS[what], D, fid=reader(who), nids=nids, **of))
    return found


def letter(pos: int, number: int, attempts: int, *, other: bool) -> Line:
    id = NotificationId(f"{PRODUCER}b{int(other)}#0", 0, number)
    body = dead_letter(
        pub(pos, number).body or encode(None),  # type: ignore[arg-type]
        kind="durable",
        name="d",
        attempts=attempts,
        cause="no",
        id=id,
        time=1.0,
    )
    return Line(
        pos=pos, op="notify", comp="w", fid="w/1/1", nid=str(id), producer=id.producer, body=body
    )


ONE = ReadingTerms(durable=True, one_by_one=True, attempts=2, dead_letter=True)
GROUP = ReadingTerms(durable=True, shared=True, one_by_one=True, attempts=2, dead_letter=True)
BULK = ReadingTerms(durable=True)


def judged(run: str, terms: ReadingTerms) -> Report:
    return check(interleaved([lines(run, terms)]).trace, order=["fifo"])


@pytest.mark.parametrize(
    ("good", "faulty", "terms", "condition"),
    [
        # The reader dies with 1 in its hand: its successor gets it.
        ("p1 a+ a:1 a- b+ b:1 b=1 b#1 |", "p1 a+ a:1 a- b+ |", BULK, Condition.UNSETTLED),
        ("p1 a+ a:1 a- |", "p1 a+ b+ a:1 a- |", GROUP, Condition.UNSETTLED),
        ("p1 a+ b+ a:1 a! b:1 b=1 |", "p1 a+ b+ a:1 a! |", GROUP, Condition.UNSETTLED),
        ("p1 a+ a:1 a~1 a&1 a:1/2 a=1 |", "p1 a+ a:1 a~1 a&1 |", ONE, Condition.UNSETTLED),
        # Confirmed by one, and not given to another.
        (
            "p1 a+ b+ a:1 a=1 a#1 |",
            "p1 a+ a:1 a=1 a#1 b+ b:1 b=1 |",
            GROUP,
            Condition.DUPLICATE,
        ),
        (
            "p1 a+ b+ a:1 a<1 b:1 a=1 b=1 b#1 |",
            "p1 a+ b+ a:1 b:1 a=1 b=1 b#1 a#1 |",
            GROUP,
            Condition.CONFIRMED_TWICE,
        ),
        # Given to the same reader again although it has it.
        ("p1 a+ a:1 a<1 a:1/2 a=1 |", "p1 a+ a:1 a:1 a=1 |", ONE, Condition.DUPLICATE),
        # Attempts are told.
        (
            "p1 a+ a:1 a~1 a&1 a:1/2 a=1 |",
            "p1 a+ a:1 a~1 a&1 a:1 a=1 |",
            ONE,
            Condition.MISCOUNTED,
        ),
        ("p1 a+ a:1 a~1 a:1/2 a=1 |", "p1 a+ a:1/2 a=1 |", ONE, Condition.MISCOUNTED),
        (
            "p1 a+ a:1 a~1 a:1/2 a~1 w:1 |",
            "p1 a+ a:1 a~1 a:1/2 a~1 a:1/3 a=1 |",
            ONE,
            Condition.MISCOUNTED,
        ),
        # Dead letters.
        (
            "p1 a+ a:1 a~1 a:1/2 a~1 w:1 |",
            "p1 a+ a:1 a~1 a:1/2 a~1 w:1 w:1' |",
            ONE,
            Condition.DEAD_TWICE,
        ),
        (
            "p1 a+ a:1 a~1 a:1/2 a<1 w:1 a=1 |",
            "p1 a+ a:1 a~1 a:1/2 a=1 a#1 w:1 |",
            ONE,
            Condition.CONFIRMED_AND_DEAD,
        ),
        (
            "p1 a+ a:1 a~1 a:1/2 a~1 w:1 |",
            "p1 a+ a:1 a~1 w:1 |",
            ONE,
            Condition.DEAD_TOO_EARLY,
        ),
        (
            "p1 p2 a+ a:1 a~1 a:1/2 a~1 w:1 a:2 a~2 a:2/2 a~2 w:2 |",
            "p1 p2 a+ a:1 a~1 a:1/2 a~1 w:1 a:2 a~2 a:2/2 a~2 |",
            ONE,
            Condition.UNSETTLED,
        ),
        # Order behind one that was refused.
        (
            "p1 p2 a+ a:1 a~1 a:1/2 a=1 a:2 a=2 |",
            "p1 p2 a+ a:1 a~1 a:2 a=2 a:1/2 a=1 |",
            ONE,
            Condition.OVERTAKEN,
        ),
    ],
)
def test_a_fault_that_is_planted_is_found(
    good: str, faulty: str, terms: ReadingTerms, condition: Condition | None
) -> None:
    right = judged(good, terms)
    assert right.ok, right
    assert judged(faulty, terms).conditions == ({condition} if condition else frozenset())


@pytest.mark.parametrize(
    ("run", "terms"),
    [
        # A member was cut off, confirms later what another has by then, and the broker says yes.
        ("p1 a+ b+ a:1 a=1 a! b:1 b=1 b#1 a#1 |", GROUP),
        # One that hung takes from its queue what was taken back, and hears of that only then.
        ("p1 a+ b+ b:1 b=1 b#1 a:1 a<1 |", GROUP),
        ("p1 a+ b+ b:1 b=1 b#1 a:1", GROUP),
        # What was refused over a connection that broke comes again as it was.
        ("p1 a+ a:1 a~1 a! a:1 a=1 a#1 |", ONE),
        # In hand at the end, or nobody is left to be given it.
        ("p1 a+ a:1 |", ONE),
        ("p1 a+ a:1 a- |", ONE),
        # Given up, and nobody watches dead letters.
        ("p1 a+ a:1 a~1 a:1/2 a~1 |", ONE),
        # Who allows it is overtaken; members of a group have no order.
        (
            "p1 p2 a+ a:1 a~1 a:2 a=2 a:1/2 a=1 |",
            ReadingTerms(durable=True, one_by_one=True, overtake=True),
        ),
        ("p1 p2 a+ b+ b:2 a:1 a=1 b=2 |", GROUP),
        # Taken over from a copy: what was confirmed in the last second may come again.
        (
            "p1 a+ a:1 a=1 a#1 a- b+ b:1 b=1 b#1 |",
            ReadingTerms(durable=True, one_by_one=True, exact=False),
        ),
        # A group that is not durable begins again when its broker dies.
        ("p1 a+ b+ a:1 a=1 a#1 a! b:1 b=1 b#1 |", ReadingTerms(shared=True, one_by_one=True)),
    ],
)
def test_nobody_is_accused_of_what_may_have_been_right(run: str, terms: ReadingTerms) -> None:
    report = judged(run, terms)
    assert report.ok, report


def test_a_reader_has_left_when_a_later_life_of_its_client_begins() -> None:
    run = lines("p1 a+ a:1", BULK)
    assert judged("p1 a+ a:1 |", BULK).ok
    run.append(step(50, "begin", "a"))
    run.append(step(51, ATTACHED, D, fid="a/50/1", terms=BULK))
    run.append(Line(pos=52, op="quiescent"))
    assert check(interleaved([run]).trace).conditions == {Condition.UNSETTLED}
