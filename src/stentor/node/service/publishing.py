"""Publications: checked, journaled, then routed and answered.

A publication is decoded and checked. If it is volatile it is routed at once. Otherwise it goes to
the journal; when it is on disk, `committed` routes it under its offset and answers the client. So
what travels is always on disk at its entry, and an offset that was ever seen anywhere never stands
for anything else.

A frame may hold very many, and whoever sent it shall not hold up the others. Counts and rights are
looked at before anything is done for each item; the items are then checked in steps, and what is on
disk is routed in steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from stentor.errors import (
    DecodeError,
    InvalidNotification,
    NotAdvertised,
    NotPermitted,
    ProtocolError,
    StentorError,
)
from stentor.model.codec import Envelope, decode_header, decode_headers
from stentor.model.names import shown, text_problem
from stentor.node.actions import (
    Append,
    CloseClient,
)
from stentor.node.last_values import owned
from stentor.node.service.notifications import ROUTED_AT_ONCE
from stentor.node.service.subscribing import Subscribing
from stentor.node.session import Session, nothing
from stentor.protocol import messages as m

#: Seconds by which a publisher's clock may be ahead.
EPOCH_AHEAD: Final = 86_400.0
DONE: Final = object()
#: Notifications beyond its window, as a multiple, that a client may have on their way.
BEYOND_WINDOW: Final = 4
#: Notifications that are checked in one step, and their bytes.
CHECKED_AT_ONCE: Final = 1_000
CHECKED_BYTES: Final = 128 * 1024
#: Bytes of notifications that are routed in one step.
ROUTED_BYTES: Final = 256 * 1024


class Publishing(Subscribing):
    """Takes publications."""

    def _publish(self, session: Session, message: m.Publish) -> Iterator[None] | None:
        """Take a frame; one that is long in steps, of which all but the first are returned."""
        count = len(message.items)
        if session.unanswered + count > BEYOND_WINDOW * self._window:
            raise ProtocolError(
                f"{session.unanswered + count} publications are unanswered; at most {self._window} "
                "are allowed at a time"
            )
        for index, key in message.retain.items():
            if not 0 <= index < count or text_problem(key) is not None:
                raise ProtocolError(f"item {index} cannot be kept under {shown(key)}")
        entry = session.opened(message.number, count)
        if session.may_publish is nothing:
            refusal = NotPermitted(
                f"{session.name!r} may not publish anything; have the grant widened"
            )
            self._reject(session, message, list(range(count)), refusal)
            self._answer(session, entry)
            return None
        steps = self._taken(session, message, entry)
        return None if next(steps, DONE) is DONE else steps

    def _taken(self, session: Session, message: m.Publish, entry: list[int]) -> Iterator[None]:
        """Check the items and let them in, stretch by stretch; a transaction as a whole."""
        all_items, all_retain = message.items, message.retain
        whole: tuple[list[bytes], list[Envelope], dict[int, str]] = ([], [], {})
        refused: list[int] = []
        reason: StentorError | None = None
        start = 0
        for end in _cuts(all_items):
            if start:
                yield
                if session.id not in self.sessions:
                    return
            items = all_items if end - start == len(all_items) else all_items[start:end]
            items, envelopes, bad, problem = self._checked(session, items)
            retain = all_retain
            if all_retain and (bad or len(items) < len(all_items)):
                good = (i for i in range(start, end) if i - start not in bad)
                retain = {new: all_retain[i] for new, i in enumerate(good) if i in all_retain}
            if problem is not None:
                reason = reason or problem
                refused += [start + i for i in sorted(bad)]
            start = end
            if not message.atomic:
                self._let_in(session, entry, items, envelopes, retain, volatile=message.volatile)
                if len(self._volatile[0]) >= ROUTED_AT_ONCE:
                    yield from self._routing_volatile()
            elif reason is None:
                first = len(whole[0])
                whole[0].extend(items)
                whole[1].extend(envelopes)
                whole[2].update((first + i, key) for i, key in retain.items())
        if reason is not None:
            if message.atomic:
                refused = list(range(len(all_items)))
            self._reject(session, message, refused, reason)
        elif message.atomic:
            self._let_in(session, entry, *whole, volatile=message.volatile)
        self._answer(session, entry)

    def _reject(
        self, session: Session, message: m.Publish, refused: list[int], reason: StentorError
    ) -> None:
        self.counters["refused"] += len(refused)
        session.refused += len(refused)
        self._to_client(session, m.Rejected(message.number, refused, reason.code, str(reason)))

    def _let_in(
        self,
        session: Session,
        entry: list[int],
        items: list[bytes],
        envelopes: list[Envelope],
        retain: dict[int, str],
        *,
        volatile: bool,
    ) -> None:
        """Publications that are in order: to be routed, or to be journaled first."""
        if volatile:
            self.counters["volatile"] += len(items)
            self._volatile[0].extend(items)
            self._volatile[1].extend(envelopes)
            return
        line = session.line
        entry[2] += 1
        if line.failed:
            return  # its connection is about to be closed
        items, envelopes, keys = self._new(session, items, envelopes, retain)
        # If all are repeats, the originals may still be on their way to the disk: the empty batch
        # behind them says when they have arrived.
        line.pending += 1
        context = (session, entry, envelopes)
        self._out.append(Append(items, session.producer, line.newest, line, keys, context))

    def _checked(
        self, session: Session, items: list[bytes]
    ) -> tuple[list[bytes], list[Envelope], set[int], StentorError | None]:
        """What is in order; the indexes of the others, and why the first of those is not."""
        envelopes: list[Envelope | DecodeError]
        try:
            read = decode_headers(items)
        except DecodeError as error:
            alone = len(items) == 1
            envelopes = [error.with_traceback(None)] if alone else [_header(data) for data in items]
        else:
            producer, latest = session.producer, self._latest_epoch
            if not (session.may_publish or self._enforce) and all(
                e.id is not None and e.id.producer == producer and e.id.epoch <= latest
                for e in read
            ):
                return items, read, set(), None
            envelopes = [*read]
        first: StentorError | None = None
        bad: set[int] = set()
        kept: list[bytes] = []
        found: list[Envelope] = []
        for i, envelope in enumerate(envelopes):
            if isinstance(envelope, DecodeError):
                problem: StentorError | None = envelope
            else:
                problem = self._problem(session, envelope)
                if problem is None:
                    kept.append(items[i])
                    found.append(envelope)
                    continue
            bad.add(i)
            first = first or problem
        return kept, found, bad, first

    @property
    def _latest_epoch(self) -> int:
        """The latest epoch that is taken.

        Nothing older is taken afterwards: one far in the future would end what others publish under
        the same name for good.
        """
        return int((self._clock + EPOCH_AHEAD) * 1000)

    def _problem(self, session: Session, envelope: Envelope) -> StentorError | None:
        """Why the client may not publish this; None if it may."""
        id = envelope.id
        if id is None or id.producer != session.producer:
            producer = None if id is None else id.producer
            return InvalidNotification(
                f"the id must name {session.producer!r} as its producer, not {shown(producer)}"
            )
        if id.epoch > self._latest_epoch:
            return InvalidNotification(
                f"the epoch {id.epoch} is more than a day ahead of the clock of this broker; use "
                "milliseconds since 1970, and set the clock that is wrong"
            )
        if session.may_publish is not None and not session.may_publish(envelope):
            return NotPermitted(
                f"{session.name!r} may not publish {envelope.attributes}; publish what its grant "
                "allows, or have the grant widened"
            )
        offered = session.advertisements.values()
        if self._enforce and not any(f.matches(envelope.facts) for f in offered):
            return NotAdvertised(
                f"{session.name!r} has advertised nothing that matches {envelope.attributes}; "
                "advertise it before publishing"
            )
        return None

    def _new(
        self,
        session: Session,
        items: list[bytes],
        envelopes: list[Envelope],
        retain: dict[int, str],
    ) -> tuple[list[bytes], list[Envelope], list[tuple[str, int]]]:
        """Without what was published before; the client sends again what was not answered."""
        newest = session.line.newest
        keep: list[int] = []
        for i, envelope in enumerate(envelopes):
            id = envelope.id
            assert id is not None
            this = (id.epoch, id.sequence)
            if this > newest:
                newest = this
                keep.append(i)
        session.line.newest = newest
        session.published += len(keep)
        self.counters["published"] += len(keep)
        keys = {i: owned(session.owner, key) for i, key in retain.items()}
        if len(keep) == len(items):
            return items, envelopes, [(key, i) for i, key in keys.items()]
        self.counters["repeated"] += len(items) - len(keep)
        kept_keys = [(keys[i], new) for new, i in enumerate(keep) if i in keys]
        return [items[i] for i in keep], [envelopes[i] for i in keep], kept_keys

    def committed(self, context: Any, first: int, items: list[bytes]) -> None:
        """What was appended is on disk, from this offset on."""
        self.committed_all([(context, first, items)])

    def committed_all(self, commits: Iterable[tuple[Any, int, list[bytes]]]) -> None:
        """The same for batches that follow one another in the journal, in one step."""
        self._landed.extend(
            (session, entry, envelopes, items, first)
            for (session, entry, envelopes), first, items in commits
        )
        self._route_landed()

    @property
    def is_routing(self) -> bool:
        """Whether something that is on disk is still to be routed."""
        return bool(self._landed)

    def work(self) -> None:
        """Route what is on disk, as far as that was too much at once; then what can wait."""
        if self._landed:
            self._route_landed()
        super().work()

    def _route_landed(self) -> None:
        """Route what is on disk and answer for it; if that is much, the rest waits for `work`."""
        offsets: list[int] = []
        items: list[bytes] = []
        envelopes: list[Envelope] = []
        landed, room, space = self._landed, self._routed_at_once, ROUTED_BYTES
        for _, _, found, data, first in landed:
            count, size = len(data), sum(map(len, data))
            if count > room or size > space:
                count, size = _fitting(data, room, space)
                found, data = found[:count], data[:count]
            offsets.extend(range(first, first + count))
            items += data
            envelopes += found
            room -= count
            space -= size
            if room <= 0 or space <= 0:
                break
        routed = 0
        if items:
            routed = self._route(self.stream, offsets, items, envelopes, None)
            self._head = offsets[routed - 1]
        while landed and len(landed[0][3]) <= routed:
            session, entry, _, data, _ = landed.popleft()
            routed -= len(data)
            self._arrived(session)
            self._answer(session, entry)
        if routed:
            session, entry, found, data, first = landed[0]
            landed[0] = (session, entry, found[routed:], data[routed:], first + routed)

    def failed(self, context: Any, error: StentorError) -> None:
        """What was appended could not be stored, nor anything of this producer behind it.

        The client loses its connection; it will send everything again, in order.
        """
        session = context[0]
        session.line.failed = True
        self._arrived(session)
        for other in self.sessions.values():
            if other.line is session.line:
                self._out.append(CloseClient(other.id, error.code, str(error)))

    def _arrived(self, session: Session) -> None:
        """One batch less of a producer is on its way to the disk."""
        session.line.pending -= 1
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

    def _answer(self, session: Session, entry: list[int]) -> None:
        through = session.closed(entry)
        if through is not None and session.id in self.sessions:
            self._answers[session.id] = through


def _header(data: bytes) -> Envelope | DecodeError:
    try:
        return decode_header(data)
    except DecodeError as error:
        return error.with_traceback(None)


def _cuts(items: list[bytes]) -> list[int]:
    """Where the steps end in which these are checked.

    >>> _cuts([b""] * 3), _cuts([b""] * 2_500), _cuts([bytes(100_000)] * 3)
    ([3], [1000, 2000, 2500], [1, 2, 3])
    """
    if len(items) <= CHECKED_AT_ONCE and sum(map(len, items)) <= CHECKED_BYTES:
        return [len(items)]
    ends = []
    start = 0
    while start < len(items):
        start += _fitting(items[start : start + CHECKED_AT_ONCE], CHECKED_AT_ONCE, CHECKED_BYTES)[0]
        ends.append(start)
    return ends


def _fitting(items: list[bytes], room: int, space: int) -> tuple[int, int]:
    """How many of these, at least one, are within so many and so many bytes; and their bytes."""
    count = size = 0
    for data in items[:room]:
        if count and size + len(data) > space:
            break
        count += 1
        size += len(data)
    return count, size
