"""Clean-up by rounds (03/A17 b): exact, on any graph, without clocks.

Brokers exchange ticks, numbered from 1. A broker sends tick k + 1 over all links when tick k has
come in on all of them. As many ticks in a row as there are brokers form a series. Between two
series the brokers rest; any of them may begin the next, and the others join.

A notification is stamped with the number of series that its broker had begun. So once series s has
begun at a broker, it publishes nothing with a lower stamp any more. Claim: when a broker sends the
k-th tick of the series, it has processed all notifications with a lower stamp that come to it over
fewer than k links. For k = 1 these are its own. A notification that comes over k links was sent by
a neighbor that got it over fewer, so it was sent before the neighbor's k-th tick, and links keep
order; the broker has it before that tick, and only then does it send the next. No notification
first reaches a broker over more links than there are other brokers. So when the last tick of the
series has come in on all links, every copy of every notification with a lower stamp has come in as
well, and their ids are forgotten.

A link that goes down is not waited for: nothing comes over it any more. Over a link that comes up,
each end says how far it is; one that is a whole series behind skips to the present one. What is on
its way at that moment may find its stamp below the floor and be refused; it is never accepted
twice. In a graph that stays as it is nothing is refused.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Final

from stentor.errors import InvalidConfiguration
from stentor.model.identity import NotificationId
from stentor.research.flooding.history import History, StampedIds
from stentor.routing.protocol import Arm, BrokerId, Kind, Message, Outputs, Send

#: How long ids gather before a broker begins a series to get rid of them.
PERIOD: Final = 60.0

_TIMER: Final = "rounds"


class Tick(Message, frozen=True):
    """The sender has come this far."""

    kind: ClassVar[Kind] = "control"

    number: int


class Rounds(History):
    """Keeps ids until all copies of their notifications have arrived.

    >>> alone = Rounds(brokers=1)
    >>> alone.admit(NotificationId("p", 0, 0), alone.stamp()), len(alone)
    (True, 1)
    >>> alone.due()
    [Arm(timer='rounds', after=60.0)]
    >>> alone.expired("rounds")
    >>> alone.due(), len(alone)
    ([], 0)
    """

    def __init__(self, brokers: int, *, period: float = PERIOD) -> None:
        """`brokers` is their number in the whole network; too high a number only costs ticks."""
        if brokers < 1 or not period > 0:
            raise InvalidConfiguration(
                f"{brokers} brokers that clean up every {period} units of time make no network"
            )
        self._series = brokers
        self._period = period
        self._ids = StampedIds()
        self._sent = 0
        self._heard: dict[BrokerId, int] = {}
        self._outputs: Outputs = []
        self._armed = False
        self._begin = False

    def stamp(self) -> float:
        return -(-self._sent // self._series)

    def admit(self, id: NotificationId, stamp: float) -> bool:
        if stamp < self._ids.floor:
            self.refused += 1
        return self._ids.add(id, stamp)

    def link_up(self, neighbor: BrokerId) -> None:
        self._heard[neighbor] = 0
        if self._sent:
            self._outputs.append(Send(neighbor, Tick(self._sent)))

    def link_down(self, neighbor: BrokerId) -> None:
        self._heard.pop(neighbor, None)

    def receive(self, sender: BrokerId, message: Message) -> bool:
        if not isinstance(message, Tick):
            return False
        self._heard[sender] = message.number
        present = (message.number - 1) // self._series * self._series
        if present > self._sent:
            self._say(present)
        return True

    def expired(self, timer: Hashable) -> None:
        self._armed = False
        self._begin = len(self._ids) > 0

    def due(self) -> Outputs:
        heard = self._heard.values()
        while all(number >= self._sent for number in heard) and (
            self._sent % self._series  # within a series
            or self._begin
            or any(number > self._sent for number in heard)
        ):
            self._begin = False
            self._say(self._sent + 1)
        self._ids.forget_below(min((self._sent, *heard)) // self._series)
        if self._ids and not self._armed:
            self._armed = True
            self._outputs.append(Arm(_TIMER, self._period))
        outputs, self._outputs = self._outputs, []
        return outputs

    def _say(self, number: int) -> None:
        self._sent = number
        self._outputs += [Send(neighbor, Tick(number)) for neighbor in self._heard]

    def __len__(self) -> int:
        return len(self._ids)
