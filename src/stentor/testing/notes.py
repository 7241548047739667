"""What brokers of a test have routed and delivered, and what to say when that was not expected.

A pattern is a mapping of attributes (an event fits if it has these, whatever else it has), a text
or `Filter`, or an event class. A failure says as much as is known: what was delivered instead, and
for events that fit but were not delivered which part of which filter they failed, as
`stentor why-not` would.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stentor.client.typed import filter_of
from stentor.filters import Filter
from stentor.filters.facts import flat_facts
from stentor.filters.mismatch import alternatives
from stentor.model import Notification, decode

#: What is remembered, the newest; and how much of it a message shows.
KEPT: Final = 10_000
SHOWN: Final = 5

Pattern = Mapping[str, Any] | str | Filter | type[Any]


@dataclass(frozen=True)
class Delivery:
    """A notification that a broker has sent to a client, for a subscription."""

    notification: Notification
    #: The name of the client, of the durable subscription and of the group, as far as there is one.
    client: str
    durable: str | None
    group: str | None
    #: How often it has been given to somebody, with this time.
    attempt: int

    def is_to(self, whom: str | None) -> bool:
        """Whether it went to the client, durable subscription or group of this name."""
        return whom is None or whom in (self.client, self.durable, self.group)

    def __str__(self) -> str:
        again = f", attempt {self.attempt}" if self.attempt > 1 else ""
        names = {"durable": self.durable, "group": self.group}
        kept = "".join(f", {kind} {name!r}" for kind, name in names.items() if name)
        return f"{_text(self.notification)} to {self.client!r}{kept}{again}"


@dataclass(frozen=True)
class Wish:
    """What somebody has subscribed to."""

    whom: tuple[str, ...]
    filters: tuple[Filter, ...]


@dataclass
class Notes:
    """Everything that a test may ask about, in the order in which it happened."""

    routed: deque[Notification] = field(default_factory=lambda: deque(maxlen=KEPT))
    deliveries: deque[Delivery] = field(default_factory=lambda: deque(maxlen=KEPT))

    def note_routed(self, data: bytes) -> None:
        """A hook: something is about to be matched."""
        self.routed.append(decode(data))

    def found(self, pattern: Pattern | None, to: str | None) -> list[Delivery]:
        """The deliveries that fit."""
        fits = meaning(pattern)
        return [d for d in self.deliveries if d.is_to(to) and fits(d.notification)]

    def clear(self) -> None:
        self.routed.clear()
        self.deliveries.clear()

    def missing(self, pattern: Pattern, to: str | None, wishes: Iterable[Wish]) -> str:
        """Why nothing was delivered that fits."""
        whom = "" if to is None else f" to {to!r}"
        lines = [f"{_shown(pattern)} was not delivered{whom}"]
        wishes = [w for w in wishes if to is None or to in w.whom]
        known = {name for w in wishes for name in w.whom}
        if to is not None and to not in known | _names(self.deliveries):
            lines.append(f"no subscriber here has the name {to!r}")
        candidates = list(filter(meaning(pattern), self.routed))
        if not self.routed:
            lines.append("nothing has been published; is there an `await`, or a `flush`, missing?")
        elif not candidates:
            lines.append("nothing like it was published; these events were:")
            lines += _listed(map(_text, self.routed))
        for notification in candidates[-SHOWN:]:
            lines += _unwanted(notification, wishes)
        instead = [d for d in self.deliveries if d.is_to(to)]
        if instead:
            lines.append(f"delivered{whom} was:")
            lines += _listed(map(str, instead))
        return "\n".join(lines)


def meaning(pattern: Pattern | None) -> Callable[[Notification], bool]:
    """What a pattern asks of an event.

    >>> fits = meaning({"order": 1, "to.city": "Bern"})
    >>> fits(Notification({"order": 1, "to": {"city": "Bern"}}))
    True
    """
    if pattern is None:
        return lambda notification: True
    if isinstance(pattern, Mapping):
        wanted = dict(Notification(pattern)).items()
        return lambda given: all(name in given and given[name] == value for name, value in wanted)
    return filter_of(pattern).matches


def unexpected(found: list[Delivery], pattern: Pattern | None, to: str | None) -> str:
    """What to say of deliveries that should not be."""
    what = "something" if pattern is None else _shown(pattern)
    whom = "" if to is None else f" to {to!r}"
    return "\n".join([f"{what} was delivered{whom}:", *_listed(map(str, found))])


def _unwanted(notification: Notification, wishes: list[Wish]) -> Iterator[str]:
    """Why an event that was published did not reach the subscribers."""
    yield f"{_text(notification)} was published, but"
    if not wishes:
        yield "  there are no subscriptions"
    for wish in wishes[:SHOWN]:
        for filter in wish.filters[:SHOWN]:
            yield f"  {wish.whom[0]!r} asks for {str(filter)!r}"
            if filter.matches(notification):
                yield "    and it matches: it is on its way, came too early, or has expired"
                continue
            parts = (alternatives(filter, notification) or [[]])[0]
            yield from (f"    {part.text}: {part.found}" for part in parts if not part.holds)


def _names(deliveries: Iterable[Delivery]) -> set[str | None]:
    return {name for d in deliveries for name in (d.client, d.durable, d.group)}


def _shown(pattern: Pattern) -> str:
    if isinstance(pattern, type):
        return f"a {pattern.__name__}"
    return repr(str(pattern)) if isinstance(pattern, str | Filter) else repr(dict(pattern))


def _text(notification: Notification) -> str:
    kind = f"{notification.type} " if notification.type else ""
    return f"{kind}{dict(flat_facts(dict(notification), list(notification)))}"


def _listed(texts: Iterable[str]) -> list[str]:
    every = list(texts)
    more = [f"  and {len(every) - SHOWN} before"] if len(every) > SHOWN else []
    return more + [f"  {text}" for text in every[-SHOWN:]]
