"""What live brokers of a rendezvous overlay say to each other, beside filters and link states."""

from __future__ import annotations

from typing import ClassVar

from stentor.routing.protocol import BrokerId, Kind, Message


class Holds(Message, frozen=True):
    """The sender has something under these keys, or no longer."""

    kind: ClassVar[Kind] = "advertisement"
    added: tuple[str, ...]
    removed: tuple[str, ...] = ()


class Watches(Message, frozen=True):
    """The sender wants to know who has something under these keys, or no longer."""

    kind: ClassVar[Kind] = "subscription"
    added: tuple[str, ...]
    removed: tuple[str, ...] = ()


class Sources(Message, frozen=True):
    """All brokers, but for the two that talk, that have something under each of these keys."""

    kind: ClassVar[Kind] = "advertisement"
    found: tuple[tuple[str, tuple[BrokerId, ...]], ...]
