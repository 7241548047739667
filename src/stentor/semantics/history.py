"""The part of a trace that liveness and the orders are about.

That is, each notification's first publication, and the first delivery of it to each component that
came after. What is left out is at fault by itself and reported by the oracle.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from stentor.model import NotificationId
from stentor.semantics.actions import Action, Notify, Pub

History: TypeAlias = list[tuple[int, Pub | Notify]]


def history_of(trace: Iterable[Action]) -> History:
    """Positions and actions of a trace, in order.

    >>> from stentor.model import Notification
    >>> n = Notification({"x": 2}, id=NotificationId("a", 0, 0))
    >>> trace = [Notify("b", n), Pub("a", n), Notify("b", n), Notify("b", n)]
    >>> [position for position, _ in history_of(trace)]
    [1, 2]
    """
    return numbered_history(enumerate(trace))


def numbered_history(actions: Iterable[tuple[int, Action]]) -> History:
    """The same of actions that have their positions."""
    receivers: dict[NotificationId, set[str]] = {}
    history: History = []
    for position, action in actions:
        if isinstance(action, Notify):
            received = receivers.get(action.id)
            if received is not None and action.component not in received:
                received.add(action.component)
                history.append((position, action))
        elif isinstance(action, Pub) and action.id not in receivers:
            receivers[action.id] = set()
            history.append((position, action))
    return history
