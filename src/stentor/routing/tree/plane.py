"""A plane: everything one broker knows for routing on one tree.

A plane is the layer of subscriptions and, where advertisements are in use, the layer of
advertisements, coupled: a subscription is announced to a neighbor only while an advertisement from
there overlaps it (R-03.27 to R-03.29). When an advertisement comes or goes, exactly those
subscriptions that overlap it are decided anew. What a neighbor is told no longer serves is
withdrawn by a message, as any other withdrawal; the printed protocol lets the receiver drop it
silently, and then both ends can disagree (03/X-03.27).

Links have roles (R-03.31, R-03.33). Among peers filters go both ways. In a hierarchy filters go to
the parent only, and notifications always go to the parent; without a parent, a broker is the root
of its subtree, and its peers are told what the whole subtree asks for. Advertisements count only
towards peers. The children of a flooded subtree get every notification.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stentor.filters import Filter
from stentor.matching import Commons, Matcher
from stentor.model.codec import Envelope
from stentor.model.notification import Notification
from stentor.routing.messages import (
    AdvertisementUpdate,
    SubscriptionUpdate,
    Update,
    update,
)
from stentor.routing.protocol import BrokerId, Place
from stentor.routing.reducers import Change, Sample
from stentor.routing.reducers.sample import OBSERVED
from stentor.routing.strategy import Strategy
from stentor.routing.table import Destination, Ghost, Neighbor, Row
from stentor.routing.tree.layer import Layer
from stentor.routing.tree.steering import Steering


@dataclass(frozen=True)
class Role:
    """A broker's place in a hierarchy. Neighbors that are neither parent nor child are peers."""

    parent: BrokerId | None = None
    children: frozenset[BrokerId] = frozenset()
    #: Whether the children get every notification.
    flooded: bool = False

    def tells(self, neighbor: BrokerId) -> bool:
        """Whether the neighbor is told what this broker and its subtree ask for."""
        if self.parent is not None:
            return neighbor == self.parent
        return neighbor not in self.children

    def always(self, neighbor: BrokerId) -> bool:
        """Whether every notification goes to the neighbor."""
        return neighbor == self.parent or (self.flooded and neighbor in self.children)


