"""Names of listeners within this process: `inproc:name`.

Two ends of a connection within one process are a pair of sockets, so that they behave like any
other: they may be on different event loops in different threads, and a slow reader holds up its
writer. What is kept here is only who takes the second socket.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from stentor.errors import InvalidAddress, Unreachable

#: Takes the listener's end of a new connection. Called from any thread.
Accept = Callable[[socket.socket], None]

_listeners: dict[str, Accept] = {}
_lock = threading.Lock()


def register(name: str, accept: Accept) -> None:
    """Listen under the name; `InvalidAddress` if somebody does."""
    with _lock:
        if name in _listeners:
            raise InvalidAddress(
                f"cannot listen at inproc:{name}: it is in use in this process; "
                "close the other listener or choose another name"
            )
        _listeners[name] = accept


def unregister(name: str) -> None:
    """No longer do so."""
    with _lock:
        _listeners.pop(name, None)


def dial(name: str) -> socket.socket:
    """A socket whose other end the listener has; `Unreachable` if nobody listens."""
    with _lock:
        accept = _listeners.get(name)
    if accept is None:
        raise Unreachable(
            f"inproc:{name} cannot be reached: nobody listens under that name in this process"
        )
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        theirs.setblocking(False)
        accept(theirs)
    except RuntimeError as error:  # its event loop has ended
        ours.close()
        theirs.close()
        raise Unreachable(
            f"inproc:{name} cannot be reached: the event loop of its listener has ended"
        ) from error
    return ours
