"""Routing: where filters and notifications go, as state machines without input or output."""

from stentor.routing.protocol import (
    Arm,
    BrokerId,
    ClientId,
    Deliver,
    FilterId,
    Message,
    Output,
    Outputs,
    Router,
    Send,
    TableSize,
)
from stentor.routing.strategy import STRATEGIES, Strategy
from stentor.routing.tree import Role, TreeRouter


def tree_router(
    id: BrokerId,
    routing: str | Strategy = "covering",
    advertisements: str | Strategy | None = None,
    *,
    coupled: bool = True,
    at_once: int | None = None,
) -> TreeRouter:
    """A router for a broker of an acyclic overlay.

    Advertisements that are not `coupled` are known everywhere, but nobody depends on them.

    >>> tree_router("here", routing="merging").id
    'here'
    """
    return TreeRouter(
        id,
        Strategy.of(routing),
        None if advertisements is None else Strategy.of(advertisements),
        coupled=coupled,
        at_once=at_once,
    )


__all__ = [
    "STRATEGIES",
    "Arm",
    "BrokerId",
    "ClientId",
    "Deliver",
    "FilterId",
    "Message",
    "Output",
    "Outputs",
    "Role",
    "Router",
    "Send",
    "Strategy",
    "TableSize",
    "TreeRouter",
    "tree_router",
]
