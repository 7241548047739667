"""Transactions of consumers: what they publish and what they have dealt with become one step.

A consumer that takes a notification, publishes something of it, and then confirms would publish it
again if it died in between, and lose it if it confirmed first. So both are told in one message, and
written in one transaction of the journal: the publications, and the state of the durable
subscription in which the notification is done. After a crash there are both or neither.

The same message may come again, over another connection or at another broker to which the
subscription has moved, if the answer was lost. What tells then that it was carried out is the state
of the subscription itself: it remembers the names of the last transactions of each consumer. So the
publications need no order among those that the client has sent before, and are not compared with
them.

While a transaction is on its way, what it has taken is nobody's: if its consumer leaves it is not
given to another. One transaction of the journal is under way at a time, with all that have come
meanwhile; if it fails, it is tried again. Dead letters are written in the same way, and no
subscription has both on their way.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from stentor.errors import (
    InvalidConfiguration,
    JournalUnavailable,
    LeaseExpired,
    Overloaded,
    ProtocolError,
    StentorError,
    TransactionLost,
)
from stentor.model.codec import Envelope
from stentor.model.identity import NotificationId
from stentor.model.names import shown, text_problem
from stentor.node.agenda import Agenda
from stentor.node.clock import Clock
from stentor.node.durable import Durable
from stentor.node.journals import Journals
from stentor.node.last_values import owned
from stentor.node.parts.durables import Durables
from stentor.node.parts.publishing import Publishing
from stentor.node.parts.settlements import Settlements
from stentor.node.schedule import Delayed
from stentor.node.scopes import Scopes
from stentor.node.session import Session
from stentor.node.sessions import Sessions
from stentor.node.settling import Key
from stentor.node.subscription import Consumer, Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.protocol import messages as m

#: Transactions of one client that may wait; those that are written at once, and their bytes.
WAITING: Final = 100
AT_ONCE: Final = 1_000
BYTES_AT_ONCE: Final = 4 * 2**20
#: Notifications that one transaction takes, and publishes, at most; and those that are taken by all
#: that are written at once, unless a single one takes more. All of it is settled in one turn.
TAKEN: Final = 5_000
PUBLISHED: Final = 20_000
#: Seconds until what could not be stored is tried again.
RETRY: Final = 1.0
#: Seconds for which one waits that comes over a new connection before what it has taken does.
PATIENCE: Final = 10.0


@dataclass(slots=True)
class _Commit:
    """A transaction that was not answered."""

    session: Session
    message: m.Commit
    #: What it publishes, and under which keys some of that is kept.
    items: list[bytes]
    envelopes: list[Envelope]
    retain: list[tuple[str, int]]
    #: What of it waits at scopes.
    waiting: list[Delayed]
    name: NotificationId
    deadline: float
    #: What it has taken, of which subscriptions.
    taken: list[tuple[Subscription, Consumer, list[Key]]] = field(default_factory=list)

    @property
    def weight(self) -> int:
        """What it costs to look at it; to settle is dearer than to publish."""
        taken = sum(len(keys) for _, _, keys in self.taken)
        return PUBLISHED // TAKEN * taken + len(self.envelopes)

    @property
    def durables(self) -> list[Durable]:
        return [s.durable for s, _, _ in self.taken if s.durable is not None]

    @property
    def keys(self) -> set[tuple[str, Key]]:
        """What it has taken, by the names of subscriptions."""
        return {(subscription.feed.id, key) for subscription, _, keys in self.taken for key in keys}


class Transactions:
    """Commits what consumers publish and settle together."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        *,
        durables: Durables,
        publishing: Publishing,
        settlements: Settlements,
        journals: Journals,
        sessions: Sessions,
        clock: Clock,
        agenda: Agenda,
        scopes: Scopes,
    ) -> None:
        self._scopes = scopes
        self._subscriptions = subscriptions
        self._durables = durables
        self._publishing = publishing
        self._settlements = settlements
        self._sessions = sessions
        self._clock = clock
        self._agenda = agenda
        self.counters = {"transactions": 0}
        self._producer = f"transactions at {journals.stream}"
        self._session: Session | None = None
        self._waiting: deque[_Commit] = deque()
        self._counts: Counter[int] = Counter()
        #: Those that are on their way to the disk, and if that has failed, not before when again.
        self._written: list[_Commit] = []
        self._not_before = 0.0
        #: Whether durable subscriptions are being handed over: clients ask the heir.
        self.paused = False

    # -- what consumers say

    def commit(self, session: Session, message: m.Commit) -> None:
        """Take a transaction; it is answered when it is on disk."""
        producer, epoch, sequence = message.name
        if not message.settled:
            raise InvalidConfiguration("a transaction that takes nothing is a `Publish`")
        taken = sum(len(each) for streams in message.settled.values() for each in streams.values())
        if taken > TAKEN or len(message.items) > PUBLISHED:
            raise InvalidConfiguration(
                f"a transaction takes at most {TAKEN:,} notifications and publishes at most "
                f"{PUBLISHED:,}, and this one has {taken:,} and {len(message.items):,}; commit "
                "more often"
            )
        for index, key in message.retain.items():
            if not 0 <= index < len(message.items) or text_problem(key) is not None:
                raise ProtocolError(f"item {index} cannot be kept under {shown(key)}")
        if self._counts[session.id] >= WAITING:
            raise Overloaded(f"{WAITING} transactions wait already; wait for their answers")
        # The name is not that of a notification, which the same subscription might be given.
        known = sha256(producer.encode("utf-8", "replace")).hexdigest()[:32]
        name = NotificationId(f"transactions of {known}", epoch, sequence)
        envelopes = self._publishing.checked(session, message.items)
        keys = [(owned(session.owner, key), index) for index, key in message.retain.items()]
        published = self._scopes.stamp(session, message.items, envelopes, keys)
        commit = _Commit(session, message, *published, name, self._clock.now + PATIENCE)
        self._look_up(commit)
        self._waiting.append(commit)
        self._counts[session.id] += 1
        self._publishing.owe(session.producer)

    def _look_up(self, commit: _Commit) -> None:
        """Find the subscriptions; they may have been made anew since it came.

        What is named twice is taken once, also by a client that is two members of a group.
        """
        commit.taken.clear()
        seen: dict[str, set[Key]] = {}
        for number, streams in commit.message.settled.items():
            held = commit.session.subscriptions.get(number)
            if held is None:
                raise LeaseExpired(
                    f"there is no subscription {number}, or no longer; subscribe again"
                )
            subscription, consumer = held
            if subscription.durable is None or subscription.settling is None:
                raise InvalidConfiguration(
                    "a transaction takes from durable subscriptions that settle one by one; "
                    "subscribe with durable= and settle=True"
                )
            named = [(stream, offset) for stream, offsets in streams.items() for offset in offsets]
            known = seen.setdefault(subscription.feed.id, set())
            keys = [key for key in dict.fromkeys(named) if key not in known]
            known.update(keys)
            commit.taken.append((subscription, consumer, keys))

    # -- to disk

    def publish(self) -> None:
        """Write those that have come, if none are on their way."""
        if self.paused:
            return
        if self._written:
            if 0 < self._not_before <= self._clock.now:
                self._not_before = 0.0
                self._try()
            return
        if not self._waiting:
            return
        written: list[_Commit] = []
        later: list[_Commit] = []
        claimed: set[tuple[str, Key]] = set()
        names: set[NotificationId] = set()  # one that was sent twice is looked at again later
        size = looked = 0
        while self._waiting and len(written) < AT_ONCE and size < BYTES_AT_ONCE:
            commit = self._waiting[0]
            looked += commit.weight
            if looked > PUBLISHED and looked > commit.weight:
                break
            self._waiting.popleft()
            if commit.session.id not in self._sessions.held:
                self._forget(commit)
                continue
            try:
                self._look_up(commit)
                ready = commit.name not in names and self._is_ready(commit, claimed)
            except StentorError as error:
                self._answer(commit, error)
                continue
            if ready is None:
                self._answer(commit, None)  # it was carried out before
            elif ready:
                names.add(commit.name)
                claimed |= commit.keys
                size += sum(map(len, commit.items))
                written.append(commit)
            else:
                later.append(commit)
        self._waiting.extend(later)  # the others have their turn before these
        if written:
            self._write(written)

    def _is_ready(self, commit: _Commit, claimed: set[tuple[str, Key]]) -> bool | None:
        """Whether it can be written now; None if it was before. `TransactionLost` if it cannot."""
        durables = commit.durables
        if any(commit.name in durable.recent for durable in durables):
            return None
        if any(self._durables.is_on_hold(durable.name) for durable in durables):
            return False
        if commit.keys & claimed:
            raise TransactionLost("another transaction has taken the same")
        states = [
            subscription.settling.state_of(consumer, key)
            for subscription, consumer, keys in commit.taken
            if subscription.settling is not None
            for key in keys
        ]
        if "gone" in states:
            raise TransactionLost(
                "what the transaction has taken is no longer its own: another consumer has it, or "
                "it was dealt with; nothing of the transaction was published"
            )
        if "unknown" in states:
            if self._clock.now >= commit.deadline:
                raise TransactionLost("what the transaction has taken did not come here again")
            return False
        return True

    def _write(self, written: list[_Commit]) -> None:
        for commit in written:
            for subscription, _, keys in commit.taken:
                durable, settling = subscription.durable, subscription.settling
                assert durable is not None
                assert settling is not None
                settling.claim(keys)
                durable.dying.update(keys)
        self._written = written
        self._try()

    def _try(self) -> None:
        """Write them; as often as it takes, for nobody else has what they have taken."""
        try:
            session = self._own()
        except JournalUnavailable:  # what has failed before is still being answered
            self._not_before = self._clock.now + RETRY
            return
        done: dict[str, tuple[Durable, list[Key], list[NotificationId]]] = {}
        items: list[bytes] = []
        envelopes: list[Envelope] = []
        owners: list[str | None] = []
        retain: list[tuple[str, int]] = []
        for commit in self._written:
            owner = commit.session.owner
            retain += [(key, len(items) + index) for key, index in commit.retain]
            items += commit.items
            envelopes += commit.envelopes
            owners += [owner] * len(commit.envelopes)
            for subscription, _, keys in commit.taken:
                durable = subscription.durable
                assert durable is not None
                _, all_keys, names = done.setdefault(durable.name, (durable, [], []))
                all_keys += keys
                names.append(commit.name)
        states = {
            name: durable.to_data(done=keys, ids=names)
            for name, (durable, keys, names) in done.items()
            if self._durables.keeps(durable)
        }
        for name in states:
            self._durables.hold(name)
        self._publishing.publish_own(
            session,
            items,
            envelopes,
            retain=retain,
            states=states,
            owners=owners,
            later=[each for commit in self._written for each in commit.waiting],
            then=self._stored,
        )

    def _own(self) -> Session:
        if self._session is None or self._session.line.failed:
            line = self._publishing.line(self._producer, self._producer, None)
            self._session = Session(-3, self._producer, self._producer, line)
        return self._session

    def _stored(self, error: StentorError | None) -> None:
        """They are on disk and routed, or could not be stored."""
        if error is not None:
            self._not_before = self._clock.now + RETRY
            return
        written, self._written = self._written, []
        names = set()
        for commit in written:
            for subscription, _, keys in commit.taken:
                durable, settling = subscription.durable, subscription.settling
                assert durable is not None
                assert settling is not None
                names.add(durable.name)
                durable.dying.difference_update(keys)
                durable.recent.add(commit.name)
                settling.settle_claimed(keys)
                attached = self._subscriptions.held.get(subscription.feed.id)
                if attached is not None:  # perhaps somebody else by now, who has waited for this
                    self._settlements.look(attached)
            self.counters["transactions"] += 1
            self._answer(commit, None)
        for name in names:
            self._durables.release(name)

    def _answer(self, commit: _Commit, error: StentorError | None) -> None:
        self._forget(commit)
        number, session = commit.message.number, commit.session
        if session.id in self._sessions.held:
            failed = error is not None and m.Failure(error.code, str(error), number)
            self._agenda.to_client(session.id, failed or m.Done(number))

    def _forget(self, commit: _Commit) -> None:
        self._publishing.paid(commit.session.producer)
        self._counts[commit.session.id] -= 1
        if self._counts[commit.session.id] <= 0:
            del self._counts[commit.session.id]
