"""What the supertypes of one event type want of it, as far as the root of the type knows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from stentor.matching import Index
from stentor.model.notification import Notification
from stentor.routing.protocol import BrokerId
from stentor.routing.rendezvous.ring_messages import Entry


class Interests:
    """For each supertype whose root has told it: that root, and the filters."""

    def __init__(self) -> None:
        self._roots: dict[str, BrokerId] = {}
        self._keys: dict[str, dict[Hashable, None]] = {}
        self._index: Index[tuple[str, Hashable]] = Index(background=False)

    @property
    def roots(self) -> Mapping[str, BrokerId]:
        """Who told, for each supertype."""
        return self._roots

    def known(self, supertype: str) -> BrokerId | None:
        """Who told what the supertype wants; None if nobody did."""
        return self._roots.get(supertype)

    def learn(self, supertype: str, root: BrokerId, entries: Iterable[Entry]) -> None:
        """All that the supertype wants."""
        self._clear(supertype)
        self._roots[supertype] = root
        self._keys[supertype] = {}
        self.change(supertype, entries, ())

    def change(self, supertype: str, added: Iterable[Entry], removed: Iterable[Entry]) -> None:
        keys = self._keys[supertype]
        for entry in added:
            keys[entry.key] = None
            self._index.add((supertype, entry.key), entry.filter)
        for entry in removed:
            del keys[entry.key]
            self._index.remove((supertype, entry.key))

    def forget(self, supertype: str, root: BrokerId) -> None:
        """What this root told is no longer true."""
        if self._roots.get(supertype) == root:
            self._clear(supertype)

    def _clear(self, supertype: str) -> None:
        self._roots.pop(supertype, None)
        for key in self._keys.pop(supertype, ()):
            self._index.remove((supertype, key))

    def wanting(self, notification: Notification) -> set[str]:
        """The supertypes that want the notification."""
        return {supertype for supertype, _ in self._index.match(notification)}

    def __len__(self) -> int:
        return len(self._index)
