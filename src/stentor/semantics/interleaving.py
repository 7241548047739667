"""From what each component recorded by itself to one order of all actions (R-01.17).

Every recording is in order. Between recordings two things are known: a notification is published
before anybody is notified of it, which ids tell, and the time of each action by the clock of its
recorder. An interleaving is legal if it keeps the first and the order within each recording, so it
cannot accuse anybody of what did not happen, whatever the clocks say. Among the legal ones we take
the one that follows the clocks: recordings are merged by time, and one whose next action is a
delivery of something not yet published waits for that.

Six things that recorders noted are settled on the way:

*Lives.* A component is one life of a client. If a client was recorded several times, the later
lives have names of their own, "desk (2)", and what the earlier ones subscribed to is over. A
durable subscription, or a group, is a component that outlives its clients; a reader of it has left
when a later life of its client begins.

*Withdrawn by another.* Who died has not said what he asks for no longer. So if somebody withdraws
a filter from a durable inbox, or from that of a group, those that asked for it and never ended that
themselves are taken to end it then.

*Publications in doubt.* What a client published and was not acknowledged may have happened or not.
It counts if somebody was notified of it; then it belongs to all others, too. Dead letters are
published by brokers, which record nothing: they count as published in the order of their ids, no
later than somebody was notified of them.

*Given again.* A durable subscription whose client dies, or a group whose member does, is given
again what was not confirmed, and so is who has refused something. Such a delivery is an `Again`.
One of something that was confirmed stays a second `Notify`, unless it may be late: its reader was
there before that, and lets go of it later, or says nothing more.

*Confirmed, as it seemed.* What a reader had when it was cut off may be another's. If it was given
to another indeed, that the first one confirms it later says nothing.

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
from stentor.model.dead_letter import PRODUCER
from stentor.semantics.actions import ReadingTerms, Trace
from stentor.semantics.lines import (
    ACKNOWLEDGED,
    ATTACHED,
    BEGIN,
    CONFIRMED,
    CUT_OFF,
    IN_FORCE,
    LEFT,
    REFUSED,
    TAKEN,
    WITHDRAWN,
    WORDS,
    Line,
)


class Interleaving(Struct, frozen=True):
    """One order of all actions that were recorded."""

    trace: Trace
    #: Publications that were left out, since nobody can tell whether they happened.
    doubtful: int = 0
    #: Deliveries that repeat one that was not confirmed, as is right.
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
    known += _dead_letters(known)
    lines, again = _once(_spelled_out(list(_withdrawn(list(_merged(known))))))
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


def _dead_letters(recordings: list[list[Line]]) -> Iterator[list[Line]]:
    """The publications of dead letters that somebody got, by the brokers that published them."""
    first: dict[str, Line] = {}
    for lines in recordings:
        for line in lines:
            if line.op != "notify" or not (line.producer or "").startswith(PRODUCER):
                continue
            nid = str(line.nid)
            if nid not in first or line.pos < first[nid].pos:
                first[nid] = line
    published = {line.nid for lines in recordings for line in lines if line.op == "pub"}
    brokers: defaultdict[str, list[tuple[NotificationId, Line]]] = defaultdict(list)
    for nid, line in first.items():
        if nid not in published:
            brokers[str(line.producer)].append((NotificationId.parse(nid), line))
    for producer, letters in brokers.items():
        letters.sort(key=lambda each: (each[0].epoch, each[0].sequence), reverse=True)
        pos, found = letters[0][1].pos, []
        for id, line in letters:
            pos = min(pos, line.pos)
            body = line.body
            found.append(
                Line(pos=pos, op="pub", comp=producer, nid=str(id), producer=producer, body=body)
            )
        yield found[::-1]


def _spelled_out(lines: list[Line]) -> Iterator[Line]:
    """With the ids of what readers settled in bulk, without what only seemed to be confirmed, and
    with the ends of readers that died.
    """
    given: defaultdict[str | None, list[str]] = defaultdict(list)
    #: How much of that each reader has said of it, by words.
    said: defaultdict[tuple[str | None, str | None], int] = defaultdict(int)
    readers: defaultdict[tuple[str | None, str | None], set[str | None]] = defaultdict(set)
    for line in lines:
        if line.op == "notify":
            readers[line.comp, line.nid].add(line.fid)
    confirmed: set[tuple[str | None, str | None]] = set()
    doubted: set[tuple[str | None, str]] = set()
    attached: dict[str, Line] = {}
    for line in lines:
        if line.op == "notify" and line.nid is not None:
            given[line.fid].append(line.nid)
        elif line.step == BEGIN:
            for fid, reader in list(attached.items()):
                name, life, _ = fid.rsplit("/", 2)
                if name == line.comp and life != str(line.pos):
                    del attached[fid]
                    yield Line(pos=line.pos, op="internal", step=LEFT, comp=reader.comp, fid=fid)
        elif line.step == ATTACHED and line.fid is not None and line.fid.count("/") >= 2:
            attached[line.fid] = line
        elif line.step == LEFT and line.fid is not None:
            attached.pop(line.fid, None)
        elif line.step == CUT_OFF:
            doubted |= {
                (line.fid, nid)
                for nid in given[line.fid]
                if len(readers[line.comp, nid]) > 1 and (line.comp, nid) not in confirmed
            }
        elif line.step in WORDS:
            nids = line.nids
            if line.seq is not None:
                start = said[line.fid, line.step]
                nids = given[line.fid][start : line.seq]
                said[line.fid, line.step] = max(start, line.seq)
            if line.step == CONFIRMED:
                nids = [nid for nid in nids if (line.fid, nid) not in doubted]
                confirmed.update((line.comp, nid) for nid in nids)
            line = replace(line, nids=nids, seq=None)
        yield line


def _late(lines: list[Line]) -> set[int]:
    """Which deliveries may have waited for their readers: these let go of them, or say no more."""
    found: set[int] = set()
    #: By reader, the deliveries that it has not let go of; and those behind which nothing comes.
    had: defaultdict[str | None, dict[str | None, int]] = defaultdict(dict)
    last: defaultdict[str | None, list[int]] = defaultdict(list)
    for i, line in enumerate(lines):
        if line.fid is None:
            continue
        if line.op == "notify":
            had[line.fid][line.nid] = i
            last[line.fid].append(i)
            continue
        last[line.fid].clear()
        if line.step == CUT_OFF:
            found.update(had.pop(line.fid, {}).values())
        elif line.step in (TAKEN, CONFIRMED):
            for nid in line.nids:
                where = had[line.fid].pop(nid, None)
                if line.step == TAKEN and where is not None:
                    found.add(where)
    return found.union(*last.values())


def _once(all_lines: Iterable[Line]) -> tuple[list[Line], int]:
    """With deliveries that are rightly made again told as such, and how many these are."""
    lines = list(all_lines)
    late = _late(lines)
    terms: dict[str | None, ReadingTerms] = {}
    inexact: set[str | None] = set()
    #: Where readers begin, and where notifications were confirmed.
    began: dict[str | None, int] = {}
    confirmed: dict[tuple[str | None, str | None], int] = {}
    #: The last delivery of each, and whether its reader is rid of it.
    last: dict[tuple[str | None, str | None], Line] = {}
    free: set[tuple[str | None, str | None, str | None]] = set()
    kept: list[Line] = []
    again = 0
    for i, line in enumerate(lines):
        comp, fid, key = line.comp, line.fid, (line.comp, line.nid)
        began.setdefault(fid, i)
        if line.op == "notify" and fid is not None:
            before = last.get(key)
            line = replace(line, late=i in late and began[fid] < confirmed.get(key, i))
            if before is not None:
                rid = before.fid != fid or (*key, fid) in free or line.attempt > before.attempt
                if rid and (key not in confirmed or comp in inexact or line.late):
                    again += 1
                    line = replace(line, op="again")
            last[key] = line
            free.discard((*key, fid))
        elif line.step == ATTACHED and line.terms is not None:
            terms[fid] = line.terms
            if not line.terms.exact:
                inexact.add(comp)
        elif line.step == CONFIRMED:
            for nid in line.nids:
                confirmed.setdefault((comp, nid), i)
        elif line.step in (REFUSED, TAKEN):
            free.update((comp, nid, fid) for nid in line.nids)
        elif line.step == CUT_OFF and fid in terms:
            if not terms[fid].durable:
                inexact.add(comp)
            if terms[fid].shared and terms[fid].one_by_one:
                free.update((*key, fid) for key, each in last.items() if each.fid == fid)
        kept.append(line)
    return kept, again


def _matters(line: Line) -> bool:
    return line.op in ("sub", "pub") or line.step == WITHDRAWN


#: Steps that may stand behind the end of a run.
_ENDING = frozenset({*WORDS, LEFT, CUT_OFF, ACKNOWLEDGED})


def _settled(lines: list[Line]) -> Iterator[Line]:
    """With settling points, which nobody has recorded."""
    last = max((i for i, line in enumerate(lines) if _matters(line)), default=-1)
    end = len(lines)  # from here on readers only settle what they have, and leave
    while end and (lines[end - 1].op == "unsub" or lines[end - 1].step in _ENDING):
        end -= 1
    leaving = next((i for i in range(end, len(lines)) if lines[i].step == LEFT), len(lines))
    pending: set[str | None] = set()
    for i, line in enumerate(lines):
        if i == leaving:
            yield Line(pos=line.pos, op="quiescent")
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
