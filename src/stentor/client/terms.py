"""What a subscription asks for, besides its filter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stentor.client.past import Past
from stentor.errors import InvalidConfiguration
from stentor.protocol.messages import Detection, Settlement

#: Notifications that the broker may deliver ahead of the application.
WINDOW: Final = 5_000


@dataclass(frozen=True)
class Terms:
    """All of it, and why not everything goes with everything."""

    durable: str | None = None
    since: float | None = None
    past: Past | None = None
    group: str | None = None
    choice: str = "round_robin"
    lease: float | None = None
    renew: bool = True
    retained: bool = False
    overflow: str = "spill"
    limit: int = 0
    volatile: bool = False
    window: int = WINDOW
    auto_confirm: bool = True
    settlement: Settlement | None = None
    timeout: float | None = None
    takeover: float | None = None
    expires: float | None = None
    detect: Detection | None = None

    def __post_init__(self) -> None:
        if self.takeover is not None and (self.durable is None or not self.takeover >= 0):
            raise InvalidConfiguration(
                f"takeover={self.takeover} is for durable subscriptions: the seconds for which the "
                "broker where one lives may be out of reach; give durable='name' as well"
            )
        if self.window < 1:
            raise InvalidConfiguration(f"with window={self.window} nothing can be delivered")
        if self.limit < 0:
            raise InvalidConfiguration(f"limit={self.limit} is negative; 0 is the broker's own")
        if self.lease is not None and not self.lease > 0:
            raise InvalidConfiguration(f"a lease of {self.lease} seconds ends before it begins")
        if self.group is not None and self.retained:
            raise InvalidConfiguration(
                "the members of a group share notifications, so last values for each make no "
                "sense; use retained=True without a group"
            )
        if self.volatile and (
            self.retained or any(x is not None for x in (self.durable, self.since, self.group))
        ):
            raise InvalidConfiguration(
                "a volatile subscription has no past and shares with nobody; leave out durable, "
                "since, retained and group, or volatile"
            )
        if self.expires is not None and not self.expires > 0:
            raise InvalidConfiguration(
                f"expires={self.expires} leaves out every event; give a longer time"
            )
        if self.settlement is not None and self.durable is None and self.group is None:
            raise InvalidConfiguration(
                "only a durable subscription or a group settles notifications one by one, or "
                "receives some again; subscribe with durable= or group="
            )
        if self.past is not None:
            self._check_past()

    def _check_past(self) -> None:
        """While the past is read, brokers must keep what comes, for this subscriber alone."""
        if self.durable is not None or self.group is not None:
            raise InvalidConfiguration(
                "brokers keep no place in an archive, so since=past(...) goes with neither durable "
                "nor group; read the archive first, and subscribe with since=TIME"
            )
        if self.retained:
            raise InvalidConfiguration("retained=True makes no sense with since=past(...)")
        if self.overflow != "spill":
            raise InvalidConfiguration(
                f"with overflow={self.overflow!r} what comes while the past is read could be lost "
                "or hold up publishers; use overflow='spill' with since=past(...)"
            )
