"""All clients that are connected to one broker, and what has to happen when one goes.

A client may have had very many subscriptions and advertisements. They are taken down some at
a time, so that nobody else waits. The parts that keep them say once how (`taken_down_by`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stentor.node.session import Session
from stentor.node.turns import Turns

#: Subscriptions, and advertisements, of somebody who is gone that are taken down in one step.
TAKEN_DOWN: Final = 64


class Sessions:
    """Clients by the numbers of their connections."""

    def __init__(self) -> None:
        #: Look at it as you like; `begin` and `leave` change it.
        self.held: dict[int, Session] = {}
        #: Those whose connections are gone, but not everything that they had.
        self._leaving: Turns[int] = Turns()
        self._at_leave: list[Callable[[Session], None]] = []
        self._take_down: list[Callable[[Session, int], bool]] = []
        self._at_end: list[Callable[[Session], None]] = []

    def at_leave(self, forget: Callable[[Session], None]) -> None:
        """Call this as soon as the connection of a client is gone."""
        self._at_leave.append(forget)

    def taken_down_by(self, take_down: Callable[[Session, int], bool]) -> None:
        """Call this then to take down at most so many things, until it says that none is left."""
        self._take_down.append(take_down)

    def at_end(self, forget: Callable[[Session], None]) -> None:
        """Call this when nothing of the client is left."""
        self._at_end.append(forget)

    def is_leaving(self, id: int) -> bool:
        """Whether the connection of a client is gone, and not everything that it had."""
        return id in self._leaving

    @property
    def has_work(self) -> bool:
        """Whether there is something left to be taken down."""
        return bool(self._leaving)

    def begin(self, session: Session) -> None:
        self.held[session.id] = session

    def leave(self, id: int) -> None:
        """The connection of a client is gone."""
        session = self.held.get(id)
        if session is None or id in self._leaving:
            return
        for forget in self._at_leave:
            forget(session)
        self._leaving.add(id)
        self._go_on(session)

    def work(self) -> None:
        """Take down some more."""
        if self._leaving:
            self._go_on(self.held[next(iter(self._leaving))])

    def _go_on(self, session: Session) -> None:
        for take_down in self._take_down:
            if not take_down(session, TAKEN_DOWN):
                return
        del self.held[session.id], self._leaving[session.id]
        for forget in self._at_end:
            forget(session)
