"""Publications: checked, journaled, then routed and answered.

A publication is decoded and checked. If it is volatile it is routed at once. Otherwise it goes to
the journal; when it is on disk, `committed` routes it under its offset and answers the client. So
what travels is always on disk at its entry, and an offset that was ever seen anywhere never stands
for anything else.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from stentor.node.service.subscribing import Subscribing
from stentor.node.session import Session
from stentor.protocol import messages as m

#: Seconds by which a publisher's clock may be ahead.
EPOCH_AHEAD: Final = 86_400.0
#: Notifications that are routed as soon as so many have come. Larger batches gain nothing, and what
#: was decoded is no longer in the processor's cache when its turn comes.
ROUTED_AT_ONCE: Final = 1_000


class Publishing(Subscribing):
    """Takes publications."""

    def _publish(self, session: Session, message: m.Publish) -> None:
        for index, key in message.retain.items():
            if not 0 <= index < len(message.items) or text_problem(key) is not None:
                raise ProtocolError(f"item {index} cannot be kept under {shown(key)}")
        entry = session.opened(message.number, len(message.items))
        items, envelopes, retain = self._checked(session, message)
        if message.volatile:
            self.counters["volatile"] += len(items)
            self._volatile[0].extend(items)
            self._volatile[1].extend(envelopes)
            self._answer(session, entry)
            if len(self._volatile[0]) >= ROUTED_AT_ONCE:
                self._route_volatile()
            return
        line = session.line
        if line.failed:
            return  # its connection is about to be closed
        items, envelopes, keys = self._new(session, items, envelopes, retain)
        # If all are repeats, the originals may still be on their way to the disk: the empty batch
        # behind them says when they have arrived.
        line.pending += 1
        context = (session, entry, envelopes)
        self._out.append(Append(items, session.producer, line.newest, line, keys, context))

    def _checked(
        self, session: Session, message: m.Publish
    ) -> tuple[list[bytes], list[Envelope], dict[int, str]]:
        """The notifications that are in order; the client is told about the others."""
        items = message.items
        try:
            envelopes = decode_headers(items)
        except DecodeError:
            problems = [self._problem(session, data) for data in items]
        else:
            producer, latest = session.producer, self._latest_epoch
            if not (session.may_publish or self._enforce) and all(
                e.id is not None and e.id.producer == producer and e.id.epoch <= latest
                for e in envelopes
            ):
                return items, envelopes, message.retain
            problems = [self._problem(session, data) for data in items]
        bad = [i for i, problem in enumerate(problems) if problem is not None]
        if not bad:
            return items, envelopes, message.retain
        first = problems[bad[0]]
        assert first is not None
        refused = list(range(len(items))) if message.atomic else bad
        self.counters["refused"] += len(refused)
        session.refused += len(refused)
        self._to_client(session, m.Rejected(message.number, refused, first.code, str(first)))
        without = set(refused)
        kept = [i for i in range(len(items)) if i not in without]
        items = [items[i] for i in kept]
        retain = {new: message.retain[i] for new, i in enumerate(kept) if i in message.retain}
        return items, decode_headers(items), retain

    @property
    def _latest_epoch(self) -> int:
        """The latest epoch that is taken.

        Nothing older is taken afterwards: one far in the future would end what others publish under
        the same name for good.
        """
        return int((self._clock + EPOCH_AHEAD) * 1000)

    def _problem(self, session: Session, data: bytes) -> StentorError | None:
        """Why the client may not publish this; None if it may."""
        try:
            envelope = decode_header(data)
        except DecodeError as error:
            return error
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
        offsets: list[int] = []
        items: list[bytes] = []
        envelopes: list[Envelope] = []
        arrived = []
        for (session, entry, found), first, data in commits:
            offsets.extend(range(first, first + len(data)))
            items += data
            envelopes += found
            arrived.append((session, entry))
        if items:
            self._head = offsets[-1]
            self._route(self.stream, offsets, items, envelopes, None)
        for session, entry in arrived:
            self._arrived(session)
            self._answer(session, entry)

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
