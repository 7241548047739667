"""Turns: those for whom something is to be done, each once, the first to come first."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class Turns(dict[T, None]):
    """An ordered set. In hot loops, `turns[id] = None` adds one.

    >>> turns = Turns[str]()
    >>> turns.add("b"), turns.add("a"), turns.add("b")
    (None, None, None)
    >>> turns.next(), turns.take()
    ('b', ['a'])
    """

    __slots__ = ()

    def add(self, who: T) -> None:
        self[who] = None

    def discard(self, who: T) -> None:
        self.pop(who, None)

    def next(self) -> T:
        """The one whose turn it is; it is no longer waiting."""
        who = next(iter(self))
        del self[who]
        return who

    def take(self) -> list[T]:
        """All of them, in order; nobody is waiting any more."""
        if not self:
            return []
        found = list(self)
        self.clear()
        return found
