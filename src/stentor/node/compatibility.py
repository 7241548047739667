"""SIENA's way to unsubscribe, on top of a node (R-08.23, R-07.64).

In Stentor a subscription has an id, and exactly that one is withdrawn. In SIENA a client names a
filter instead: `unsubscribe(f)` cancels every subscription of this client that `f` covers, and
`unadvertise(a)` every advertisement that `a` covers. Nothing is carved out of a broader one, so
unsubscribing with a narrower filter does nothing, and there is no id that would tell two equal
subscriptions apart: they form a set. Covering is SIENA's of either kind: more attributes make a
subscription narrower and an advertisement broader. Hence the empty filter cancels all
subscriptions, while no single advertisement cancels all others; that is what `unadvertise_all` is
for.

Of a client's subscriptions only the broadest are held (R-08.24). Nobody can tell. Let `s` be
covered by `t`, both subscribed. As long as `t` is there, `s` matches nothing that `t` does not
match. And `t` cannot go before `s`: what cancels `t` covers `t`, hence `s`, and cancels both. So a
subscription that is covered when it comes is not taken up, and a new one replaces those that it
covers; it is announced before they are withdrawn, so that nothing is missed in between.

A client that is served so joins and leaves here, and uses ids for nothing; all the rest, such as
publishing, is the node's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stentor.errors import UnknownClient
from stentor.filters import Filter
from stentor.filters.siena import SienaAdvertisement
from stentor.matching import FilterTable
from stentor.node.node import Node
from stentor.routing.protocol import ClientId, FilterId, Outputs


@dataclass
class _Held:
    """What is kept of one client: filters no two of which cover each other, and a set."""

    subscriptions: FilterTable[FilterId] = field(default_factory=FilterTable)
    advertisements: dict[SienaAdvertisement, FilterId] = field(default_factory=dict)


class SienaNode:
    """A node whose clients subscribe and unsubscribe by filter.

    >>> from stentor.routing import tree_router
    >>> siena = SienaNode(Node(tree_router("here")))
    >>> siena.join("ann")
    >>> for text in ("x > 5", "x > 0", "y = 1"):
    ...     _ = siena.subscribe("ann", Filter(text))
    >>> _ = siena.unsubscribe("ann", Filter("x > 0"))
    >>> siena.subscriptions("ann")
    [Filter('y = 1')]
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self._clients: dict[ClientId, _Held] = {}

    def join(self, client: ClientId, *, epoch: int = 0) -> None:
        """Serve a client; see `Node.join`."""
        self.node.join(client, epoch=epoch)
        self._clients.setdefault(client, _Held())

    def leave(self, client: ClientId) -> Outputs:
        """Withdraw all that the client subscribed and advertised, and forget it."""
        outputs = self.node.leave(client)
        self._clients.pop(client, None)
        return outputs

    def subscriptions(self, client: ClientId) -> list[Filter]:
        """The broadest filters that the client subscribed to, in the order they came."""
        return list(self.node.subscriptions(client).values())

    def advertisements(self, client: ClientId) -> list[SienaAdvertisement]:
        return list(self._client(client).advertisements)

    def _client(self, client: ClientId) -> _Held:
        try:
            return self._clients[client]
        except KeyError:
            raise UnknownClient(
                f"broker {self.node.id!r} serves no client {client!r} SIENA's way; "
                "let it join here first"
            ) from None

    # -- subscriptions

    def subscribe(self, client: ClientId, filter: Filter) -> Outputs:
        """The client wants what the filter matches."""
        held = self._client(client).subscriptions
        if filter.is_never or held.coverers(filter):
            return []
        id, outputs = self.node.subscribe(client, filter)
        outputs += self._cancel(client, held, filter)
        held.add(id, filter)
        return outputs

    def unsubscribe(self, client: ClientId, filter: Filter) -> Outputs:
        """Cancel every subscription of the client that the filter covers; there may be none."""
        known = self._clients.get(client)
        return [] if known is None else self._cancel(client, known.subscriptions, filter)

    def _cancel(self, client: ClientId, held: FilterTable[FilterId], filter: Filter) -> Outputs:
        outputs: Outputs = []
        for id in sorted(held.covered(filter)):
            held.remove(id)
            outputs += self.node.unsubscribe(client, id)
        return outputs

    # -- advertisements

    def advertise(self, client: ClientId, advertisement: SienaAdvertisement) -> Outputs:
        """The client intends to publish what is advertised."""
        held = self._client(client).advertisements
        if advertisement in held:
            return []
        held[advertisement], outputs = self.node.advertise(client, advertisement.filter)
        return outputs

    def unadvertise(self, client: ClientId, advertisement: SienaAdvertisement) -> Outputs:
        """Cancel every advertisement of the client that this one covers; there may be none."""
        known = self._clients.get(client)
        if known is None:
            return []
        return self._retract(client, [a for a in known.advertisements if advertisement.covers(a)])

    def unadvertise_all(self, client: ClientId) -> Outputs:
        """Cancel all advertisements of the client, which no advertisement could cover in one."""
        known = self._clients.get(client)
        return [] if known is None else self._retract(client, list(known.advertisements))

    def _retract(self, client: ClientId, gone: list[SienaAdvertisement]) -> Outputs:
        held = self._clients[client].advertisements
        outputs: Outputs = []
        for advertisement in gone:
            outputs += self.node.unadvertise(client, held.pop(advertisement))
        return outputs
