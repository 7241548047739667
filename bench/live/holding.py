"""Has brokers hold filters of others before something is measured."""

from __future__ import annotations

from typing import Final

from live.processes import Worker
from progress import progress

#: Filters that are loaded at a time: what no broker takes long for.
AT_A_TIME: Final = 10_000


def hold(subscribers: Worker, address: str, count: int) -> None:
    """Load a broker, and all that it is linked with, with so many filters."""
    for first in range(0, count, AT_A_TIME):
        last = min(first + AT_A_TIME, count)
        subscribers.ask("hold", address, first, last)
        if count > AT_A_TIME:
            progress(f"{last:,} filters are held")
