"""Places of the scope graph: their keys, from when on and up to when, and who sees what.

See `stentor.scopes.entry`, which says what a place is.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from stentor.filters import Filter
from stentor.filters.expression import Atom
from stentor.model.stamp import EPOCH, KEYS, Stamp
from stentor.scopes.membership import few_texts

#: The place of those who are in no scope.
NOWHERE: Final = ""
#: The place of brokers, which hear there what lets go of what they hold.
WORDS: Final = "^"
#: Places of the past that are remembered; what was published before the oldest is seen by nobody.
MAX_PAST: Final = 10_000


class Waiting(Struct, array_like=True, frozen=True):
    """A crossing that a policy has put off, with all that is needed to go on with it (04/T13).

    It is written as the only key of a stamp, so that what waits can be kept as any notification is,
    and nobody sees it meanwhile.
    """

    #: Who has published it, as the graph sees it.
    producer: str
    name: str
    attributes: dict[str, Any]
    #: The edge, and which way; "" is the publisher.
    child: str
    parent: str
    upward: bool
    #: What it has climbed through, and its whole way, both behind the publisher.
    climbed: tuple[str, ...]
    path: tuple[str, ...]
    #: Of what is held until something is said: for which scope and value, its number at the broker
    #: with this stream, and up to which numbers words of others had been heard.
    held: str = ""
    stream: str = ""
    number: int = 0
    heard: dict[str, int] = {}

    @property
    def key(self) -> str:
        return _WAITING + b64encode(msgspec.msgpack.encode(self)).decode()

    @classmethod
    def of(cls, stamp: Stamp) -> Waiting:
        (key,) = stamp.keys
        return _waiting.decode(b64decode(key[len(_WAITING) :]))


_WAITING: Final = "~"
_waiting: Final = msgspec.msgpack.Decoder(Waiting)


def waits(stamp: Stamp) -> bool:
    """Whether what has this stamp waits at a scope."""
    return len(stamp.keys) == 1 and stamp.keys[0].startswith(_WAITING)


def place_of_rule(scope: str, label: str) -> str:
    return f"{len(scope)}:{scope} {label}"


def place_of_component(id: str) -> str:
    return f"={id}"


def personal(place: str, name: str) -> str:
    """Of all at the place of a rule, the one with this name, whom a policy has chosen."""
    return f"{place}\0={name}"


def is_personal(key: str) -> bool:
    return "\0=" in key


def named(id: str) -> str:
    """No place: that the graph names a component, be it in a scope or not."""
    return f"!{id}"


def place_of_publisher(producer: str) -> str:
    return f"@{producer}"


class Span(Struct, array_like=True):
    """A place, whom it takes in, and from which epoch on and up to which; None for still."""

    key: str
    scope: str
    where: str
    among: list[str]
    since: int
    until: int | None = None
    #: Whether a policy may choose among those whom it takes in.
    chosen: bool = False

    def is_like(self, other: Span) -> bool:
        """Whether it takes in the same."""
        mine = self.scope, self.where, self.among, self.chosen
        return mine == (other.scope, other.where, other.among, other.chosen)

    @property
    def time(self) -> tuple[int, int]:
        """From when on, and up to when, which is -1 for still."""
        return self.since, -1 if self.until is None else self.until

    @property
    def filter(self) -> Filter:
        return _parsed(self.where)

    @property
    def texts(self) -> list[tuple[str, str]] | None:
        """What whoever is there says of itself: one of these texts; None if it may be anything."""
        name, texts = _texts(self.where)
        return None if texts is None else [(name, each) for each in texts]

    def may_match(self, facts: Mapping[str, Any]) -> bool:
        """A quick test that is right where it says no: most rules ask for one of some texts."""
        name, texts = _texts(self.where)
        value = facts.get(name)
        return texts is None or (isinstance(value, str) and value in texts)


@lru_cache(maxsize=MAX_PAST)
def _parsed(text: str) -> Filter:
    return Filter(text)


@lru_cache(maxsize=MAX_PAST)
def _texts(text: str) -> tuple[str, frozenset[str] | None]:
    found = few_texts(_parsed(text))
    return (found[0][0], frozenset(each for _, each in found)) if found else ("", None)


class View(Struct, frozen=True, dict=True):  # `dict` is for what is found once
    """What one component may see: at which places it is, or was, in which epochs."""

    producer: str
    #: By place, the epochs: from, and up to, which is -1 for still.
    places: dict[str, tuple[tuple[int, int], ...]]
    #: Whether it is in no scope, and sees what was published where there was no graph.
    outside: bool

    def sees(self, stamp: Stamp | None) -> bool:
        """Whether something with this stamp is visible to it."""
        if stamp is None:
            return self.outside
        if stamp.publisher == self.producer:
            return place_of_publisher(self.producer) in stamp.keys
        for key in stamp.keys:
            for since, until in self.places.get(key, ()):
                if since <= stamp.epoch and (until < 0 or stamp.epoch < until):
                    return True
        return False

    @property
    def now(self) -> tuple[str, ...]:
        """The places at which it still is; components with the same ones see the same."""
        return tuple(sorted(k for k, spans in self.places.items() if spans[-1][1] < 0))

    @cached_property
    def shared(self) -> View:
        """What others at the same places see as well: nothing that it was chosen for."""
        places = {key: spans for key, spans in self.places.items() if not is_personal(key)}
        return View(self.producer, places, self.outside)

    @cached_property
    def constraint(self) -> Filter:
        """A filter on stamps that matches whatever is visible to it, and little else.

        Everything that it asks for is narrowed by that. So it stays short in however many places
        the component is: from when on it is there need not be said, since nothing that is published
        now is older, and up to when it was where it is no longer is said once for all of these.
        """
        still = [place_of_publisher(self.producer)]
        ended: list[str] = []
        end = 0
        for key, spans in sorted(self.places.items()):
            if spans[-1][1] < 0:
                still.append(key)
            else:
                ended.append(key)
                end = max(end, spans[-1][1])
        found = _overlap(still)
        if ended:
            found |= _overlap(ended) & Filter.of_expression(Atom(EPOCH, "<", (end,)))
        return found | _UNSTAMPED if self.outside else found


def _overlap(keys: list[str]) -> Filter:
    return Filter.of_expression(Atom(KEYS, "overlaps", tuple(keys)))


_UNSTAMPED: Final = Filter(f"not exists {KEYS}")


def common(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int] | None:
    since = max(one[0], other[0])
    ends = [until for _, until in (one, other) if until >= 0]
    until = min(ends) if ends else -1
    return None if 0 <= until <= since else (since, until)


def joined(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same epochs in as few spans as there can be, in order.

    >>> joined([(5, 7), (0, 5), (8, -1)])
    ((0, 7), (8, -1))
    """
    found: list[tuple[int, int]] = []
    for since, until in sorted(spans):
        if found and (found[-1][1] < 0 or since <= found[-1][1]):
            start, end = found[-1]
            found[-1] = start, -1 if min(end, until) < 0 else max(end, until)
        else:
            found.append((since, until))
    return tuple(found)


def without(time: tuple[int, int], other: tuple[int, int]) -> Iterable[tuple[int, int]]:
    """What is left of a time without another one.

    >>> list(without((1, -1), (3, 5))), list(without((1, 4), (0, -1)))
    ([(1, 3), (5, -1)], [])
    """
    (since, until), (start, end) = time, other
    if start > since:
        yield since, start if until < 0 else min(start, until)
    if end >= 0 and (until < 0 or end < until):
        yield max(since, end), until


def gaps(spans: Iterable[tuple[int, int]], begin: int) -> Iterable[tuple[int, int]]:
    """Epochs from the first of the graph on that none of these spans, in order, covers.

    >>> list(gaps([(0, 5), (7, -1)], 1)), list(gaps([], 1)), list(gaps([(0, -1)], 1))
    ([(5, 7)], [(0, -1)], [])
    """
    at = 0
    for since, until in spans:
        if since > max(at, begin):
            yield at, since
        if until < 0:
            return
        at = max(at, until)
    yield at, -1
