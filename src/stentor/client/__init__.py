"""The client library: a bus, with or without async. Its page is docs/client.md."""

from stentor.client.advertisement import Advertisement
from stentor.client.bus import Bus
from stentor.client.connecting import connect
from stentor.client.subscription import LostRange, Subscription
from stentor.client.sync import SyncBus, SyncSubscription, connect_sync
from stentor.client.transaction import Held, Transaction

__all__ = [
    "Advertisement",
    "Bus",
    "Held",
    "LostRange",
    "Subscription",
    "SyncBus",
    "SyncSubscription",
    "Transaction",
    "connect",
    "connect_sync",
]
