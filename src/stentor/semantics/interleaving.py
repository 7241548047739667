"""From what each component recorded by itself to one order of all actions (R-01.17).

Every recording is in order. Between recordings two things are known: a notification is published
before anybody is notified of it, which ids tell, and the time of each action by the clock of its
recorder. An interleaving is legal if it keeps the first and the order within each recording, so it
cannot accuse anybody of what did not happen, whatever the clocks say. Among the legal ones we take
the one that follows the clocks: recordings are merged by time, and one whose next action is a
delivery of something not yet published waits for that.

Five things that recorders noted are settled on the way:

*Lives.* A component is one life of a client. If a client was recorded several times, the later
lives have names of their own, "desk (2)", and what the earlier ones subscribed to is over. A
durable subscription, or a group, is a component that outlives its clients.

*Withdrawn by another.* Who died has not said what he asks for no longer. So if somebody withdraws
a filter from a durable inbox, or from that of a group, those that asked for it and never ended that
themselves are taken to end it then.

*Publications in doubt.* What a client published and was not acknowledged may have happened or not.
It counts if somebody was notified of it; then it belongs to all others, too.

*Given again.* A durable subscription whose client dies, or a group whose member does, is given
again what was not confirmed. The second delivery of such a notification is taken for the first.

*Settling.* Liveness is judged by points at which nothing is in flight. Programs that know them
record them. Otherwise whoever made the recordings may say that they are `settled`: everything had
arrived when they were ended. Then a settling point is wherever all subscriptions made so far were
in force, and at the end; that subscriptions ended there, with their clients and after the last
publication, is left out, since nothing is owed to those that have ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from msgspec import Struct
from msgspec.structs import replace

from stentor.model import NotificationId
from stentor.semantics.actions import Trace
from stentor.semantics.lines import ACKNOWLEDGED, BEGIN, CONFIRMED, IN_FORCE, WITHDRAWN, Line


class Interleaving(Struct, frozen=True):
    """One order of all actions that were recorded."""

    trace: Trace
    #: Publications that were left out, since nobody can tell whether they happened.
    doubtful: int = 0
    #: Deliveries that were left out, since they repeat one that was not confirmed.
    again: int = 0


def interleaved(recordings: Iterable[Sequence[Line]], *, settled: bool = False) -> Interleaving:
    """The actions of recordings that belong together, in one legal order.

    >>> from stentor.model import Notification, encode
    >>> n = Notification({"x": 1}, id=NotificationId("a", 0, 0))
    >>> about = {"nid": "a:0:0", "body": encode(n)}
    >>> there = [Line(pos=7, op="pub", comp="a", **about)]
    >>> here = [
    ...     Line(pos=1, op="sub", comp="b", fid="1", filter=""),
    ...     Line(pos=2, op="notify", comp="b", **about),
    ... ]
    >>> print(interleaved([here, there]).trace)
    0  sub(b, 1: true)
    1  pub(a, a:0:0)
    2  notify(b, a:0:0)
    """
    named = _named([list(recording) for recording in recordings])
    certain = _certain(named)
    known = [
        [line for line, alive in lines if line.op != "pub" or not alive or line.nid in certain]
        for lines in named
    ]
    doubtful = sum(map(len, named)) - sum(map(len, known))
    lines, again = _once(_withdrawn(list(_merged(known))))
    if settled:
        lines = list(_settled(lines))
    return Interleaving(Trace(line.action() for line in lines), doubtful, again)


def _named(recordings: list[list[Line]]) -> list[list[tuple[Line, bool]]]:
    """Lines with the names of lives, each with whether its life was recorded from its beginning."""
    begins = sorted(
        (line.pos, i, str(line.comp))
        for i, lines in enumerate(recordings)
        for line in lines
        if line.step == BEGIN
    )
    count: defaultdict[str, int] = defaultdict(int)
    numbers: dict[tuple[int, int], int] = {}
    for pos, i, name in begins:
        count[name] += 1
        numbers[pos, i] = count[name]
    named: list[list[tuple[Line, bool]]] = []
    for i, lines in enumerate(recordings):
        lives: dict[str, int] = {}
        #: Subscriptions of each life, as the lines that end them.
        held: defaultdict[str, dict[str | None, Line]] = defaultdict(dict)
        found: list[tuple[Line, bool]] = []
        for line in lines:
            comp = line.comp or ""
            if line.step == BEGIN:
                found += [(end, True) for end in held.pop(comp, {}).values()]
                lives[comp] = numbers[line.pos, i]
            # The second subscription of a client and those after it are "desk#2" and so on.
            name = comp if comp in lives else comp.rpartition("#")[0]
            life = lives.get(name)
            if life is not None and life > 1:
                line = replace(line, comp=f"{comp} ({life})")
            if line.op == "sub":
                held[name][line.fid] = Line(pos=line.pos, op="unsub", comp=line.comp, fid=line.fid)
            elif line.op == "unsub":
                held[name].pop(line.fid, None)
            found.append((line, life is not None))
        for name, life in lives.items():
            if life < count[name]:  # a later one is in another recording
                found += [(end, True) for end in held[name].values()]
        named.append(found)
    return named


def _certain(recordings: Iterable[Iterable[tuple[Line, bool]]]) -> set[str]:
    """What was acknowledged, or delivered to somebody."""
    certain: set[str] = set()
    for lines in recordings:
        for line, _ in lines:
            if line.nid is None:
                continue
            if line.op == "notify":
                certain.add(line.nid)
            elif line.step == ACKNOWLEDGED and line.seq is not None:
                id = NotificationId.parse(line.nid)
                prefix = line.nid.rpartition(":")[0]
                certain.update(f"{prefix}:{n}" for n in range(id.sequence, line.seq + 1))
    return certain


def _merged(recordings: list[list[Line]]) -> Iterator[Line]:
    """All lines: by time, but nothing before it was published."""
    unpublished = {line.nid for lines in recordings for line in lines if line.op == "pub"}
    heads = [0] * len(recordings)
    ready: list[tuple[int, int]] = []
    waiting: defaultdict[str | None, list[int]] = defaultdict(list)

    def advance(i: int) -> None:
        if heads[i] < len(recordings[i]):
            line = recordings[i][heads[i]]
            if line.op == "notify" and line.nid in unpublished:
                waiting[line.nid].append(i)
            else:
                heappush(ready, (line.pos, i))

    for i in range(len(recordings)):
        advance(i)
    while ready or waiting:
        if not ready:  # they wait for each other, which no true recordings do
            unpublished.clear()
            for i in waiting.pop(next(iter(waiting))):
                advance(i)
            continue
        _, i = heappop(ready)
        line = recordings[i][heads[i]]
        heads[i] += 1
        yield line
        if line.op == "pub":
            unpublished.discard(line.nid)
            for each in waiting.pop(line.nid, ()):
                advance(each)
        advance(i)


def _withdrawn(lines: list[Line]) -> Iterator[Line]:
    """With the ends of what the dead asked for and others have withdrawn."""
    ended = {line.fid for line in lines if line.op == "unsub"}
    held: defaultdict[tuple[str | None, str | None], list[str | None]] = defaultdict(list)
    for line in lines:
        yield line
        if line.op == "sub" and line.fid not in ended:
            held[line.comp, line.filter].append(line.fid)
        elif line.step == WITHDRAWN:
            for fid in held.pop((line.comp, line.filter), ()):
                yield Line(pos=line.pos, op="unsub", comp=line.comp, fid=fid)


def _once(lines: Iterable[Line]) -> tuple[list[Line], int]:
    """Without deliveries that repeat one of another life that was not confirmed."""
    #: By component, the reader to whom each notification was given and not confirmed.
    open: defaultdict[str | None, dict[str | None, str | None]] = defaultdict(dict)
    given: defaultdict[str | None, list[str | None]] = defaultdict(list)
    kept: list[Line] = []
    again = 0
    for line in lines:
        unconfirmed = open[line.comp]
        if line.op == "notify" and line.fid is not None:
            given[line.fid].append(line.nid)
            before = unconfirmed.get(line.nid, line.fid)
            unconfirmed[line.nid] = line.fid
            if before != line.fid:
                again += 1
                continue
        elif line.step == CONFIRMED:
            for nid in given[line.fid][: line.seq]:
                unconfirmed.pop(nid, None)
        kept.append(line)
    return kept, again


def _matters(line: Line) -> bool:
    return line.op in ("sub", "pub") or line.step == WITHDRAWN


def _settled(lines: list[Line]) -> Iterator[Line]:
    """With settling points, which nobody has recorded."""
    last = max((i for i, line in enumerate(lines) if _matters(line)), default=-1)
    pending: set[str | None] = set()
    for i, line in enumerate(lines):
        if line.op == "unsub":
            pending.discard(line.fid)
            if i > last:
                continue
        yield line
        if line.op == "sub":
            pending.add(line.fid)
        elif line.step == IN_FORCE:
            pending.discard(line.fid)
            if not pending:
                yield Line(pos=line.pos, op="quiescent")
    yield Line(pos=lines[-1].pos if lines else 0, op="quiescent")
