"""The client library: a bus, asynchronous or not. Its page is docs/client.md."""

from stentor.client.advertisement import Advertisement
from stentor.client.bus import Bus, connect
from stentor.client.subscription import LostRange, Subscription
from stentor.client.transaction import Held, Transaction

__all__ = [
    "Advertisement",
    "Bus",
    "Held",
    "LostRange",
    "Subscription",
    "Transaction",
    "connect",
]
