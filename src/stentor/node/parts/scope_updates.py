"""Scopes that change themselves: UPDATE rules, carried out by the broker that orders changes.

What rules wait for is noticed where a publication enters (`stentor.scopes.happenings`), and said
there in a word to brokers, in the same transaction. The owner of the graph hears these words, one
after the other, and has the change made that follows of each, as an administrator would have: it is
ordered, stored and passed on like any other. So a session begins, and grows, while events flow; who
comes to be a member is given what is published after that.

*Once.* The words of each broker are numbered. With the change goes up to which numbers words have
been dealt with, in one record of the graph. So a broker that is started anew, or that takes over,
hears again what came since, and leaves out what was done. What a rule cannot do, because of what
the graph is by then, is told in the log, and nothing follows of it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from stentor.errors import StentorError
from stentor.model import Notification
from stentor.node.journals import Journals
from stentor.node.scopes import Scopes
from stentor.node.ways import Ways
from stentor.node.words import Words
from stentor.scopes.definition import HANDLED, Change, HandledData, Record
from stentor.scopes.entry import PER_SECOND
from stentor.scopes.happenings import Happened

_log: Final = logging.getLogger("stentor.scopes")

#: Words that wait; there are more only while rules ask for more than can be done.
MAX_WAITING: Final = 10_000
#: Seconds by which clocks may be apart.
APART: Final = 60.0

#: Has a change of the graph made, and says what has become of it.
Deploy = Callable[[Change, Callable[[StentorError | None], None]], None]


class ScopeUpdates:
    """Carries out what rules of scopes ask for, if this broker orders changes."""

    def __init__(
        self, scopes: Scopes, *, words: Words, journals: Journals, directory: Ways
    ) -> None:
        self._scopes = scopes
        self._words = words
        self._journals = journals
        self._directory = directory
        self._waiting: deque[Notification] = deque()
        self._busy = False
        #: Set by `Scoping`, which makes changes and asks whether there is something to do.
        self.deploy: Deploy = lambda change, then: None
        self.is_owner: Callable[[], bool] = lambda: False
        words.hear = self._heard

    def look(self) -> None:
        """Listen as long as there are rules, and this broker orders changes."""
        needed = bool(self._scopes.entry.watches) and self.is_owner()
        if needed and not self._words.is_heard:
            for _ in self._words.begin(self._since()):
                pass
        elif not needed and self._words.is_heard:
            self._words.end()
            self._waiting.clear()

    def _handled(self) -> dict[str, int]:
        record = self._scopes.entry.records.get(HANDLED)
        return record.numbers if isinstance(record, HandledData) else {}

    def _since(self) -> float | None:
        """From when on words may not have been dealt with."""
        numbers = self._handled()
        streams = (self._journals.stream, *(o.stream for o in self._directory.others))
        first = numbers.get("", 0)
        return min(numbers.get(stream, first) for stream in streams) / PER_SECOND - APART

    def _heard(self, word: Notification) -> None:
        if "key" in word:
            return  # it lets go of what is held
        if len(self._waiting) >= MAX_WAITING:
            _log.warning("rules of scopes cannot keep up with what happens: a reaction is left out")
            return
        self._waiting.append(word)

    @property
    def has_work(self) -> bool:
        return bool(self._waiting) and not self._busy

    def work(self) -> None:
        """Deal with one word."""
        if not self.has_work:
            return
        word, entry = self._waiting.popleft(), self._scopes.entry
        stream, number = word["stream"], word["number"]
        known = self._handled()
        if number <= known.get(stream, 0) or not self.is_owner():
            return
        change = _change(entry.records, Happened.of(word.payload))
        if change:
            change.put.append(HandledData({**known, stream: number}))
            self._busy = True
            self.deploy(change, self._made)

    def _made(self, error: StentorError | None) -> None:
        self._busy = False
        if error is not None:
            _log.warning("a rule of a scope changes nothing: %s", error)


def _change(records: dict[str, Record], happened: Happened) -> Change:
    # The language, with its parser, is needed by none but the broker that carries out rules.
    from stentor.scopes.language.reactions import reactions

    change, reports = reactions(records, happened)
    for each in reports:
        _log.warning("a rule of a scope changes nothing: %s", each)
    return change
