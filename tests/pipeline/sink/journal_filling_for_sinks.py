"""A journal with numbers in it."""

from __future__ import annotations

from collections.abc import Iterable

from overlay_processes import BrokerProcess

from stentor.client.direct import Direct
from stentor.model import Notification, NotificationId, encode


def fill(broker: BrokerProcess, numbers: Iterable[int]) -> None:
    items = [encode(Notification({"n": n}, id=NotificationId("desk", 0, n))) for n in numbers]
    with Direct(broker.address, name="desk") as direct:
        direct.publish(items)
