"""Is the routing of a tree valid? The levels R-03.13 to R-03.15 as checks at run time.

All of them compare sets of notifications. A set N(F) is infinite, so they are compared on a finite
domain that the caller gives: what matters for the filters in use is enough.

  - The *local invariant*: a broker's entries for a client match exactly what the client
    subscribed to.
  - The *remote invariant*, after each step and with messages still on their way: what broker i must
    ask for at its neighbor j (α) is asked for by what j holds for i, as it will be when all
    messages from i to j have arrived (β). Under an exact strategy both are equal.
  - *Monotone valid*, when nothing is on its way: along every link, j's entries for i match all that
    i must ask for. So the set that is let through only grows on the way from a subscriber.
  - *Valid*, when nothing is on its way: whatever a client subscribed to finds a way from every
    broker to the client's.

The local and the remote invariant imply monotone valid, which implies valid, which implies that the
service is correct (theorems 4.1 and 4.2 of the book). Brokers in the middle of a planned change
hold two planes and are judged by neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stentor.filters import Filter
from stentor.model import Notification
from stentor.routing.messages import SubscriptionUpdate
from stentor.routing.protocol import BrokerId, ClientId, Message
from stentor.routing.table import Local, Neighbor
from stentor.routing.tree import TreeRouter

Domain = Sequence[Mapping[str, Any]]
OnTheWay = Callable[[BrokerId, BrokerId], Iterable[Message]]


class Breach(NamedTuple):
    """A condition that does not hold, with a notification that shows it."""

    condition: str
    where: str
    notification: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.condition} does not hold {self.where}: see {dict(self.notification)}"


def local_invariant(
    router: TreeRouter, subscriptions: Mapping[ClientId, Iterable[Filter]], domain: Domain
) -> list[Breach]:
    """N(at(Y)) = N(S_Y) for each client of the broker.

    >>> from stentor.routing import FilterId, tree_router
    >>> router, wanted = tree_router(1), Filter("x > 1")
    >>> local_invariant(router, {"ann": [wanted]}, [{"x": 2}])[0].notification
    {'x': 2}
    >>> _ = router.subscribe(FilterId("ann", 1), wanted)
    >>> local_invariant(router, {"ann": [wanted]}, [{"x": 2}])
    []
    """
    table = router.plane.subscriptions.table
    found: list[Breach] = []
    for client, wanted in subscriptions.items():
        held = table.at(Local(client)).values()
        where = f"for the client {client!r} at {router.id!r}"
        found += _differences("the local invariant", where, list(wanted), held, domain, exact=True)
    return found


def remote_invariant(
    sender: TreeRouter, receiver: TreeRouter, on_the_way: OnTheWay, domain: Domain
) -> list[Breach]:
    """N(β) ⊇ N(α) for one direction of a link, with equality under an exact strategy."""
    wanted = sender.plane.subscriptions.wanted(receiver.id)
    held = dict(receiver.plane.subscriptions.asked(Neighbor(sender.id)))
    for message in on_the_way(sender.id, receiver.id):
        if isinstance(message, SubscriptionUpdate):
            held.update(message.added)
            for key in message.removed:
                held.pop(key, None)
    where = f"from {sender.id!r} to {receiver.id!r}"
    exact = sender.plane.subscriptions.strategy.is_exact
    return _differences("the remote invariant", where, wanted, held.values(), domain, exact=exact)


def monotone_valid(routers: Mapping[BrokerId, TreeRouter], domain: Domain) -> list[Breach]:
    """Every link lets through what must be asked for over it. Nothing may be on its way."""
    found: list[Breach] = []
    for i, router in routers.items():
        for j in sorted(router.neighbors, key=str):
            wanted = router.plane.subscriptions.wanted(j)
            held = routers[j].plane.subscriptions.table.at(Neighbor(i)).values()
            where = f"from {i!r} to {j!r}"
            found += _differences("monotone validity", where, wanted, held, domain, exact=False)
    return found


def valid(
    routers: Mapping[BrokerId, TreeRouter],
    subscriptions: Mapping[ClientId, tuple[BrokerId, Iterable[Filter]]],
    domain: Domain,
) -> list[Breach]:
    """What each client subscribed to finds a way to it. Nothing may be on its way.

    `subscriptions` says for each client where it is and what it wants.
    """
    found: list[Breach] = []
    for client, (home, wanted) in subscriptions.items():
        filters = list(wanted)
        for notification in domain:
            if any(filter.matches(notification) for filter in filters):
                reached = _with_a_way(routers, home, notification)
                for broker in routers:
                    if broker not in reached:
                        where = f"from {broker!r} to the client {client!r} at {home!r}"
                        found.append(Breach("validity", where, notification))
    return found


def _with_a_way(
    routers: Mapping[BrokerId, TreeRouter], home: BrokerId, notification: Mapping[str, Any]
) -> set[BrokerId]:
    """The brokers from which the notification gets to this one."""
    reached, todo = {home}, [home]
    while todo:
        towards = todo.pop()
        for broker in routers[towards].neighbors - reached:
            if leads(routers[broker], towards, notification):
                reached.add(broker)
                todo.append(broker)
    return reached


def leads(router: TreeRouter, neighbor: BrokerId, notification: Mapping[str, Any]) -> bool:
    """Whether the broker sends the notification to this neighbor, wherever it comes from."""
    return Neighbor(neighbor) in router.route([Notification(notification)], None)


def _differences(
    condition: str,
    where: str,
    wanted: Sequence[Filter],
    held: Iterable[Filter],
    domain: Domain,
    *,
    exact: bool,
) -> list[Breach]:
    kept = list(held)
    found: list[Breach] = []
    for notification in domain:
        asked = any(filter.matches(notification) for filter in wanted)
        let_through = any(filter.matches(notification) for filter in kept)
        if asked and not let_through:
            found.append(Breach(condition, where, notification))
        elif exact and let_through and not asked:
            found.append(Breach(f"exactness of {condition}", where, notification))
    return found