class Plane:
    """Layers of filters, and where notifications go."""

    def __init__(
        self,
        routing: Strategy,
        advertisements: Strategy | None = None,
        role: Role | None = None,
        engine: Callable[[], Matcher[Any]] | None = None,
        *,
        commons: Commons | None = None,
        coupled: bool = True,
        at_once: int | None = None,
    ) -> None:
        """Advertisements that are not `coupled` spread, but subscriptions do not depend on them."""
        self.role = role or Role()
        self._sample = Sample(routing.sample)
        self.subscriptions = Layer(
            routing, sample=self._sample, engine=engine, commons=commons, at_once=at_once
        )
        self.advertisements: Layer | None = None
        self._steering = Steering()
        #: Whether subscriptions go only where something that overlaps them is advertised.
        self.is_coupled = coupled and advertisements is not None and not advertisements.floods
        if advertisements is not None:
            self.advertisements = Layer(
                advertisements,
                on_entry=self._offer if self.is_coupled else None,
                at_once=at_once,
            )
            if self.is_coupled:
                self.subscriptions.steer(self._steering, self._is_parent)
        both = (self.advertisements, self.subscriptions)
        self._layers = [layer for layer in both if layer is not None]

    # -- neighbors

    def place(self, neighbor: BrokerId, place: Place) -> None:
        """What the neighbor is to this broker from now on."""
        role = self.role
        parent = None if role.parent == neighbor else role.parent
        children = role.children - {neighbor}
        if place == "parent":
            parent = neighbor
        elif place == "child":
            children |= {neighbor}
        self.role = replace(role, parent=parent, children=children)

    def add_neighbor(self, neighbor: BrokerId) -> None:
        told = self.role.tells(neighbor)
        if self.advertisements is not None:
            self.advertisements.add_neighbor(neighbor, told=told)
        self.subscriptions.add_neighbor(neighbor, told=told)

    def is_joining(self, neighbor: BrokerId) -> bool:
        """Whether the neighbor has not been told all that is asked for and offered."""
        return any(layer.is_joining(neighbor) for layer in self._layers)

    def drop_neighbor(self, neighbor: BrokerId) -> None:
        self.forget_neighbor(neighbor)
        self.clear(Neighbor(neighbor))

    def forget_neighbor(self, neighbor: BrokerId) -> None:
        """The neighbor is told nothing any more; what it asked for stays."""
        for layer in self._layers:
            layer.forget_neighbor(neighbor)

    # -- filters come and go

    def insert(
        self, kind: type[Update], destination: Destination, key: Hashable, filter: Filter
    ) -> None:
        """The destination asks for this, or offers it."""
        layer = self._layer(kind)
        if layer is not None:
            layer.insert(destination, key, filter)
            self.subscriptions.steered()

    def delete(self, kind: type[Update], destination: Destination, key: Hashable) -> None:
        """It no longer does."""
        layer = self._layer(kind)
        if layer is not None:
            layer.delete(destination, key)
            self.subscriptions.steered()

    def apply(self, sender: BrokerId, message: Update) -> None:
        """A neighbor's change, in one step: additions first, so that nothing is gone between."""
        layer = self._layer(type(message))
        if layer is None:
            return
        destination = Neighbor(sender)
        merge = layer.strategy.name == "merging" and _only_widens(message)
        for key, filter in message.added:
            layer.insert(destination, key, filter, merge=merge)
        for key in message.removed:
            layer.delete(destination, key)
        self.subscriptions.steered()

    def asks(self, neighbor: BrokerId) -> bool:
        """Whether the neighbor asks for anything, or offers anything."""
        return any(layer.table.size(Neighbor(neighbor)) for layer in self._layers)

    def clear(self, neighbor: Neighbor, most: int | None = None) -> None:
        """The neighbor asks for nothing any more, and offers nothing."""
        for layer in self._layers:
            layer.clear(neighbor, most)
        self.subscriptions.steered()

    def linger(self, neighbor: BrokerId, ghost: Ghost) -> None:
        """Like `drop_neighbor`, but the others are not told yet."""
        self.forget_neighbor(neighbor)
        for layer in self._layers:
            layer.linger(Neighbor(neighbor), ghost)
        self.subscriptions.steered()

    def end_linger(self, ghost: Ghost) -> None:
        for layer in self._layers:
            layer.end_linger(ghost)
        self.subscriptions.steered()

    def copy_entries(self, other: Plane, destination: Destination) -> None:
        """Ask for what the destination asks for in the other plane."""
        for mine, theirs in zip(self._layers, other._layers, strict=True):
            for key, filter in theirs.asked(destination):
                mine.insert(destination, key, filter)
        self.subscriptions.steered()

    def differences(self, other: Plane, neighbor: BrokerId) -> list[Update]:
        """What a neighbor that was told by the other plane must be told to be told by this one."""
        updates: list[Update] = []
        for kind in (AdvertisementUpdate, SubscriptionUpdate):
            mine, theirs = self._layer(kind), other._layer(kind)
            if mine is not None and theirs is not None:
                now, before = mine.announced(neighbor), theirs.announced(neighbor)
                added = {key: now[key] for key in now if key not in before}
                removed = {key: before[key] for key in before if key not in now}
                if added or removed:
                    updates.append(update(kind, Change(added, removed)))
        return updates

    @property
    def destinations(self) -> list[Destination]:
        """All that ask for something, or offer something."""
        found = [d for layer in self._layers for d in layer.table.destinations]
        return list(dict.fromkeys(found))

    def _layer(self, kind: type[Update]) -> Layer | None:
        return self.advertisements if kind is AdvertisementUpdate else self.subscriptions

    # -- advertisements serve subscriptions

    def _offer(self, destination: Destination, row: Row) -> None:
        """An entry of advertisements has come or gone."""
        if isinstance(destination, Neighbor):
            there = destination in row.owners
            (self._steering.offer if there else self._steering.withdraw)(destination.id, row.filter)

    def _is_parent(self, neighbor: BrokerId) -> bool:
        """A parent gets everything that its subtree asks for, whatever it offers."""
        return neighbor == self.role.parent

    # -- what results

    @property
    def is_serving(self) -> bool:
        """Whether `work` has to go on before neighbors are asked for all that they offer."""
        return self.subscriptions.is_serving

    @property
    def has_work(self) -> bool:
        for layer in self._layers:  # noqa: SIM110, asked often, and `any` takes twice as long
            if layer.has_work:
                return True
        return False

    def work(self) -> None:
        """Do a part of what the changes have left to do."""
        for layer in self._layers:
            layer.work()

    def take(self) -> list[tuple[BrokerId, Update]]:
        """What each neighbor is to be told now, advertisements first."""
        updates: list[tuple[BrokerId, Update]] = []
        if self.advertisements is not None:
            changes = self.advertisements.take()
            updates += [(to, update(AdvertisementUpdate, change)) for to, change in changes]
        changes = self.subscriptions.take()
        updates += [(to, update(SubscriptionUpdate, change)) for to, change in changes]
        return updates

    def targets_of(
        self, events: Sequence[Envelope | Notification], sender: BrokerId | None, most: int | None
    ) -> tuple[int, dict[Destination, list[int]]]:
        """For each destination, never the sender, the indexes of what goes there, ascending.

        With `most`, for as many leading events as cost about that much to pass on; their number
        comes first.
        """
        if self.subscriptions.strategy.looseness:  # nothing else asks for the sample
            for event in events[-OBSERVED:]:
                known = event if isinstance(event, Notification) else event.notification()
                self._sample.observe(known)
        table = self.subscriptions.table
        if most is None:
            count, found = len(events), table.targets_of(events)
        else:
            count, found = table.targets_of_leading(events, most)
        if sender is not None:
            found.pop(Neighbor(sender), None)
        floods = self.subscriptions.strategy.floods
        for neighbor in self.subscriptions.neighbors:
            if neighbor != sender and (floods or self.role.always(neighbor)) and events:
                found[Neighbor(neighbor)] = list(range(count))
        return count, found

    @property
    def is_empty(self) -> bool:
        return all(layer.is_empty for layer in self._layers) and self._steering.is_empty


def _only_widens(message: Update) -> bool:
    """Whether all that goes is covered by what comes: a new interest, not the end of one.

    What takes the place of a withdrawn filter may soon be withdrawn as well; merging waits for
    something new (03/A7).
    """
    return all(
        isinstance(gone, Filter) and any(filter.covers(gone) for _, filter in message.added)
        for gone in message.removed
    )
