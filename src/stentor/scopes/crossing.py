"""How a notification crosses one edge: the effective interface, in the order that counts.

Upwards: base output, selective output, mapping, imposed output, output imposed on everyone.
Downwards: the same from the other end. So base and selective filters speak the member's data model,
imposed ones that of the scope (R-04.43, 04/T15). `None` is ε.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from stentor.model import Notification
from stentor.scopes.expressions import Tables
from stentor.scopes.interfaces import passes
from stentor.scopes.mappings import apply
from stentor.scopes.nodes import Edge


class Interests(Protocol):
    """Who subscribes to what, if somebody knows it better than the declared interfaces."""

    def matching(self, notification: Notification) -> Collection[str] | None:
        """All components with a subscription that matches, or None: ask one by one."""

    def subscribed(self, component: str, notification: Notification) -> bool:
        """Whether this one has a subscription that matches."""


class Crossing:
    """Edges of one graph, evaluated: `up` and `down` answer with what arrives, or None.

    With `told`, every refusal is reported in words: by which part of which edge.
    """

    __slots__ = ("_interests", "_open", "_tables", "_told")

    def __init__(
        self,
        *,
        open_by_default: bool,
        tables: Tables,
        interests: Interests | None = None,
        told: Callable[[Edge, bool, str], None] | None = None,
    ) -> None:
        self._open = open_by_default
        self._tables = tables
        self._interests = interests
        self._told = told

    def up(self, edge: Edge, n: Notification) -> Notification | None:
        """From the member into the scope."""
        child, parent = edge.child, edge.parent
        omitted = self._open or not child.is_scope
        if not passes(child.interface.output, n, omitted=omitted):
            return self._refused(edge, True, "the output interface of {child}")
        if not passes(edge.selective.output, n, omitted=True):
            return self._refused(edge, True, "the selective interface of {child}")
        mapped = apply(edge.mapping.up, n, self._tables)
        if mapped is None:
            return self._refused(edge, True, "the mapping")
        if not passes(edge.imposed.output, mapped, omitted=True):
            return self._refused(edge, True, "the interface imposed on {child}")
        if not passes(parent.everyone.output, mapped, omitted=True):
            return self._refused(edge, True, "the interface that {parent} imposes on everyone")
        return mapped

    def down(self, edge: Edge, n: Notification) -> Notification | None:
        """From the scope into the member; a simple one has to have subscribed to what arrives."""
        mapped = self.entering(edge, n)
        if mapped is None:
            return None
        child = edge.child
        if not child.is_scope and self._interests is not None:
            if not self._interests.subscribed(child.id, mapped):
                return self._refused(edge, False, "no subscription of {child}")
            return mapped
        if not passes(child.interface.input, mapped, omitted=self._open or not child.is_scope):
            what = "the input interface" if child.is_scope else "no subscription"
            return self._refused(edge, False, what + " of {child}")
        return mapped

    def entering(self, edge: Edge, n: Notification) -> Notification | None:
        """`down` up to the member's own interface, which is not tested."""
        parent = edge.parent
        if not passes(parent.everyone.input, n, omitted=True):
            return self._refused(edge, False, "the interface that {parent} imposes on everyone")
        if not passes(edge.imposed.input, n, omitted=True):
            return self._refused(edge, False, "the interface imposed on {child}")
        mapped = apply(edge.mapping.down, n, self._tables)
        if mapped is None:
            return self._refused(edge, False, "the mapping")
        if not passes(edge.selective.input, mapped, omitted=True):
            return self._refused(edge, False, "the selective interface of {child}")
        return mapped

    def _refused(self, edge: Edge, upward: bool, by: str) -> Notification | None:
        """ε, and the reason for whoever wants to hear it."""
        if self._told is not None:
            self._told(edge, upward, by.format(child=edge.child.id, parent=edge.parent.id))
        return None
