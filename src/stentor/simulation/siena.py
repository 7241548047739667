"""SIENA's way to unsubscribe, for a client (R-08.23, R-07.64).

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
"""

from __future__ import annotations

from stentor.filters import Filter
from stentor.filters.siena import SienaAdvertisement
from stentor.matching import FilterTable
from stentor.routing.protocol import FilterId
from stentor.simulation.client import Client


class SienaClient:
    """A client that subscribes and unsubscribes by filter.

    >>> from stentor.simulation import Network
    >>> siena = SienaClient(Network.tree([], brokers=["here"]).client(at="here"))
    >>> for text in ("x > 5", "x > 0", "y = 1"):
    ...     siena.subscribe(Filter(text))
    >>> siena.unsubscribe(Filter("x > 0"))
    >>> siena.subscriptions
    [Filter('y = 1')]
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        #: Filters no two of which cover each other, and a set.
        self._subscriptions: FilterTable[FilterId] = FilterTable()
        self._advertisements: dict[SienaAdvertisement, FilterId] = {}

    @property
    def subscriptions(self) -> list[Filter]:
        """The broadest filters that it subscribed to, in the order they came."""
        return list(self.client.subscriptions.values())

    @property
    def advertisements(self) -> list[SienaAdvertisement]:
        return list(self._advertisements)

    def subscribe(self, filter: Filter) -> None:
        """Ask for what the filter matches."""
        if filter.is_never or self._subscriptions.coverers(filter):
            return
        id = self.client.subscribe(filter)
        self.unsubscribe(filter)
        self._subscriptions.add(id, filter)

    def unsubscribe(self, filter: Filter) -> None:
        """Cancel every subscription that the filter covers; there may be none."""
        for id in sorted(self._subscriptions.covered(filter)):
            self._subscriptions.remove(id)
            self.client.unsubscribe(id)

    def advertise(self, advertisement: SienaAdvertisement) -> None:
        """Declare what will be published."""
        if advertisement not in self._advertisements:
            self._advertisements[advertisement] = self.client.advertise(advertisement.filter)

    def unadvertise(self, advertisement: SienaAdvertisement) -> None:
        """Cancel every advertisement that this one covers; there may be none."""
        self._retract([a for a in self._advertisements if advertisement.covers(a)])

    def unadvertise_all(self) -> None:
        """Cancel all advertisements, which no advertisement could cover in one."""
        self._retract(list(self._advertisements))

    def _retract(self, gone: list[SienaAdvertisement]) -> None:
        for advertisement in gone:
            self.client.unadvertise(self._advertisements.pop(advertisement))
