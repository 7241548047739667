"""Stentor delivers every event to exactly those who asked for it, by what the event says.

>>> from stentor import Filter, Notification
>>> f = Filter("symbol = 'IBM' and price > 100")
>>> f.matches(Notification({"symbol": "IBM", "price": 120.5}))
True

Against a running broker:

    async with stentor.connect("127.0.0.1:7411") as bus:
        async with bus.subscribe("symbol = 'IBM' and price > 100") as quotes:
            await bus.publish({"symbol": "IBM", "price": 120.5}, ack=True)
            async for n in quotes:
                print(n["price"], n.id, n.time)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stentor.client import (
        Advertisement,
        Bus,
        Inbox,
        Retry,
        SubId,
        Subscription,
        SyncBus,
        SyncInbox,
        SyncSubscription,
        Transaction,
        connect,
        connect_sync,
    )
    from stentor.client.recorder import Recorder
    from stentor.client.recordings import recorded
    from stentor.errors import StentorError
    from stentor.filters import Filter, merge_all
    from stentor.model import Notification, NotificationId
    from stentor.node.hooks import VETO, Hooks
    from stentor.pipeline.archives.selection import history

__all__ = [
    "NULL",
    "VETO",
    "Advertisement",
    "Bus",
    "Filter",
    "Hooks",
    "Inbox",
    "Notification",
    "NotificationId",
    "Recorder",
    "Retry",
    "StentorError",
    "SubId",
    "Subscription",
    "SyncBus",
    "SyncInbox",
    "SyncSubscription",
    "Transaction",
    "connect",
    "connect_sync",
    "history",
    "merge_all",
    "recorded",
]
__version__ = "0.1.0"

# Everything is loaded when it is asked for: a publisher needs no filters, and many uses of filters
# need neither event loops nor sockets.
_ELSEWHERE = {
    "NULL": "stentor.model",
    "VETO": "stentor.node.hooks",
    "Filter": "stentor.filters",
    "Hooks": "stentor.node.hooks",
    "Notification": "stentor.model",
    "NotificationId": "stentor.model",
    "Recorder": "stentor.client.recorder",
    "StentorError": "stentor.errors",
    "history": "stentor.pipeline.archives.selection",
    "merge_all": "stentor.filters",
    "recorded": "stentor.client.recordings",
}


#: Parts of the package that applications use by name, besides what is here.
_MODULES = (
    "broker",
    "errors",
    "filters",
    "matching",
    "model",
    "pipeline",
    "semantics",
    "simulation",
    "testing",
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"stentor.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'stentor' has no attribute {name!r}")
    value = getattr(import_module(_ELSEWHERE.get(name, "stentor.client")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
