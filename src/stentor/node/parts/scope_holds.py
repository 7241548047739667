"""Holds of scopes: what a policy holds back until something else is said, at whatever broker.

What is held waits on the schedule of the broker where it entered, without a time: on disk, within
the same limits as all that is delivered later. What sets it free, or ends it, is decided where that
enters; the broker there publishes a *word* of it as one more version, in the same transaction,
which only brokers can see. Each broker under a graph in which something may be held has
a subscription of its own to these words. So they come as notifications do: none is lost, whatever
is cut or killed meanwhile, and each in the order of its stream.

*What a word is for.* What was held before it, and nothing that came later. Publications that are
held, and words, are numbered at each broker as they are decided there. What is held knows its own
number, and which words of other brokers had been heard by then. So a word that is heard again after
a restart does what it did before, and nothing else: it was heard before those that it leaves alone,
or was decided before them at the same broker. That makes one transaction of word and
notifications needless.

After a restart, words are read in the journals from the time on at which the oldest of what is held
began to wait; and once more by a broker that takes over what another one has held.

Clients that publish wait until the subscription is in force, as they do for members to be known
(`stentor.node.parts.rosters`): so nothing is held before the words that it waits for find the way.
If the policy is gone, nobody would say a word any more, and what it has held goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from stentor.model import Notification
from stentor.model.stamp import is_stamped, split
from stentor.node.clock import Clock
from stentor.node.journals import Journals
from stentor.node.schedule import NEVER, Schedule, Scheduled
from stentor.node.scopes import Scopes
from stentor.node.words import Words
from stentor.scopes.entry import PER_SECOND
from stentor.scopes.places import Waiting, waits
from stentor.scopes.policies import Hold

#: What is read in one step after a restart, and seconds by which clocks may be apart.
AT_ONCE: Final = 1_000
APART: Final = 60.0


class ScopeHolds:
    """Knows what is held here, and lets go of it."""

    def __init__(
        self,
        scopes: Scopes,
        schedule: Schedule,
        *,
        words: Words,
        journals: Journals,
        clock: Clock,
    ) -> None:
        self._scopes = scopes
        self._schedule = schedule
        self._words = words
        self._journals = journals
        self._clock = clock
        words.hear = self._heard
        #: What was on disk when the broker was started, as far as it was not read.
        self._unread: list[str] = []
        self._since: float | None = None

    def restore(self, scheduled: Iterable[Scheduled]) -> None:
        """Some of these are held."""
        self._unread += [entry.id for entry in scheduled if entry.due >= NEVER]

    # -- hearing words

    def look(self) -> None:
        """Begin to listen, when it is known from when on."""
        if self._unread:
            self._read()
            if not self._unread:
                # A broker that was removed has left this here: hear again what it had not heard.
                self._words.end()
        elif self._is_needed:
            for _ in self._words.begin(self._since):
                pass

    @property
    def _is_needed(self) -> bool:
        return self._scopes.entry.holds or bool(self._scopes.held)

    def _read(self) -> None:
        ids, self._unread = self._unread[:AT_ONCE], self._unread[AT_ONCE:]
        found = self._journals.own.delayed(ids)
        known = []
        for id in ids:
            data = found.get(id)
            if data is not None and is_stamped(data) and waits(split(data)[0]):
                known.append((Waiting.of(split(data)[0]), id))
        for waiting, id in sorted(known, key=lambda each: each[0].number):
            self._scopes.hold(id, waiting)
            since = waiting.number / PER_SECOND - APART
            self._since = since if self._since is None else min(since, self._since)

    def _heard(self, word: Notification) -> None:
        if "key" in word:
            stream, number = word["stream"], word["number"]
            self._let_go(word["key"], stream, number, goes_on=word["goes_on"])
            self._scopes.entry.heard(stream, number)

    # -- letting go

    def _let_go(self, key: str, stream: str, number: int, *, goes_on: bool) -> None:
        """What was held before this word was said goes on, or is dropped."""
        held = self._scopes.held.get(key, {})
        for id, waiting in list(held.items()):
            known = waiting.number if stream == waiting.stream else waiting.heard.get(stream, 0)
            if known < number:
                del held[id]
                self._schedule.let_go(id, self._clock.time, dropped=not goes_on)
        if not held:
            self._scopes.held.pop(key, None)

    def scopes_moved(self) -> Iterator[None]:
        """The graph has changed: listen, and let go of what nobody holds any more."""
        if self._is_needed and not self._unread:
            yield from self._words.begin(self._since)
        graph = self._scopes.entry.graph
        for key in list(self._scopes.held):
            node = graph.nodes.get(key.partition("\0")[0])
            policies = () if node is None else node.policies.values()
            if not any(isinstance(each, Hold) for each in policies):
                for id in self._scopes.held.pop(key):
                    self._schedule.let_go(id, self._clock.time)
            yield
