"""The client library: a bus, with or without async. Its page is docs/client.md."""

from stentor.client.advertisement import Advertisement
from stentor.client.bus import Bus
from stentor.client.connecting import connect
from stentor.client.inbox import Inbox
from stentor.client.interest import SubId
from stentor.client.retry import Retry
from stentor.client.subscription import LostRange, Subscription
from stentor.client.sync import SyncBus, SyncInbox, SyncSubscription, connect_sync
from stentor.client.transaction import Held, Transaction

__all__ = [
    "Advertisement",
    "Bus",
    "Held",
    "Inbox",
    "LostRange",
    "Retry",
    "SubId",
    "Subscription",
    "SyncBus",
    "SyncInbox",
    "SyncSubscription",
    "Transaction",
    "connect",
    "connect_sync",
]
