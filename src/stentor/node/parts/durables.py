"""Durable subscriptions: what is kept of them, and when it goes to disk.

What changes with every confirmation is stored at the end of a turn, once, or if very many have
changed, in one of the next turns; what a client waits for is stored at once, and the client is
answered when it is on disk. What could not be stored is stored with the next tick.

One that has *parted* lives at another broker by now, which may not know all that was dealt with
here. So that is kept, in memory and on disk, until its home has it on its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from stentor.errors import Overloaded, StentorError
from stentor.node.agenda import Agenda, Persist
from stentor.node.allowance import Shares
from stentor.node.durable import Durable
from stentor.node.interest import Interest
from stentor.node.last_values import owned
from stentor.node.session import Session
from stentor.node.sessions import Sessions
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.protocol import messages as m

#: How many that have changed are stored in one turn, and bytes of their states.
STORED: Final = 500
STORED_BYTES: Final = 2**19

#: Hears that something is on disk, or why it could not be stored.
Hear: TypeAlias = Callable[[StentorError | None], None]


class Durables:
    """Durable subscriptions by their names."""

    def __init__(
        self, subscriptions: Subscriptions, *, sessions: Sessions, agenda: Agenda, shares: Shares
    ) -> None:
        """`shares` is how many are kept."""
        self.held: dict[str, Durable] = {}
        self.parted: dict[str, Durable] = {}
        self._sessions = sessions
        self._agenda = agenda
        self.shares = shares
        self._attached: set[str] = set()
        self._changed: Turns[str] = Turns()
        self._has_more = False
        self._at_change: list[Callable[[str], None]] = []
        #: Those whose state is on its way in another transaction, and who is to hear of it then.
        self._on_hold: dict[str, list[Hear]] = {}
        #: Those that could not be stored.
        self._unstored: set[str] = set()
        subscriptions.at_end(self._forget)

    def at_change(self, hear: Callable[[str], None]) -> None:
        """Call this with the name whenever what is kept of one has changed."""
        self._at_change.append(hear)

    def restore(self, stored: dict[str, bytes]) -> None:
        """Take up what was stored."""
        for name, data in stored.items():
            durable = self.held[name] = Durable.from_data(name, data)
            durable.stored = True

    def adopt(self, stored: dict[str, bytes]) -> dict[str, bytes | None]:
        """Take over those of a broker that was removed; what is to be stored."""
        news: dict[str, bytes | None] = {}
        for name, data in stored.items():
            theirs = Durable.from_data(name, data)
            ours = self.held.get(name)
            if ours is not None and not ours.belongs_to(theirs.owner):
                # The same name for something else, from before names belonged to grants.
                theirs.name = owned(theirs.owner, name)
                ours = self.held.get(theirs.name)
            if ours is None:
                ours = self.held[theirs.name] = theirs
            else:
                ours.merge(theirs)
            news[ours.name] = ours.to_data()
        return news

    def new(
        self,
        session: Session,
        name: str,
        interest: Interest,
        since: float,
        *,
        group: bool = False,
    ) -> Durable:
        """One that begins; it is not held before somebody is `attached`."""
        counts = Counter(durable.owner for durable in self.held.values())
        session.allowance.check("durables", counts[session.owner])
        if not self.shares.has_room(session.owner, counts):
            raise Overloaded(
                f"{len(self.held)} durable subscriptions are kept, the most that this broker "
                "allows; forget some that nobody needs, or raise limits.durables"
            )
        return Durable(name, interest, since=since, group=group, owner=session.owner)

    def attach(self, session: Session, durable: Durable, interest: Interest) -> None:
        """Somebody consumes it from now on, and asks for this."""
        durable.interest = interest
        durable.united = False
        durable.owner = session.owner or durable.owner
        self.held[durable.name] = durable
        self._attached.add(durable.name)

    def take(self, durable: Durable, hear: Hear | None = None) -> None:
        """One that has come from another broker is kept here from now on.

        It goes to disk before the word that it lives here.
        """
        self.held[durable.name] = durable
        self._persist(durable.name, durable, hear)
        self._tell(durable)

    def is_attached(self, durable: Durable) -> bool:
        """Whether somebody consumes this durable subscription now."""
        return durable.name in self._attached

    def _forget(self, subscription: Subscription) -> None:
        if subscription.durable is not None:
            self._attached.discard(subscription.durable.name)

    # -- to disk

    def changed(self, durable: Durable) -> None:
        """It is to be stored, at the end of this turn."""
        self._changed.add(durable.name)
        self._tell(durable)

    def _tell(self, durable: Durable) -> None:
        for hear in self._at_change:
            hear(durable.name)

    def delete(self, name: str) -> None:
        """Nobody will come back to it, or its home knows all that is known here."""
        self.held.pop(name, None)
        self.parted.pop(name, None)
        self._changed.add(name)

    def part(self, durable: Durable) -> None:
        """It lives elsewhere; what was dealt with here is kept until `delete`."""
        self.held.pop(durable.name, None)
        self.parted[durable.name] = durable

    def keeps(self, durable: Durable) -> bool:
        """Whether its state is on the disk of this broker, wherever it lives."""
        return durable in (self.held.get(durable.name), self.parted.get(durable.name))

    def store(self, durable: Durable, hear: Hear) -> None:
        """Store it, and have that heard when it is done."""
        if durable.name in self._on_hold:
            self._on_hold[durable.name].append(hear)
            return
        self._changed.discard(durable.name)
        self._tell(durable)
        self._persist(durable.name, durable, hear)

    def answer(self, session: Session, answer: Any) -> Hear:
        """Who hears it gives a client this answer, or tells it why not."""
        return partial(self._answer, session, answer)

    def _answer(self, session: Session, answer: Any, error: StentorError | None) -> None:
        if session.id in self._sessions.held:
            if error is not None:
                answer = m.Failure(error.code, str(error), answer.number)
            self._agenda.to_client(session.id, answer)

    def _persist(self, name: str, durable: Durable | None, hear: Hear | None = None) -> int:
        """Store it, or delete what is stored; how many bytes that are."""
        data = None if durable is None else durable.to_data()
        self._agenda.add(Persist(name, data, partial(self._stored, name, durable, hear)))
        return len(data or b"")

    def _stored(
        self, name: str, durable: Durable | None, hear: Hear | None, error: StentorError | None
    ) -> None:
        if error is not None:
            self._unstored.add(name)
        elif durable is not None:
            durable.stored = True
        if hear is not None:
            hear(error)

    def hold(self, name: str) -> None:
        """Store no other state of it until `release`: the one that is on its way is newer."""
        self._on_hold.setdefault(name, [])

    def is_on_hold(self, name: str) -> bool:
        """Whether a state of it is on its way in another transaction."""
        return name in self._on_hold

    def release(self, name: str) -> None:
        """That state is on disk, or could not be stored."""
        waiting = self._on_hold.pop(name, [])
        self._changed.add(name)
        durable = self.held.get(name) or self.parted.get(name)
        for hear in waiting:
            if durable is None:
                hear(None)
            else:
                self.store(durable, hear)

    def take_back(self, subscription: Subscription) -> None:
        """Keep no position that its stream never had."""
        if subscription.take_back() and subscription.durable is not None:
            self.changed(subscription.durable)

    def settle(self) -> None:
        """Store what has changed; in one turn only some of it, if that is much."""
        stored = size = 0
        changed = self._changed.take()
        for place, name in enumerate(changed):
            if stored >= STORED or size >= STORED_BYTES:
                self._changed.update(dict.fromkeys(changed[place:]))
                self._has_more = True
                return
            if name in self._on_hold:
                self._changed.add(name)
                continue
            size += self._persist(name, self.held.get(name) or self.parted.get(name))
            stored += 1

    def tick(self) -> None:
        """Store again what could not be stored."""
        unstored, self._unstored = self._unstored, set()
        self._changed.update(dict.fromkeys(sorted(unstored)))

    @property
    def has_work(self) -> bool:
        """Whether there was more to store than goes into one turn."""
        return self._has_more

    def work(self) -> None:
        """The next turn stores more."""
        self._has_more = False
