"""Publishing: what publishers send is checked, journaled, then routed and answered.

A publication goes through these stages:

    count      as many as the window allows, of somebody who may publish at all
    hold       until what the client has advertised is in force, and while its grant is too fast
               (`stentor.node.pauses`)
    check      each of the `checks`: the id, the grant, the advertisement
    scope      in which versions it is visible where, if there is a scope graph
    journal    unless it is volatile; what was published before is left out. What is to be delivered
               later is put on the schedule instead, on the same disk, and answered when it is there
    route      under its offset, when it is on disk
    answer     the client hears that it is done

So what travels is always on disk at its entry, and an offset that was ever seen anywhere never
stands for anything else.

A frame may hold very many, and whoever sent it shall not hold up the others. Counts and rights are
looked at before anything is done for each item; the items are then checked in steps, and what is on
disk is routed in steps.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias

from stentor.errors import (
    DecodeError,
    JournalUnavailable,
    NotPermitted,
    ProtocolError,
    StentorError,
)
from stentor.model.codec import Envelope, decode_header, decode_headers
from stentor.model.names import shown, text_problem
from stentor.node.agenda import Agenda, Append, CloseClient
from stentor.node.allowance import BURST
from stentor.node.batch import Batch
from stentor.node.checks import AtOnce, Check
from stentor.node.clock import Clock
from stentor.node.journals import Journals
from stentor.node.last_values import owned
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.traffic import Traffic
from stentor.node.pauses import Pauses
from stentor.node.schedule import Delayed, Schedule
from stentor.node.scopes import Scopes
from stentor.node.session import Line, Session, nothing
from stentor.node.sessions import Sessions
from stentor.node.trail import Trail
from stentor.protocol import messages as m

#: Called when something is on disk and routed, or with the reason why it is not.
Then: TypeAlias = Callable[[StentorError | None], None]
#: For whom, the request, what is in it, from which offset on, at most how many bytes, and what is
#: to be done then.
_Landed: TypeAlias = tuple[Session, list[int], list[Envelope], list[bytes], int, int, Then | None]

_DONE: Final = object()
#: Notifications beyond its window, as a multiple, that a client may have on their way.
BEYOND_WINDOW: Final = 4
#: Notifications that are checked in one step, and their bytes.
CHECKED_AT_ONCE: Final = 1_000
CHECKED_BYTES: Final = 128 * 1024
#: Volatile notifications that are routed as soon as so many have come. Larger batches gain nothing,
#: and what was decoded is no longer in the processor's cache when its turn comes.
ROUTED_AT_ONCE: Final = 1_000
#: Bytes of notifications that are routed in one step.
ROUTED_BYTES: Final = 256 * 1024
_handling: Final = attrgetter("handling")


class Publishing:
    """Takes publications."""

    def __init__(
        self,
        traffic: Traffic | Carriage,
        *,
        checks: Sequence[Check],
        schedule: Schedule,
        pauses: Pauses,
        journals: Journals,
        sessions: Sessions,
        clock: Clock,
        agenda: Agenda,
        trail: Trail,
        scopes: Scopes,
        window: int,
    ) -> None:
        """A client may have `window` notifications unanswered."""
        self._at_let_in: list[Callable[[list[Envelope]], None]] = []
        self._traffic = traffic
        self._checks = checks
        self._volatile_checks = [AtOnce(), *checks]
        self._schedule = schedule
        self._pauses = pauses
        self._journals = journals
        self._sessions = sessions
        self._agenda = agenda
        self._trail = trail
        self._scopes = scopes
        self._clock = clock
        self._window = window
        self.counters = {"published": 0, "volatile": 0, "repeated": 0, "refused": 0}
        self._lines: dict[str, Line] = {}
        #: What is on disk and was not yet routed.
        self._landed: deque[_Landed] = deque()
        #: Volatile publications that wait to be routed together, and the number of the newest.
        #: Numbers rise over restarts: no broker takes a million a second for long.
        self._volatile: tuple[list[bytes], list[Envelope]] = ([], [])
        self._newest_volatile = int(clock.time * 1_000_000)
        #: Up to which number each client's requests are done, where it was not told.
        self._answers: dict[int, int] = {}
        self._at_routed: list[Callable[[str], None]] = []
        #: How often producers have something on its way that others publish for them.
        self._owed: Counter[str] = Counter()
        sessions.at_leave(self._left)

    def at_routed(self, done: Callable[[str], None]) -> None:
        """Call this when all that a producer had on its way to the disk has been routed."""
        self._at_routed.append(done)

    def at_let_in(self, note: Callable[[list[Envelope]], None]) -> None:
        """Call this with what is in order, before it is written or passed on."""
        self._at_let_in.append(note)

    def owes(self, producer: str) -> bool:
        """Whether something of the producer is on its way to the disk, or not yet routed."""
        line = self._lines.get(producer)
        return producer in self._owed or (line is not None and bool(line.pending))

    def owe(self, producer: str) -> None:
        """Something of the producer will be published by another part, or dropped: then `paid`."""
        self._owed[producer] += 1

    def paid(self, producer: str) -> None:
        """It was."""
        self._owed[producer] -= 1
        if not self._owed[producer]:
            del self._owed[producer]
            self._tell_routed(producer)

    def _tell_routed(self, producer: str) -> None:
        if not self.owes(producer):
            for done in self._at_routed:
                done(producer)

    # -- publishers come and go

    def line(self, producer: str, name: str, newest: tuple[int, int] | None) -> Line:
        """What the producer has on its way, for one more connection; `newest` is on disk."""
        line = self._lines.get(producer)
        if line is None:
            line = self._lines[producer] = Line(newest or (-1, -1))
        elif line.failed:
            raise JournalUnavailable(
                f"what {name!r} has published before could not be stored; try again"
            )
        line.sessions += 1
        return line

    def _left(self, session: Session) -> None:
        next(self.route_volatile(), None)
        self._answers.pop(session.id, None)
        session.line.sessions -= 1
        self._release(session)

    def _release(self, session: Session) -> None:
        """Forget what a producer has on its way, if that is nothing, and nobody goes on with it."""
        line = session.line
        if (
            not line.pending
            and self._lines.get(session.producer) is line
            and (line.failed or not line.sessions)
        ):
            del self._lines[session.producer]

    # -- checked

    def publish(self, session: Session, message: m.Publish) -> Iterator[None] | None:
        """Take a frame; one that is long in steps, of which all but the first are returned."""
        count = len(message.items)
        # One frame alone is always taken: it may be older than the window is small.
        if session.unanswered:
            self._check_window(session, session.unanswered + count)
        for index, key in message.retain.items():
            if not 0 <= index < count or text_problem(key) is not None:
                raise ProtocolError(f"item {index} cannot be kept under {shown(key)}")
        entry = session.opened(message.number, count)
        if session.may_publish is nothing:
            refusal = NotPermitted(
                f"{session.name!r} may not publish anything; have the grant widened"
            )
            self._reject(session, message, list(range(count)), refusal)
            self._done(session, entry)
            return None
        if self._pauses.keeps(session, (message, entry)):
            return None
        self._pauses.charge(session, count)
        steps = self._taken(session, message, entry)
        return None if next(steps, _DONE) is _DONE else self._pauses.passed(session, steps)

    def _check_window(self, session: Session, unanswered: int) -> None:
        window = self.window(session)
        if unanswered > BEYOND_WINDOW * window:
            raise ProtocolError(
                f"{unanswered} publications are unanswered; at most {window} are allowed at a time"
            )

    def rebound(self, window: int) -> None:
        """From now on a client may have so many unanswered."""
        self._window = window

    def window(self, session: Session) -> int:
        """How many publications the client may have unanswered."""
        rate = session.allowance.rate
        return self._window if rate is None else max(1, min(self._window, int(BURST * rate)))

    def work(self) -> None:
        """Go on with what is on disk, and with what had to wait."""
        if self._landed:
            self._route_landed()
        if not self._scopes.moving:
            self._pauses.go_on(self._taken)

    def _taken(self, session: Session, message: m.Publish, entry: list[int]) -> Iterator[None]:
        """Check the items and let them in, stretch by stretch; a transaction as a whole."""
        all_items, all_retain = message.items, message.retain
        whole: tuple[list[bytes], list[Envelope], dict[int, str]] = ([], [], {})
        bytes_ = 0
        refused: list[int] = []
        reason: StentorError | None = None
        start = 0
        for end, size in _cuts(all_items):
            if start:
                yield
                if session.id not in self._sessions.held:
                    return
            items = all_items if end - start == len(all_items) else all_items[start:end]
            items, envelopes, bad, problem = self._checked(session, items, message.volatile)
            retain = all_retain
            if all_retain and (bad or len(items) < len(all_items)):
                good = (i for i in range(start, end) if i - start not in bad)
                retain = {new: all_retain[i] for new, i in enumerate(good) if i in all_retain}
            if problem is not None:
                reason = reason or problem
                refused += [start + i for i in sorted(bad)]
            start = end
            if not message.atomic:
                self._let_in(
                    session, entry, items, envelopes, retain, size, volatile=message.volatile
                )
                if len(self._volatile[0]) >= ROUTED_AT_ONCE:
                    yield from self.route_volatile()
            elif reason is None:
                first = len(whole[0])
                bytes_ += size
                whole[0].extend(items)
                whole[1].extend(envelopes)
                whole[2].update((first + i, key) for i, key in retain.items())
        if reason is not None:
            if message.atomic:
                refused = list(range(len(all_items)))
            self._reject(session, message, refused, reason)
        elif message.atomic:
            self._let_in(session, entry, *whole, bytes_, volatile=message.volatile)
        self._done(session, entry)

    def _checked(
        self, session: Session, items: list[bytes], volatile: bool
    ) -> tuple[list[bytes], list[Envelope], set[int], StentorError | None]:
        """What is in order; the indexes of the others, and why the first of those is not."""
        envelopes: Sequence[Envelope | DecodeError]
        checks = self._volatile_checks if volatile else self._checks
        try:
            read = decode_headers(items)
        except DecodeError as error:
            alone = len(items) == 1
            envelopes = [error.with_traceback(None)] if alone else [_header(data) for data in items]
        else:
            checks = [check for check in checks if check.concerns(session, read)]
            if not checks:
                return items, read, set(), None
            envelopes = read
        first: StentorError | None = None
        bad: set[int] = set()
        kept: list[bytes] = []
        found: list[Envelope] = []
        for i, envelope in enumerate(envelopes):
            if isinstance(envelope, DecodeError):
                problem: StentorError | None = envelope
            else:
                problems = (check.problem(session, envelope) for check in checks)
                problem = next(filter(None, problems), None)
                if problem is None:
                    kept.append(items[i])
                    found.append(envelope)
                    continue
                self._trail.refused(envelope.id, problem.code, str(problem))
            bad.add(i)
            first = first or problem
        return kept, found, bad, first

    def checked(self, session: Session, items: list[bytes]) -> list[Envelope]:
        """What is in these, if the client may publish all of them; else the error."""
        if not items:
            return []
        if session.may_publish is nothing:
            raise NotPermitted(f"{session.name!r} may not publish anything; have the grant widened")
        _, envelopes, _, problem = self._checked(session, items, volatile=False)
        if problem is not None:
            raise problem
        self._pauses.charge(session, len(items))
        return envelopes

    def _reject(
        self, session: Session, message: m.Publish, refused: list[int], reason: StentorError
    ) -> None:
        self.counters["refused"] += len(refused)
        session.refused += len(refused)
        rejected = m.Rejected(message.number, refused, reason.code, str(reason))
        self._agenda.to_client(session.id, rejected)

    # -- journaled

    def _let_in(
        self,
        session: Session,
        entry: list[int],
        items: list[bytes],
        envelopes: list[Envelope],
        retain: dict[int, str],
        size: int,
        *,
        volatile: bool,
    ) -> None:
        """Publications that are in order: to be routed, or to be journaled first.

        They have no more bytes than `size`.
        """
        if volatile:
            self.counters["volatile"] += len(items)
            if self._scopes.active:
                items, envelopes, _, waiting = self._scopes.stamp(session, items, envelopes, [])
                if waiting and not session.line.failed:
                    self._wait(session, entry, waiting)
            self._note(envelopes)
            self._volatile[0].extend(items)
            self._volatile[1].extend(envelopes)
            return
        line = session.line
        entry[2] += 1
        if line.failed:
            return  # its connection is about to be closed
        items, envelopes, keys, handled = self._new(session, items, envelopes, retain)
        # If all are repeats, the originals may still be on their way to the disk: the empty batch
        # behind them says when they have arrived.
        line.sent(envelopes)
        delayed: list[Delayed] = []
        if self._scopes.active:
            items, envelopes, keys, delayed = self._scopes.stamp(session, items, envelopes, keys)
            size = sum(map(len, items))
        self._note(envelopes)
        if handled:
            owners = [session.owner] * len(items)
            items, envelopes, keys, more = self._apart(owners, items, envelopes, keys)
            delayed = [*delayed, *more]
        then = self._put(delayed) if delayed else None
        context = (session, entry, envelopes, size, then)
        self._agenda.add(
            Append(items, session.producer, line.newest, line, keys, context, schedule=delayed)
        )

    def _wait(self, session: Session, entry: list[int], waiting: list[Delayed]) -> None:
        """What waits at scopes is kept on disk, also if it is volatile until it comes there."""
        line = session.line
        entry[2] += 1
        line.sent([])
        context: Any = (session, entry, [], 0, self._put(waiting))
        self._agenda.add(
            Append([], session.producer, line.newest, line, [], context, schedule=waiting)
        )

    def _note(self, envelopes: list[Envelope]) -> None:
        for note in self._at_let_in:
            note(envelopes)

    def _apart(
        self,
        owners: Sequence[str | None],
        items: list[bytes],
        envelopes: list[Envelope],
        keys: list[tuple[str, int]],
    ) -> tuple[list[bytes], list[Envelope], list[tuple[str, int]], list[Delayed]]:
        """Publications without those whose time has not come, and these."""
        time, key_of = self._clock.time, {i: key for key, i in keys}
        now: list[int] = []
        delayed: list[Delayed] = []
        for i, envelope in enumerate(envelopes):
            due = 0.0 if envelope.handling is None else envelope.handling.due
            if due > time:
                id = str(envelope.id)
                delayed.append(Delayed(id, due, owners[i], key_of.get(i), items[i]))
            else:
                now.append(i)
        if not delayed:
            return items, envelopes, keys, delayed
        kept = [(key_of[i], new) for new, i in enumerate(now) if i in key_of]
        return [items[i] for i in now], [envelopes[i] for i in now], kept, delayed

    def _put(self, delayed: list[Delayed]) -> Then | None:
        """Have these on the schedule as soon as they are on disk."""
        if not delayed:
            return None
        self._agenda.stir()
        for each in delayed:
            self._schedule.put(each)

        def then(error: StentorError | None) -> None:
            if error is None:
                self._schedule.arm(each.id for each in delayed)
            else:
                for each in delayed:
                    self._schedule.drop(each.id)

        return then

    def publish_own(
        self,
        session: Session,
        items: list[bytes],
        envelopes: list[Envelope],
        *,
        retain: list[tuple[str, int]] | None = None,
        states: dict[str, bytes] | None = None,
        unschedule: Sequence[str] = (),
        then: Then | None = None,
        owners: Sequence[str | None] = (),
        later: Sequence[Delayed] = (),
    ) -> None:
        """Publish what this broker has to say, or says for others under the ids that they gave.

        States of durable subscriptions are stored in the same transaction, and what need not be on
        the schedule any longer leaves it. What is `later` is put there; what is due later is, too,
        if `owners` are given, the grants of who has published each.
        """
        line = session.line
        self._note(envelopes)
        entry = session.opened(0, len(items))
        line.sent([])
        delayed = [*later]
        keys = retain or []
        if owners:
            items, envelopes, keys, more = self._apart(owners, items, envelopes, keys)
            delayed += more
        then = _both(self._put(delayed), then)
        context = (session, entry, envelopes, sum(map(len, items)), then)
        self._agenda.add(
            Append(
                items,
                "",
                line.newest,
                line,
                keys,
                context,
                states or {},
                schedule=delayed,
                unschedule=unschedule,
            )
        )

    def _new(
        self,
        session: Session,
        items: list[bytes],
        envelopes: list[Envelope],
        retain: dict[int, str],
    ) -> tuple[list[bytes], list[Envelope], list[tuple[str, int]], bool]:
        """Without what was published before; the client sends again what was not answered.

        And whether any says how it is to be handled.
        """
        line = session.line
        count = len(items)
        line.newest, repeated = _repeated(line.newest, envelopes)
        keys = [(owned(session.owner, key), i) for i, key in retain.items()] if retain else []
        if repeated:
            keep = [i for i in range(count) if i not in repeated]
            place = {i: new for new, i in enumerate(keep)}
            keys = [(key, place[i]) for key, i in keys if i in place]
            items, envelopes = [items[i] for i in keep], [envelopes[i] for i in keep]
            self.counters["repeated"] += len(repeated)
        session.published += len(items)
        self.counters["published"] += len(items)
        return items, envelopes, keys, any(map(_handling, envelopes))

    def committed(self, commits: Iterable[tuple[Any, int, list[bytes]]]) -> None:
        """These are on disk, each from an offset on; they follow one another in the journal."""
        self._landed.extend(
            (session, entry, envelopes, items, first, size, then)
            for (session, entry, envelopes, size, then), first, items in commits
        )
        self._route_landed()

    def failed(self, context: Any, error: StentorError) -> None:
        """What was appended could not be stored, nor anything of this producer behind it.

        The client loses its connection; it will send everything again, in order.
        """
        session, then = context[0], context[-1]
        session.line.failed = True
        self._arrived(session)
        if then is not None:
            then(error)
        for other in self._sessions.held.values():
            if other.line is session.line:
                self._agenda.add(CloseClient(other.id, error.code, str(error)))

    def _arrived(self, session: Session) -> None:
        """One batch less of a producer is on its way to the disk."""
        if session.line.arrived():
            self._tell_routed(session.producer)
        self._release(session)

    # -- routed

    def route_volatile(self) -> Iterator[None]:
        """What was published since the last time, by whomever, goes in one batch.

        In steps, for whoever may have published very much, and behind what is being passed on.
        """
        while self.waits_to_be_routed:
            if self._traffic.has_work:
                self._traffic.work()
            else:
                self.route_some()
            yield

    def route_some(self) -> None:
        """Some of them, if there are any, and nothing is being passed on."""
        items, envelopes = self._volatile
        if not items:
            return
        # As they are now: more may come until they have gone to everybody.
        count, _ = _fitting(items, self._traffic.at_once, ROUTED_BYTES)
        first = self._newest_volatile + 1
        numbers = list(range(first, first + count))
        stream = self._journals.stream
        batch = Batch(stream, numbers, items[:count], envelopes[:count], volatile=True)
        self._traffic.route(batch, None, self._volatile_routed)

    def _volatile_routed(self, count: int) -> None:
        items, envelopes = self._volatile
        self._newest_volatile += count
        self._volatile = items[count:], envelopes[count:]

    @property
    def waits_to_be_routed(self) -> bool:
        """Whether something volatile does, or something is being passed on."""
        return bool(self._volatile[0]) or self._traffic.has_work

    @property
    def has_work(self) -> bool:
        """Whether something is to be routed, or need not wait any more."""
        may_go_on = self._pauses.released and not self._scopes.moving
        return bool(self._landed or self._volatile[0] or may_go_on)

    def _route_landed(self) -> None:
        """Route what is on disk and answer for it; if that is much, the rest waits."""
        if self._traffic.has_work:
            return
        offsets: list[int] = []
        items: list[bytes] = []
        envelopes: list[Envelope] = []
        landed, room, space = self._landed, self._traffic.at_once, ROUTED_BYTES
        for _, _, found, data, first, size, _ in landed:
            count = len(data)
            fits = count <= room and size <= space
            if not fits:
                count, size = _fitting(data, room, space)
                found, data = found[:count], data[:count]
            offsets.extend(range(first, first + count))
            items += data
            envelopes += found
            room -= count
            space -= size
            if not fits or room <= 0 or space <= 0:
                break  # what comes next is the rest of this one
        if not items:
            self._landed_routed(0)
            return

        def routed(count: int) -> None:
            self._journals.head = offsets[count - 1]
            self._landed_routed(count)

        batch = Batch(self._journals.stream, offsets, items, envelopes)
        self._traffic.route(batch, None, routed)

    def _landed_routed(self, routed: int) -> None:
        """So many of what is on disk have gone to everybody."""
        landed = self._landed
        while landed and len(landed[0][3]) <= routed:
            session, entry, _, data, *_, then = landed.popleft()
            routed -= len(data)
            self._arrived(session)
            self._done(session, entry)
            if then is not None:
                self._agenda.stir()
                then(None)
        if routed:
            session, entry, found, data, first, _, then = landed[0]
            found, data = found[routed:], data[routed:]
            landed[0] = (session, entry, found, data, first + routed, sum(map(len, data)), then)

    # -- answered

    def _done(self, session: Session, entry: list[int]) -> None:
        through = session.closed(entry)
        if through is not None and session.id in self._sessions.held:
            self._answers[session.id] = through

    def answer(self) -> None:
        """Tell publishers what is done."""
        for id, through in self._answers.items():
            self._agenda.to_client(id, m.Published(through))
        self._answers.clear()


def _both(first: Then | None, second: Then | None) -> Then | None:
    if first is None or second is None:
        return first or second

    def then(error: StentorError | None) -> None:
        first(error)
        second(error)

    return then


def _repeated(
    newest: tuple[int, int], envelopes: Iterable[Envelope]
) -> tuple[tuple[int, int], set[int]]:
    """The newest id of a producer, these included, and the indexes of those that are not newer."""
    epoch, sequence = newest
    repeated: set[int] = set()
    for i, envelope in enumerate(envelopes):
        id = envelope.id
        assert id is not None
        if id.sequence > sequence and id.epoch == epoch:  # as nearly always
            sequence = id.sequence
        elif (id.epoch, id.sequence) > (epoch, sequence):
            epoch, sequence = id.epoch, id.sequence
        else:
            repeated.add(i)
    return (epoch, sequence), repeated


def _header(data: bytes) -> Envelope | DecodeError:
    try:
        return decode_header(data)
    except DecodeError as error:
        return error.with_traceback(None)


def _cuts(items: list[bytes]) -> list[tuple[int, int]]:
    """Where the steps end in which these are checked, and how many bytes each has.

    >>> _cuts([b"a"] * 3), _cuts([b""] * 2_500), _cuts([bytes(100_000)] * 2)
    ([(3, 3)], [(1000, 0), (2000, 0), (2500, 0)], [(1, 100000), (2, 100000)])
    """
    size = sum(map(len, items))
    if len(items) <= CHECKED_AT_ONCE and size <= CHECKED_BYTES:
        return [(len(items), size)]
    cuts = []
    start = 0
    while start < len(items):
        some = items[start : start + CHECKED_AT_ONCE]
        count, size = _fitting(some, CHECKED_AT_ONCE, CHECKED_BYTES)
        start += count
        cuts.append((start, size))
    return cuts


def _fitting(items: list[bytes], room: int, space: int) -> tuple[int, int]:
    """How many of these, at least one, are within so many and so many bytes; and their bytes."""
    some = items[:room]
    size = sum(map(len, some))
    if size <= space:
        return len(some), size
    count = size = 0
    for data in some:
        if count and size + len(data) > space:
            break
        count += 1
        size += len(data)
    return count, size
