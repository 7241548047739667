"""What UPDATE rules wait for, as the broker notices it at which a publication enters.

A rule sees what its scope sees: that something is published there, or consumed by somebody. Both
are known where a publication enters, since it is decided there who may see it; who consumes it is
whoever has subscribed to it, as brokers tell each other (`stentor.scopes.roster`). So that broker
says of a publication that concerns a rule what has happened, to the broker that orders changes of
the graph. That one carries the rules out, by `stentor.scopes.language.reactions`.

Rules are known here by what they wait for, and where, and no more (`UpdateData`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from stentor.filters import Filter
from stentor.model import Notification
from stentor.model.codec import encode
from stentor.scopes.definition import Record, UpdateData, WatchData
from stentor.scopes.dissemination import Outcome
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.nodes import Node
from stentor.scopes.roster import Roster, facts_of

#: A component: its name, and what it says of itself.
Party: TypeAlias = tuple[str, dict[str, Any]]


class Happened(Struct, array_like=True, frozen=True):
    """What has become of one publication, as far as it concerns rules."""

    publisher: Party
    #: Encoded versions, each with the scopes that saw it.
    seen: list[tuple[bytes, list[str]]]
    #: Encoded versions, each with who consumed it.
    consumed: list[tuple[bytes, list[Party]]]
    #: All scopes with rules that saw it in any version.
    scopes: list[str]

    @property
    def data(self) -> bytes:
        return _encoder.encode(self)

    @classmethod
    def of(cls, data: bytes) -> Happened:
        return _decoder.decode(data)


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Happened)


class _Watch(NamedTuple):
    """What one rule waits for."""

    said: WatchData
    definition: str
    filters: tuple[Filter, ...]
    condition: Filter

    def matches(self, n: Notification) -> bool:
        return any(each.matches(n) for each in self.filters)

    def holds(self, n: Notification, trigger: Mapping[str, Any]) -> bool:
        """Whether its condition may hold, for all that is known of the trigger."""
        return self.condition.matches({self.said.binds: dict(n), "TRIGGER": trigger})


class Watches:
    """What the rules of a graph wait for, and at which scopes."""

    def __init__(self, graph: ScopeGraph, records: Iterable[Record]) -> None:
        self._graph = graph
        self._creating: list[tuple[frozenset[str] | None, _Watch]] = []
        self._following: dict[str, list[_Watch]] = {}
        for record in records:
            if isinstance(record, UpdateData):
                scopes = None if record.scopes is None else frozenset(record.scopes)
                for said in record.watches:
                    filters = tuple(map(Filter, said.filters))
                    watch = _Watch(said, record.definition, filters, Filter(said.condition))
                    if said.creates:
                        self._creating.append((scopes, watch))
                    else:
                        self._following.setdefault(record.definition, []).append(watch)
        every = [watch for _, watch in self._creating]
        every += [watch for watches in self._following.values() for watch in watches]
        #: Whether it has to be known who consumes what.
        self.consumption = any(watch.said.consumed for watch in every)

    def __bool__(self) -> bool:
        return bool(self._creating or self._following)

    def concern(self, scope: str) -> bool:
        """Whether a rule sees what happens in a scope."""
        return any(True for _ in self._at(scope))

    def _at(self, scope: str) -> Iterator[tuple[_Watch, str | None]]:
        """The rules that see what happens in a scope; with the scope if they are armed in it."""
        for scopes, watch in self._creating:
            if scopes is None or scope in scopes:
                yield watch, None
        node = self._graph.nodes.get(scope)
        for watch in self._following.get(node.definition or "", ()) if node is not None else ():
            yield watch, scope

    def noticed(
        self, outcome: Outcome, own: Node, publisher: Party, roster: Roster
    ) -> Happened | None:
        """What has to be said of a publication; None if it concerns no rule."""
        seen: dict[Notification, dict[str, None]] = {}
        reached: dict[str, None] = {}
        waiting: list[tuple[_Watch, str | None]] = []
        said_it = self._facts(*publisher)
        for each in outcome.reached:
            reached[each.scope] = None
            for watch, scope in self._at(each.scope):
                if watch.said.consumed:
                    waiting.append((watch, scope))
                elif watch.matches(each.notification) and watch.holds(each.notification, said_it):
                    seen.setdefault(each.notification, {})[each.scope] = None
                    if watch.said.creates:  # the scope that is created sees who consumes this
                        waiting += [(w, None) for w in self._following.get(watch.definition, ())]
        rules = [each for each in waiting if each[0].said.consumed]
        consumed: list[tuple[bytes, list[Party]]] = []
        for delivery in outcome.deliveries if rules else ():
            n, is_own = delivery.notification, delivery.consumer == own.id
            concerned = [(watch, scope) for watch, scope in rules if watch.matches(n)]
            who = publisher[0] if is_own else delivery.consumer
            parties = [
                (name, attributes)
                for name, attributes in roster.consumers(who, n)
                if (is_own or name != publisher[0])
                and any(self._may_react(w, s, n, name, attributes) for w, s in concerned)
            ]
            if parties:
                consumed.append((_bytes(n), parties))
        if not seen and not consumed:
            return None
        return Happened(
            publisher,
            [(_bytes(n), list(scopes)) for n, scopes in seen.items()],
            consumed,
            [scope for scope in reached if self.concern(scope)],
        )

    def _may_react(
        self,
        watch: _Watch,
        scope: str | None,
        n: Notification,
        consumer: str,
        attributes: Mapping[str, Any],
    ) -> bool:
        """Whether something may follow of it that somebody has consumed this."""
        facts = self._facts(consumer, attributes)
        if not watch.holds(n, facts):
            return False
        if not watch.said.joins or scope is None:
            return True
        node = self._graph.nodes.get(consumer)
        if node is not None and not node.is_scope:
            return scope not in node.parents
        return all(rule.scope != scope for rule in self._graph.rules.matching(facts))

    def _facts(self, name: str, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        node = self._graph.nodes.get(name)
        is_named = node is not None and not node.is_scope
        return node.facts if is_named and node is not None else facts_of(name, attributes)


def _bytes(n: Notification) -> bytes:
    return encode(n.replace(payload=b""))
