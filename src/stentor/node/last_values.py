"""Last values: under a key, the notification that was published last (R-07.49).

A last value belongs to the grant of its publisher. Two grants may use the same key, and each has a
value under it: otherwise whoever may publish anything at all could take away the last value of
everybody else, by publishing under their keys. So the journal and other brokers know a key together
with its owner; without grants there is none. Of several values under one key the newest is the last
to be delivered.
"""

from __future__ import annotations

from typing import Final

#: Between owner and key; owners hold no such character.
OF: Final = "\x1f"


def owned(owner: str | None, key: str) -> str:
    """The key of one owner.

    >>> owned("feed", "IBM"), owned(None, "IBM")
    ('feed\\x1fIBM', 'IBM')
    """
    return key if owner is None else f"{owner}{OF}{key}"


def label(key: str) -> str:
    """What the owner calls it."""
    return key.rpartition(OF)[2]


def owner_of(key: str) -> str:
    """The owner in the key that `owned` made; the empty text without one."""
    return key.partition(OF)[0] if OF in key else ""


class Collection:
    """Last values that are being collected for a new subscription."""

    def __init__(self, waiting: set[str], deadline: float) -> None:
        #: Streams that have not answered, and when they are not waited for any longer.
        self.waiting = waiting
        self.deadline = deadline
        self._newest: dict[str, tuple[float, bytes]] = {}

    def put(self, key: str, time: float, data: bytes) -> None:
        """A value that some journal has; the newest of a key counts."""
        if key not in self._newest or time > self._newest[key][0]:
            self._newest[key] = time, data

    def in_order(self) -> list[bytes]:
        """The values, newest last."""
        return [data for _, data in sorted(self._newest.values())]
