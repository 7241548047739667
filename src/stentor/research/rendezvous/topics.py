"""Topic trees, as in Scribe (07/4.4): one tree for each topic, and only topics are routed on.

A topic is the value of one attribute. Subscribing joins the topic's tree: the request travels
towards the root, each broker on the way takes the one before as a child, and it ends where
the tree has been joined already. A notification travels to the root first and then down the whole
tree. What a filter says beyond the topic is tested at the subscriber's broker only, so brokers on
the way hold one entry for each child, whatever it asks for. A broker left without children and
subscribers leaves the tree.
"""

from __future__ import annotations

from collections.abc import Iterable

from stentor.errors import UnsupportedMapping
from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.model.notification import Notification
from stentor.routing.rendezvous.addresses import topics_of, written
from stentor.routing.rendezvous.ring_router import Ring, RingRouter
from stentor.routing.rendezvous.tree import SummaryTree


class TopicRouter(RingRouter):
    """Routes by the value of one attribute.

    >>> from stentor.routing.protocol import FilterId
    >>> from stentor.routing.rendezvous.pastry import Pastry
    >>> router = TopicRouter(Pastry("b1"))
    >>> _ = router.subscribe(FilterId("ann", 1), Filter("topic = 'alarms' and level > 3"))
    >>> router.table_size().local
    1
    """

    def __init__(self, ring: Ring, *, attribute: str = "topic") -> None:
        """`attribute` may also be the reserved `_channel` or `_subject`."""
        super().__init__(ring, plant=lambda name: SummaryTree(name, "presence"), store="path")
        self._attribute = attribute

    @property
    def _copies_on_the_way(self) -> bool:
        return False

    def _names(self, conjunct: Conjunct, filter: Filter) -> Iterable[str]:
        topics = topics_of(conjunct, self._attribute)
        if topics is None:
            raise UnsupportedMapping(
                f"the filter {filter} does not say which topics it is about; "
                f"add {self._attribute} = '...' or {self._attribute} in (...) to each alternative"
            )
        return topics

    def _name(self, notification: Notification) -> str | None:
        value = notification.facts.get(self._attribute)
        return None if value is None else written(value)
