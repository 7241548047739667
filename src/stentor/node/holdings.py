"""Holdings: which event types a broker's journals hold, as keys of `stentor.routing.rendezvous`.

What is published is looked at before it is written, so that others know of a type before there is
anything of it. What a journal held when the broker began is looked through afterwards, a piece at
a time, from the beginning on to its end. So of each key an offset is known up to which the own
stream holds nothing under it (`before`), and of each stream one up to which it holds nothing under
any key that is not known (`through`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stentor.errors import JournalDamaged
from stentor.model.codec import Envelope, decode_headers
from stentor.node.journals import Journals
from stentor.node.log import Log
from stentor.protocol.messages import Positions, StreamId
from stentor.routing.rendezvous.keys import held

#: Entries of a journal, and last values, that are looked at in one step.
AT_ONCE: Final = 1_000


@dataclass(slots=True)
class _Look:
    """How far a journal has been looked through."""

    log: Log
    through: int = 0
    #: The last key of its last values that was looked at; None if that is over.
    key: str | None = ""


class Holdings:
    """The types in the journals of one broker."""

    def __init__(self, journals: Journals) -> None:
        self._journals = journals
        self._before: dict[str, int] = {}
        #: Types whose keys are known.
        self._noted: dict[str, frozenset[str]] = {}
        self._looks: deque[_Look] = deque()
        self.adopt(journals.own)

    def adopt(self, log: Log) -> None:
        """Look through a journal that the broker answers for."""
        self._looks.append(_Look(log))

    @property
    def stream(self) -> StreamId:
        """The own stream."""
        return self._journals.stream

    def before(self, key: str) -> int:
        """Up to where the own stream holds nothing under this key."""
        return self._before.get(key, self.through()[self.stream])

    def through(self) -> Positions:
        """Up to where each stream holds nothing but under the keys that are known."""
        heads = self._journals.heads()
        for look in self._looks:
            heads[look.log.stream] = min(look.through, heads[look.log.stream])
        return heads

    def note(self, envelopes: Iterable[Envelope]) -> list[str]:
        """These are about to be written, or are: the keys that are new."""
        found: list[str] = []
        for type in {envelope.type for envelope in envelopes}:
            if type is not None and self._noted.get(type) is not (keys := held(type)):
                self._noted[type] = keys
                new = [key for key in keys if key not in self._before]
                self._before |= {key: self.before(key) for key in new}
                found += new
        return found

    @property
    def has_work(self) -> bool:
        """Whether a journal is still to be looked through."""
        return bool(self._looks)

    def work(self) -> list[str]:
        """Look at some of it: the keys that are new."""
        if not self._looks:
            return []
        look = self._looks[0]
        log = look.log
        if look.key is not None:  # these may be older than all that the journal still holds
            values = log.last_values(look.key, AT_ONCE)
            look.key = values[-1].key if values else None
            return self.note(decode_headers([value.data for value in values]))
        first = max(look.through + 1, log.low)
        if first > log.head:
            self._looks.popleft()
            return []
        look.through = first - 1
        try:
            items = log.read(first, AT_ONCE)
        except JournalDamaged as error:
            look.through = getattr(error, "last", 0) or log.head
            return []
        found = self.note(decode_headers(items))
        look.through = first - 1 + len(items)
        return found
