"""How much of a broker clients may have, all together. An operator may change it at any time.

What is there when a bound is lowered stays; nothing more comes until it has become less.
"""

from __future__ import annotations

from dataclasses import dataclass

from stentor.node.feed import QUEUE_LIMIT
from stentor.node.parts.deliveries import PATIENCE
from stentor.node.schedule import MOST, MOST_BYTES


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a core allows.

    >>> Bounds(durables=2).durables
    2
    """

    #: Subscriptions of one client; as many advertisements.
    subscriptions: int = 10_000
    durables: int = 10_000
    groups: int = 1_000
    #: Patterns that are detected here.
    detectors: int = 256
    #: What waits to be delivered later, and its bytes.
    scheduled: int = MOST
    scheduled_bytes: int = MOST_BYTES
    #: The grants that share what is above.
    owners: tuple[str, ...] = ()
    #: Publications of one client that are not answered yet.
    window: int = 20_000
    #: Notifications that wait for one subscription.
    queue: int = QUEUE_LIMIT
    #: Seconds that publishers wait for subscribers who ask for it.
    block: float = PATIENCE
