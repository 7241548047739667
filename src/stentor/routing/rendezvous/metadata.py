"""Type metadata at the rendezvous: who declares an event type, and who checks (R-03.35, R-07.70).

The rendezvous of a type holds its declaration, the one that counts. A declaration is routed there;
the first one of a type is accepted, never changed and never withdrawn, so whoever knows it may keep
it. Copies are with the leaf set of the rendezvous, as one of these takes its place when it fails.
Whenever the ring changes, a rendezvous brings its leaf set up to date, and a broker with a copy
passes it on if the rendezvous is another than before, or drops it if that is far away now.

Other brokers keep what they were told. They look a type up when a client subscribes to it and they
do not know it. "Never declared" is an answer as well, but not for ever: the rendezvous remembers
who got it, and tells them when the type is declared, or that it is no longer the one to know.

A publication must not contradict the declarations of its type and of its supertypes: a declared
attribute has the declared value type if it is there at all, and no event has an abstract type.
Where all these are known, the publisher's broker checks, and the publisher gets an error. Otherwise
the notification first visits the rendezvous of each type that is not known, as an `Inspect`. Each
checks its part and tells the publisher's broker, so that the next publication can be checked at
once; the last one lets the notification enter its trees. Nobody has seen a notification that is
refused on the way. It is counted where that happens.

A subscription is checked where it is made: one that compares a declared attribute with values of
another type can match nothing and is an error, if the declaration is known there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Final, Protocol

from msgspec import Struct

from stentor.errors import FilterTypeError, InvalidNotification, UnknownEventType
from stentor.filters import Filter
from stentor.filters.addressing.content import TYPES
from stentor.filters.conjunct import Conjunct
from stentor.model.event_types import EventType, EventTypes, event_types
from stentor.model.notification import Notification
from stentor.model.values import value_type_of
from stentor.routing.protocol import BrokerId, Kind, Message
from stentor.routing.rendezvous.addresses import types_of
from stentor.routing.rendezvous.pastry import key_of

#: Answers that a broker keeps, and types of which a rendezvous remembers who asked in vain.
REMEMBERED: Final = 10_000
#: Declarations that a broker holds for others. Further ones are refused.
HELD: Final = 100_000


class Declare(Message, frozen=True):
    """A declaration on its way to the rendezvous; it answers `broker`, if there is one."""

    kind: ClassVar[Kind] = "control"
    declaration: EventType
    broker: BrokerId | None = None


class Replica(Message, frozen=True):
    """A declaration from the rendezvous, to be held in case it fails."""

    kind: ClassVar[Kind] = "control"
    declaration: EventType


class Lookup(Message, frozen=True):
    """A broker wants to know what was declared about a type."""

    kind: ClassVar[Kind] = "control"
    name: str
    broker: BrokerId


class Declared(Message, frozen=True):
    """What was declared about a type; None if nothing was so far."""

    kind: ClassVar[Kind] = "control"
    name: str
    declaration: EventType | None


class NotKnown(Message, frozen=True):
    """The sender will not tell any more if the type is declared."""

    kind: ClassVar[Kind] = "control"
    name: str


class Inspect(Message, frozen=True):
    """A notification that is yet to be checked by the rendezvous of each of these types."""

    kind: ClassVar[Kind] = "notification"
    notification: Notification
    names: tuple[str, ...]
    broker: BrokerId


class Keys(Protocol):
    """The part of a ring that is needed here."""

    @property
    def id(self) -> BrokerId: ...

    def next_hop(self, key: int) -> BrokerId | None: ...

    @property
    def leaf_set(self) -> list[BrokerId]: ...


class _Held:
    """A declaration held as the rendezvous of the type, or for it."""

    __slots__ = ("copies", "declaration", "hop")

    def __init__(self, declaration: EventType, hop: BrokerId | None) -> None:
        self.declaration = declaration
        #: Where the rendezvous was when the ring changed last; None if here.
        self.hop = hop
        #: To whom the rendezvous gave copies.
        self.copies: dict[BrokerId, None] = {}


class _Answer(Struct, frozen=True):
    """What a broker was told, and by whom."""

    teller: BrokerId
    declaration: EventType | None


class Metadata:
    """What one broker knows of the declarations of event types, and holds of them."""

    def __init__(
        self,
        ring: Keys,
        send: Callable[[BrokerId, Message], None],
        release: Callable[[Notification], None],
    ) -> None:
        """`send` may be used with the own id; `release` gets what has been checked here."""
        self._ring = ring
        self._send = send
        self._release = release
        self._held: dict[str, _Held] = {}
        self._answers: dict[str, _Answer] = {}
        #: At the rendezvous of undeclared types: who has been told so.
        self._in_vain: dict[str, dict[BrokerId, None]] = {}
        #: Notifications and declarations that were refused here.
        self.refused = 0

    # -- declarations

    def declare(self, declaration: EventType) -> None:
        """Let the rendezvous of the type know; an error if another declaration is known here."""
        valid = EventTypes().declare(
            declaration.name, declaration.parents, declaration.attributes, declaration.abstract
        )
        known = self.declaration(valid.name)
        if known is None:
            self._to_rendezvous(valid.name, Declare(valid, self._ring.id))
        elif known != valid:
            raise UnknownEventType(
                f"the event type {valid.name!r} is already declared, and differently; "
                "use that declaration, or choose another name"
            )

    def declaration(self, name: str) -> EventType | None:
        """The declaration of a type, if it is known here."""
        if name in self._held:
            return self._held[name].declaration
        answer = self._answers.get(name)
        return None if answer is None else answer.declaration

    def _is_open(self, name: str) -> bool:
        """Whether somebody else knows what, or that nothing, was declared about the type."""
        return name not in self._held and name not in self._answers and not self._is_here(name)

    def _declared(self, message: Declare) -> None:
        name = message.declaration.name
        held = self._held.get(name)
        if held is None and len(self._held) < HELD:
            self._accept(message.declaration)
        elif held is None or held.declaration != message.declaration:
            self.refused += 1
        if message.broker is not None and name in self._held:
            self._answer(message.broker, name)

    def _accept(self, declaration: EventType) -> None:
        """This is the rendezvous of the type, and learns of its declaration."""
        name = declaration.name
        held = self._held[name] = _Held(declaration, None)
        self._hand_out_copies(held)
        for broker in self._in_vain.pop(name, ()):
            self._send(broker, Declared(name, declaration))

    def _copied(self, declaration: EventType) -> None:
        name = declaration.name
        hop = self._ring.next_hop(key_of(name))
        if hop is None:
            if name not in self._held:
                self._accept(declaration)
        elif name in self._held or len(self._held) < HELD:
            self._held[name] = _Held(declaration, hop)

    def _hand_out_copies(self, held: _Held) -> None:
        leaves = dict.fromkeys(self._ring.leaf_set)
        for broker in leaves:
            if broker not in held.copies:
                self._send(broker, Replica(held.declaration))
        held.copies = leaves

    # -- the ring changes

    def follow_ring(self) -> None:
        """Somebody came or went: what is held must be in the right places."""
        leaves = self._ring.leaf_set
        for name, held in list(self._held.items()):
            hop = self._ring.next_hop(key_of(name))
            if hop is None:
                self._hand_out_copies(held)
            else:
                held.copies = {}
                if hop != held.hop:
                    self._send(hop, Declare(held.declaration))
                if hop not in leaves:
                    del self._held[name]
            held.hop = hop
        for name in [name for name in self._in_vain if not self._is_here(name)]:
            self._stop_telling(name)

    def lose(self, neighbor: BrokerId) -> None:
        """The neighbor is gone, and will not tell when a type is declared."""
        for name, answer in list(self._answers.items()):
            if answer.teller == neighbor and answer.declaration is None:
                del self._answers[name]
        for brokers in self._in_vain.values():
            brokers.pop(neighbor, None)

    # -- questions and answers

    def look_up(self, names: Iterable[str]) -> None:
        for name in names:
            self._to_rendezvous(name, Lookup(name, self._ring.id))

    def _answer(self, broker: BrokerId, name: str) -> None:
        if broker == self._ring.id:
            return
        declaration = self.declaration(name)
        self._send(broker, Declared(name, declaration))
        if declaration is None:
            self._in_vain.setdefault(name, {})[broker] = None
            if len(self._in_vain) > REMEMBERED:
                self._stop_telling(next(iter(self._in_vain)))

    def _stop_telling(self, name: str) -> None:
        for broker in self._in_vain.pop(name):
            self._send(broker, NotKnown(name))

    def _told(self, teller: BrokerId, message: Declared) -> None:
        if message.declaration is None and self.declaration(message.name) is not None:
            return
        self._answers.pop(message.name, None)
        self._answers[message.name] = _Answer(teller, message.declaration)
        if len(self._answers) > REMEMBERED:
            del self._answers[next(iter(self._answers))]

    # -- checks

    def check(self, notification: Notification) -> tuple[str, ...]:
        """Raise if a known declaration is contradicted. The answer is the types not known here."""
        names = sorted(notification.facts.get(TYPES, ()))
        for name in names:
            problem = _problem(self.declaration(name), notification)
            if problem is not None:
                raise InvalidNotification(problem)
        return tuple(name for name in names if self._is_open(name))

    def inspect(self, notification: Notification, names: tuple[str, ...]) -> None:
        """Have the notification checked by others, and released there."""
        self._to_rendezvous(names[0], Inspect(notification, names, self._ring.id))

    def _inspected(self, message: Inspect) -> None:
        name, *others = message.names
        self._answer(message.broker, name)
        if _problem(self.declaration(name), message.notification) is not None:
            self.refused += 1
        elif others:
            rest = Inspect(message.notification, tuple(others), message.broker)
            self._to_rendezvous(others[0], rest)
        else:
            self._release(message.notification)

    def check_filter(self, filter: Filter) -> list[str]:
        """Raise if an alternative can match nothing. The answer is the types not known here."""
        unknown: dict[str, None] = {}
        for conjunct in filter.conjuncts:
            types = types_of(conjunct) or []
            for name in types:
                supertypes = sorted(event_types.ancestors(name))
                unknown |= dict.fromkeys(name for name in supertypes if self._is_open(name))
            problems = [self._unmatchable(name, conjunct) for name in types]
            if problems and all(problems):
                raise FilterTypeError(f"the filter {filter} can match nothing: {problems[0]}")
        return list(unknown)

    def _unmatchable(self, type_name: str, conjunct: Conjunct) -> str | None:
        """Why no event of the type can match, as far as is known."""
        for name in sorted(event_types.ancestors(type_name)):
            declaration = self.declaration(name)
            attributes = {} if declaration is None else declaration.attributes
            for attribute, expected in attributes.items():
                constraint = conjunct.constraints.get(attribute)
                if constraint is None or constraint.absent:
                    continue
                if constraint.part(expected).is_none:
                    return f"{attribute!r} of event type {name!r} is declared as {expected}"
        return None

    # -- messages

    def handle(self, sender: BrokerId, message: Message) -> bool:
        """Whether the message was one of those that are dealt with here."""
        match message:
            case Declare(declaration=declaration):
                if self._arrives(declaration.name, message):
                    self._declared(message)
            case Inspect(names=names):
                if self._arrives(names[0], message):
                    self._inspected(message)
            case Lookup(name=name, broker=broker):
                if self.declaration(name) is not None or self._arrives(name, message):
                    self._answer(broker, name)
            case Replica(declaration=declaration):
                self._copied(declaration)
            case Declared():
                self._told(sender, message)
            case NotKnown(name=name):
                if self._answers.get(name) == _Answer(sender, None):
                    del self._answers[name]
            case _:
                return False
        return True

    def _is_here(self, name: str) -> bool:
        return self._ring.next_hop(key_of(name)) is None

    def _arrives(self, name: str, message: Message) -> bool:
        """Whether this is the rendezvous; otherwise the message is passed on."""
        hop = self._ring.next_hop(key_of(name))
        if hop is not None:
            self._send(hop, message)
        return hop is None

    def _to_rendezvous(self, name: str, message: Message) -> None:
        hop = self._ring.next_hop(key_of(name))
        self._send(self._ring.id if hop is None else hop, message)


def _problem(declaration: EventType | None, notification: Notification) -> str | None:
    """Why the notification is no event of the type, or of a subtype."""
    if declaration is None:
        return None
    if declaration.abstract and declaration.name == notification.type:
        return f"the event type {declaration.name!r} is abstract; publish one of its subtypes"
    for attribute, expected in declaration.attributes.items():
        if attribute in notification and value_type_of(notification[attribute]) != expected:
            return (
                f"{attribute!r} of event type {declaration.name!r} is a "
                f"{value_type_of(notification[attribute])}; declared as {expected}"
            )
    return None
