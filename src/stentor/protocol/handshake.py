"""How a connection begins and ends: who the two sides are, and whether they go together.

The side that connects says `Hello`, the other answers `Welcome`, and the connection is open. The
two go together if they share a version of the protocol and, between brokers, if both route on the
same terms. Whoever finds that they do not, or has reasons of its own, refuses: the side that was
called by `Failure`, the one that calls by `Goodbye`.

An open connection carries four more messages that are about itself. `Ping` is answered by `Pong`.
`Failure` without a number, and `Goodbye`, say that the other side is about to close it; `Goodbye`
may name brokers to turn to instead. Everything else is passed on to whoever uses the connection:

              Hello     Welcome   Failure    Goodbye   Ping     Pong      others
    calling   mistake   → open    → over     → over    `Pong`   nothing   mistake
    called    → open    mistake   mistake    mistake   mistake  mistake   mistake
    open      mistake   mistake   → over *   → over    `Pong`   nothing   passed on
    over      nothing   ...

    * Without a number; with one it answers a request, and is passed on.

A mistake is a `ProtocolError`, which costs the connection. Nothing here sends or waits: `hear`
returns what follows from a message, and who holds the connection does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from stentor.errors import (
    InvalidConfiguration,
    ProtocolError,
    ShuttingDown,
    StentorError,
    error_of,
)
from stentor.model.names import text_problem
from stentor.protocol.messages import (
    VERSIONS,
    AnyMessage,
    Failure,
    Goodbye,
    Hello,
    Origin,
    Ping,
    Pong,
    Welcome,
)

#: What those who connect can be.
ROLES: Final = ("client", "broker", "operator")
#: How a broker routes that says nothing about it.
DEFAULT_TERMS: Final = "a tree that announces filters"


class Left(NamedTuple):
    """The other side is about to close the connection."""

    reason: StentorError
    #: Brokers to turn to instead, if it said `Goodbye`.
    instead: list[str] | None


#: What follows from a message: `Hello` or `Welcome`, once, when the connection is open; `Pong` to
#: be sent; that the other side leaves; nothing; or the message itself, if it is about other things.
Heard: TypeAlias = AnyMessage | Left | None


def hello(
    role: str,
    name: str,
    token: str | None = None,
    *,
    stream: str = "",
    addresses: Sequence[str] = (),
    terms: str = "",
    below: bool = False,
    visits: bool = False,
    attributes: Mapping[str, Any] | None = None,
) -> Hello:
    """What the side that connects says; attributes are for clients, the others for brokers."""
    return Hello(
        list(VERSIONS),
        role,
        name,
        token,
        stream,
        list(addresses),
        terms,
        below,
        visits,
        dict(attributes or {}),
    )


class Handshake:
    """One side of a connection, and what it has learned of the other.

    >>> ours, theirs = Handshake("b1", hello("client", "ann")), Handshake("ann")
    >>> theirs.hear(ours.hello).name
    'ann'
    >>> ours.hear(Welcome(theirs.version, "b1", "b1#0")).broker
    'b1'
    >>> theirs.hear(Ping())
    Pong()
    >>> theirs.hear(Goodbye("that is all"))
    Left(reason=ShuttingDown('ann says goodbye: that is all'), instead=[])
    """

    __slots__ = ("_calls", "_other", "_state", "hello", "version", "welcome")

    hello: Hello
    #: Known to the side that calls.
    welcome: Welcome
    #: The best version that both sides speak.
    version: int

    def __init__(self, other: str, hello: Hello | None = None) -> None:
        """`other` is how errors call the other side; `hello` is what the side says that calls."""
        self._other = other
        self._calls = hello is not None
        self._state = _CALLED
        if hello is not None:
            self.hello = hello
            self._state = _CALLING

    def hear(self, message: AnyMessage) -> Heard:
        """What follows from a message of the other side."""
        state = self._state
        move = state.get(type(message))
        if move is not None:
            return move(self, message)
        if state is _OPEN:
            return message
        if state is _OVER:
            return None
        what = type(message).__name__
        if state is _CALLING:
            raise ProtocolError(f"{what} is not an answer to Hello")
        raise ProtocolError(f"the first message must be Hello, not {what}")

    def refuse(self, error: StentorError) -> Failure | Goodbye:
        """What to say if there shall be no connection."""
        self._state = _OVER
        return Goodbye(str(error)) if self._calls else Failure(error.code, str(error))

    def neighbor(self, terms: str, address: str | None = None) -> Origin:
        """The broker on the other side; raises if it cannot be a neighbor of one with these terms.

        `address` is where it is if it does not say.
        """
        said: Any = self.welcome if self._calls else self.hello
        name = said.broker if self._calls else said.name
        for what, text in (("name", name), ("stream", said.stream)):
            problem = text_problem(text)
            if problem is not None:
                raise ProtocolError(f"the {what} of the broker {problem}")
        theirs = said.terms or DEFAULT_TERMS
        if theirs != terms:
            raise InvalidConfiguration(
                f"{name!r} routes on {theirs}, this broker on {terms}; set `overlay`, `routing` "
                "and `advertisements` of both so that they go together"
            )
        addresses = said.addresses or ([] if address is None else [address])
        return Origin(said.stream, name, tuple(addresses))

    # -- moves

    def _introduced(self, hello: Hello) -> Heard:
        version = next((v for v in VERSIONS if v in hello.versions), None)
        if version is None:
            raise ProtocolError(
                f"this broker speaks versions {list(VERSIONS)} of the protocol, "
                f"not {hello.versions}"
            )
        if hello.role not in ROLES:
            raise ProtocolError(f"there is no role {hello.role!r}")
        self.hello, self.version, self._state = hello, version, _OPEN
        return hello

    def _welcomed(self, welcome: Welcome) -> Heard:
        offered = self.hello.versions
        if welcome.version not in offered:
            raise ProtocolError(
                f"the broker speaks version {welcome.version} of the protocol, and this "
                f"release {', '.join(map(str, offered))}; update the older one"
            )
        self.welcome, self.version, self._state = welcome, welcome.version, _OPEN
        return welcome

    def _failed(self, failure: Failure) -> Heard:
        if failure.number is not None and self._state is _OPEN:
            return failure  # the answer to a request
        self._state = _OVER
        return Left(error_of(failure.code, failure.message), None)

    def _dismissed(self, goodbye: Goodbye) -> Heard:
        self._state = _OVER
        text = f": {goodbye.reason}" if goodbye.reason else ""
        return Left(ShuttingDown(f"{self._other} says goodbye{text}"), goodbye.instead)

    def _repeated(self, message: Hello | Welcome) -> Heard:
        raise ProtocolError(f"{type(message).__name__} comes once, at the beginning")


def _pong(*_: Any) -> Heard:
    return Pong()


def _nothing(*_: Any) -> Heard:
    return None


_Moves: TypeAlias = dict[type, Callable[[Handshake, Any], Heard]]
_ANY_TIME: Final[_Moves] = {
    Failure: Handshake._failed,
    Goodbye: Handshake._dismissed,
    Ping: _pong,
    Pong: _nothing,
}
#: The states: each is its row of the table above, without the last column.
_CALLING: Final[_Moves] = {Welcome: Handshake._welcomed, **_ANY_TIME}
_CALLED: Final[_Moves] = {Hello: Handshake._introduced}
_OPEN: Final[_Moves] = {Hello: Handshake._repeated, Welcome: Handshake._repeated, **_ANY_TIME}
_OVER: Final[_Moves] = {}
