"""Pauses: publishers whose next publications have to wait, and what they have sent meanwhile.

A client waits until what it has advertised is in force, once for each such advertisement, and while
its grant publishes too fast. The frames that it sends meanwhile are kept in order, as many as its
window allows. When it may go on they are taken up in turn, a step at a time. A frame that is being
taken stops as well, but for who is too fast: that one finishes it, and only the next one waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from stentor.node.allowance import Pace
from stentor.node.clock import Clock
from stentor.node.session import Session
from stentor.node.sessions import Sessions
from stentor.node.turns import Turns
from stentor.protocol import messages as m

#: What a client has sent, and the entry of its request.
Frame: TypeAlias = tuple[m.Publish, list[int]]

_DONE: Final = object()


class Pauses:
    """Clients whose publications wait."""

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock
        #: For how many things each waits, and its frames in order.
        self._reasons: dict[int, int] = {}
        self._frames: dict[int, deque[Frame]] = {}
        #: Those who need not wait any more, and what is left of the frame of one.
        self.released: Turns[int] = Turns()
        self._rests: dict[int, Iterator[None]] = {}
        #: How fast grants publish that have a rate, and clients that wait since that was too fast.
        self._paces: dict[str | None, Pace] = {}
        self._paced: dict[int, Pace] = {}
        sessions.at_leave(self._left)

    def _left(self, session: Session) -> None:
        if session.id in self._frames:  # as is everybody who waits
            for kept in (self._reasons, self._frames, self.released, self._rests, self._paced):
                kept.pop(session.id, None)

    # -- why

    def hold(self, session: Session) -> None:
        """Let what this client publishes wait, until `release` was called as often as this."""
        self._reasons[session.id] = self._reasons.get(session.id, 0) + 1
        self._frames.setdefault(session.id, deque())
        self.released.discard(session.id)

    def release(self, session: Session) -> None:
        """What it waits for is in force; one of them."""
        if session.id in self._reasons:
            self._reasons[session.id] -= 1
            if not self._reasons[session.id]:
                del self._reasons[session.id]
                self.released.add(session.id)

    def charge(self, session: Session, count: int) -> None:
        """So much is published by a grant; if that is too fast, the client's next has to wait."""
        rate = session.allowance.rate
        if rate is None:
            return
        now = self._clock.now
        pace = self._paces.setdefault(session.owner, Pace(rate, now))
        pace.go(count, now)
        if pace.is_ahead(now):
            self._paced[session.id] = pace
            self.hold(session)

    def rebound(self) -> None:
        """From now on grants may have other paces."""
        self._paces.clear()
        for id in self._paced:
            self._paced[id] = Pace(1.0, self._clock.now)  # it may go on, and is measured anew

    def tick(self) -> None:
        """Who was too fast may go on when time has passed."""
        for id, pace in list(self._paced.items()):
            if not pace.is_ahead(self._clock.now):
                del self._paced[id]
                self.release(self._sessions.held[id])

    # -- what waits

    def keeps(self, session: Session, frame: Frame) -> bool:
        """Keep the frame if it has to wait."""
        frames = self._frames.get(session.id)
        if frames is not None:
            frames.append(frame)
        return frames is not None

    def passed(self, session: Session, steps: Iterator[None]) -> Iterator[None]:
        """The steps of a frame, up to where the client has to wait; `go_on` has the others."""
        while self._reasons.get(session.id, 0) == (session.id in self._paced):
            if next(steps, _DONE) is _DONE:
                return
            yield
        self._rests[session.id] = steps

    def go_on(self, take: Callable[[Session, m.Publish, list[int]], Iterator[None]]) -> None:
        """A step for one who had to wait; `take` gives the steps of a frame."""
        if not self.released:
            return
        id = next(iter(self.released))
        steps = self._rests.pop(id, None)
        if steps is None and self._frames[id]:
            session, frame = self._sessions.held[id], self._frames[id].popleft()
            self.charge(session, len(frame[0].items))
            steps = take(session, *frame)
        if steps is None:
            del self._frames[id], self.released[id]
        elif next(steps, _DONE) is not _DONE:
            self._rests[id] = steps
