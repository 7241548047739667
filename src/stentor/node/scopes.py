"""What a broker knows of scopes: the graph, its own clients as components, and who sees what.

This is the stage *scope* on the way of a publication, and the *gate* on the way of a delivery. At
the entry, `stamp` decides in which versions a publication is visible where, and writes it before
the bytes of each (see `stentor.scopes.entry`). From there on every version is a notification like
any other: journaled, routed by content, fetched, kept as a last value. Subscriptions ask for what
they ask for *and* for stamps that their component may see (`View.constraint`), so routers bring
only what is visible; and since filters that were told to others may be behind or ahead, `sees` is
asked once more, exactly, wherever something is put into a feed or read from a journal for a client.
So to lose a message about filters loses nothing that is safe, and no filter, name or id that
a client makes up changes what it may see.

Ids. The original keeps its id. Another version has one of its own, under the producer `P@K@`, by
which nobody can publish: what stands behind the last "@" is the name of a grant, and none is empty.

Last values are kept for each set of places apart, or a publisher in one scope could replace what
somebody in another has kept under the same key.

What a policy delays waits on the schedule, as what is published with `delay=` does, under the id of
a version. It says there on which edge it waits. When it is due the graph of that moment decides how
it goes on, and it enters the journal then; see `stentor.node.parts.scheduling`. What a policy holds
waits there until something is said, at whatever broker; see `stentor.node.parts.scope_holds`.

Without a graph nothing here is looked at: `active` is False.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from stentor.errors import NotPermitted, StentorError
from stentor.filters import Filter
from stentor.model.codec import Envelope, decode_header, encode
from stentor.model.identity import NotificationId
from stentor.model.stamp import HIDDEN, Stamp, is_stamped, split
from stentor.node.clock import Clock
from stentor.node.last_values import OF
from stentor.node.schedule import NEVER, Delayed, Scheduled
from stentor.node.session import Session
from stentor.node.sessions import Sessions
from stentor.node.subscription import Subscription
from stentor.scopes.entry import Component, Decided, EntryGraph
from stentor.scopes.graph import RESERVED
from stentor.scopes.places import NOWHERE, WORDS, View, Waiting

_log: Final = logging.getLogger("stentor.scopes")

#: Places, and stops, that are told of one notification.
MOST_STOPS: Final = 16
#: Stamps in a batch that are looked at before its notifications are.
FEW_STAMPS: Final = 8
#: Places that have moved for which it is looked up whom that concerns.
FEW_SPANS: Final = 1_000
#: Between the key of a last value and the places that it is for.
AT: Final = "\x1e"


class Stamped(NamedTuple):
    """Publications as brokers know them."""

    items: list[bytes]
    envelopes: list[Envelope]
    #: Keys under which some are kept, by their places in the list.
    keys: list[tuple[str, int]]
    #: What waits at scopes, to be put on the schedule.
    waiting: list[Delayed]


class Scopes:
    """The scope graph as this broker has it, and its clients in it."""

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        self.entry = EntryGraph()
        #: Whether there is a graph at all.
        self.active = False
        #: Whether it is being changed: nothing new is published meanwhile.
        self.moving = False
        self._clock = clock
        self.components: dict[int, Component] = {}
        #: Clients by each text that they say of themselves; None until somebody asks for it.
        self._saying: dict[tuple[str, str], set[int]] | None = None
        #: What is held here: by scope and value, the ids and what is known of each.
        self.held: dict[str, dict[str, Waiting]] = {}
        self.counters = {"stamped": 0, "hidden": 0}
        sessions.at_end(self._forget)

    def _forget(self, session: Session) -> None:
        component, saying = self.components.pop(session.id, None), self._saying
        if component is None or saying is None:
            return
        for said in _texts(component):
            saying[said].discard(session.id)
            if not saying[said]:
                del saying[said]

    def join(self, session: Session, name: str, attributes: dict[str, Any]) -> None:
        """A client has connected, for whose name and attributes somebody vouches."""
        self._enter(session.id, Component(session.producer, name, attributes))

    def listen(self, session: Session) -> None:
        """The session is this broker itself, and hears what brokers are told."""
        self._enter(session.id, Component(session.producer, session.producer, {}, is_broker=True))

    def _enter(self, session: int, component: Component) -> None:
        self.components[session] = component
        if self._saying is not None:
            _note(self._saying, session, component)

    def saying(self, name: str, value: str) -> Collection[int]:
        """The clients that say this of themselves."""
        if self._saying is None:
            self._saying = {}
            for session, component in self.components.items():
                _note(self._saying, session, component)
        return self._saying.get((name, value), ())

    def concerned(self, epoch: int) -> list[int] | None:
        """The clients that may see something else since an epoch; None: all of them."""
        spans = self.entry.moved_since(epoch)
        if spans is None or len(spans) > FEW_SPANS:
            return None
        texts: set[tuple[str, str]] = set()
        for span in spans:
            if span.texts is None:
                return None
            texts.update(span.texts)
        return sorted(set().union(*(self.saying(*each) for each in texts)))

    def hold(self, id: str, waiting: Waiting) -> None:
        """Something waits here until something else is said."""
        self.held.setdefault(waiting.held, {})[id] = waiting

    # -- the stage of publications

    def stamp(
        self,
        session: Session,
        items: list[bytes],
        envelopes: list[Envelope],
        keys: list[tuple[str, int]],
    ) -> Stamped:
        """Publications as brokers know them, with the keys under which some are kept.

        Each becomes as many as it has versions; the original is always there, and comes first.
        """
        component = self.components.get(session.id) if self.active else None
        if component is None or not items:
            return Stamped(items, envelopes, keys, [])
        self.counters["stamped"] += len(items)
        marks = self.entry.marks(component, envelopes)
        if marks is not None:
            marked = []
            for data, envelope, mark in zip(items, envelopes, marks, strict=True):
                data = mark.prefix + data
                envelope.put_stamp(mark.stamp, data)
                marked.append(data)
            kept = [(_kept_at(key, marks[i].stamp), i) for key, i in keys]
            return Stamped(marked, envelopes, kept, [])
        key_of = {i: key for key, i in keys}
        found, now = Stamped([], [], [], []), self._clock.time
        for i, (data, original) in enumerate(zip(items, envelopes, strict=True)):
            decided = self.entry.versions(component, original.notification(), now)
            self._add(found, decided, data, original, key_of.get(i), session.owner)
        return found

    def resume(self, data: bytes, scheduled: Scheduled) -> Stamped:
        """What has waited at a scope goes on, as far as it may now."""
        stamp, bare = split(data)
        envelope = decode_header(bare)
        found = Stamped([], [], [], [])
        try:
            decided = self.entry.resume(stamp, envelope.notification(), self._clock.time)
        except StentorError as error:  # more ways lead on from there than anybody can go
            _log.warning("%s goes no further: %s", scheduled.id, error)
            return found
        self._add(found, decided, bare, envelope, scheduled.key, scheduled.owner)
        return found

    def _add(
        self,
        found: Stamped,
        decided: Decided,
        data: bytes,
        original: Envelope,
        key: str | None,
        owner: str | None,
    ) -> None:
        """What was decided of one publication; other versions have ids of their own."""
        assert original.id is not None
        number = 0
        for stamp, version in decided.versions:
            if version is None:
                stamped, envelope = stamp.prefix + data, original
                original.put_stamp(stamp, stamped)
            else:
                try:
                    own = version.replace(id=version_of(original.id, number + 1))
                    stamped = stamp.prefix + encode(own)
                    envelope = decode_header(stamped)
                except StentorError:  # a mapping has made it larger than anything may be
                    continue
                number += 1
            if key is not None and stamp.keys != (WORDS,):
                found.keys.append((_kept_at(key, stamp), len(found.items)))
            found.items.append(stamped)
            found.envelopes.append(envelope)
        # What is delivered later anyway waits from then on.
        handling = original.handling
        wait = 0.0 if handling is None else max(0.0, handling.due - self._clock.time)
        for until, stamp, version in decided.later:
            id = version_of(original.id, number + 1)
            own = (original.notification() if version is None else version).replace(id=id)
            try:
                stamped = stamp.prefix + encode(own)
                decode_header(stamped)
            except StentorError:
                continue
            number += 1
            due = NEVER if until is None else until + wait
            found.waiting.append(Delayed(str(id), due, owner, key, stamped))
            if until is None:
                self.hold(str(id), Waiting.of(stamp))

    def may_delay(self, session: int) -> bool:
        """Whether policies may put off what a client publishes."""
        component = self.components.get(session)
        return component is not None and self.entry.may_delay(component)

    def may_let_go(self, envelope: Envelope) -> bool:
        """Whether it may let go of what policies hold."""
        return any(f.matches(envelope.facts) for f in self.entry.letting_go)

    def translated_places(self, session: int) -> frozenset[str]:
        """Where something of a client may arrive that is no longer what it has published."""
        component = self.components.get(session) if self.active else None
        return frozenset() if component is None else self.entry.translated_places(component)

    # -- the gate of deliveries

    def view(self, session: int) -> View | None:
        """What a client may see; None for everything, as where there is no graph."""
        component = self.components.get(session) if self.active else None
        return None if component is None else self.entry.view(component)

    def view_of(self, subscription: Subscription) -> View | None:
        """What whoever consumes a subscription may see; all members of a group see the same."""
        for consumer in subscription.consumers:
            view = self.view(consumer.session)
            # A group is no member: nothing is chosen for it.
            return view if view is None or subscription.group is None else view.shared
        return _BLIND

    def visible(
        self,
        subscription: Subscription,
        envelopes: Sequence[Envelope],
        indexes: Sequence[int],
        stamps: Collection[Stamp | None] | None = None,
    ) -> Sequence[int]:
        """Those of a batch that a subscription may be given.

        `stamps` are all that there are in the batch, if the caller has found them out.
        """
        view = self.view_of(subscription)
        if view is None:  # what was stamped under a graph that is not known here is for nobody
            view = _OUTSIDE
        if stamps is not None and len(stamps) <= FEW_STAMPS and all(map(view.sees, stamps)):
            return indexes
        sees: dict[int, bool] = {}  # by the stamp itself, which many share
        for i in indexes:
            stamp = envelopes[i].stamp
            if id(stamp) not in sees:
                sees[id(stamp)] = view.sees(stamp)
        if all(sees.values()):
            return indexes
        found = [i for i in indexes if sees[id(envelopes[i].stamp)]]
        self.counters["hidden"] += len(indexes) - len(found)
        return found

    def letter(self, subscription: Subscription, dead: bytes, producer: str) -> bytes:
        """The stamp of a dead letter: for the places of whom it could not be given to.

        If that one is gone, for those who could see what has died.
        """
        if not self.active:
            return b""
        places = getattr(self.view_of(subscription), "now", ())
        if not places and is_stamped(dead):
            places = tuple(key for key in split(dead)[0].keys if not key.startswith("@"))
        return Stamp(self.entry.epoch, producer, tuple(places)).prefix

    # -- why

    def hidden(self, subscription: Subscription, envelope: Envelope) -> str | None:
        """Why a subscription may not be given something, in words; None if it may."""
        view, stamp = self.view_of(subscription), envelope.stamp
        if view is None or view.sees(stamp):
            return None
        if stamp is None:
            return "hidden: it was published where there was no scope graph, to those in no scope"
        then = [
            key
            for key, spans in view.places.items()
            if any(since <= stamp.epoch and (u < 0 or stamp.epoch < u) for since, u in spans)
        ]
        seen, been = _places(stamp.keys), _places(then)
        return f"hidden by scopes: it was visible to {seen}, and the client was {been}"

    def hidden_from(self, within: Filter | None, envelope: Envelope) -> str | None:
        """The same of a subscription without a client, by what it was narrowed to; None for all."""
        if within is None or within.matches(envelope.facts):
            return None
        seen = _places(() if envelope.stamp is None else envelope.stamp.keys)
        return f"hidden by scopes: it was visible to {seen}, and not to the client"

    def stops(self, envelope: Envelope) -> list[str]:
        """Where on its way through the graph something is stopped, if its publisher is here."""
        stamp = envelope.stamp
        for component in self.components.values() if stamp is not None else ():
            if component.producer == stamp.publisher and envelope.id is not None:  # type: ignore[union-attr]
                found = self.entry.explain(component, envelope.notification())
                words = [str(each) for each in found.refusals]
                for each in found.postponed:
                    ends = each.child, each.parent
                    way = " → ".join(ends if each.upward else ends[::-1])
                    held = "held" if each.until is None else f"put off for {each.until:g} s"
                    words.append(f"{way}: {held} by a policy")
                return list(dict.fromkeys(e.replace(RESERVED, "") for e in words))[:MOST_STOPS]
        return []

    # -- names

    def group(self, session: Session, name: str) -> str:
        """By what a group is known: who sees something else is in another group of that name."""
        view = self.view(session.id)
        if view is None or view.outside:
            return name
        return f"{_digest(view.shared.now)}{OF}{name}"


def _note(saying: dict[tuple[str, str], set[int]], session: int, component: Component) -> None:
    for said in _texts(component):
        saying.setdefault(said, set()).add(session)


def _texts(component: Component) -> list[tuple[str, str]]:
    """What it says of itself in texts, as rules look at it."""
    return [(name, value) for name, value in component.facts.items() if isinstance(value, str)]


_BLIND: Final = View("", {}, False)
_OUTSIDE: Final = View("", {}, True)


def _places(keys: Iterable[str]) -> str:
    """Places in words."""
    named = [key[1:] for key in keys if key.startswith("=")]
    by_rule = [key.partition(":")[2].split(RESERVED) for key in keys if key[:1].isdigit()]
    words = [f"the component {id}" for id in named]
    words += [
        f"{of[0][1:]}, whom a policy of {place} has chosen"
        if of and of[0].startswith("=")
        else f"members of {', '.join((place, *of))}"
        for place, *of in by_rule
    ]
    words += ["those in no scope"] * (NOWHERE in keys)
    return ", ".join(words[:MOST_STOPS]) or "nobody but its publisher"


def check_names(filter: Filter) -> Filter:
    """The filter of a client, which must not ask about what is for brokers alone."""
    for name in filter.names:
        if name in HIDDEN:
            raise NotPermitted(f"{name} is for brokers alone; leave it out of the filter")
    return filter


def version_of(id: NotificationId, number: int) -> NotificationId:
    """The id of another version than the original.

    >>> str(version_of(NotificationId("ann@desk", 1, 7), 2))
    'ann@desk@2@:1:7'
    """
    return NotificationId(f"{id.producer}@{number}@", id.epoch, id.sequence)


def base_key(key: str) -> str:
    """The key of a last value, wherever it is visible."""
    return key.partition(AT)[0]


def _kept_at(key: str, stamp: Stamp) -> str:
    return f"{key}{AT}{_digest(stamp.keys)}"


def _digest(places: Sequence[str]) -> str:
    text = "\x00".join(sorted(p for p in places if not p.startswith("@")))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
