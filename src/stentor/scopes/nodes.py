"""The parts of a scope graph: its nodes, simple components and scopes, and its edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from stentor.filters import Filter
from stentor.scopes.interfaces import OMITTED, Interface
from stentor.scopes.mappings import EdgeMapping
from stentor.scopes.policies import Custom, Kind, Policy

#: Nothing is translated.
NO_MAPPING: Final = EdgeMapping()
#: What a node has besides its edges.
FEATURES: Final = (
    "id",
    "name",
    "is_scope",
    "abstract",
    "attributes",
    "roles",
    "interface",
    "everyone",
    "policies",
    "once",
    "admits",
    "definition",
    "begun",
)


class Edge:
    """A membership, and what the two ends have put on it.

    `labels` says why it is there: each rule, selection or call of `join` that asked for it has its
    label here, and the edge goes with the last of them.
    """

    __slots__ = ("child", "imposed", "labels", "mapping", "parent", "selective")

    def __init__(
        self,
        child: Node,
        parent: Node,
        selective: Interface = OMITTED,
        imposed: Interface = OMITTED,
        mapping: EdgeMapping = NO_MAPPING,
        labels: Iterable[str] = (),
    ) -> None:
        self.child = child
        self.parent = parent
        self.selective = selective
        self.imposed = imposed
        self.mapping = mapping
        self.labels = set(labels)

    @property
    def is_mapped(self) -> bool:
        return self.mapping is not NO_MAPPING and self.mapping != NO_MAPPING

    @property
    def carries(self) -> bool:
        """Whether notifications use it: abstract scopes only group (R-04.26)."""
        return not (self.child.abstract or self.parent.abstract)

    def __repr__(self) -> str:
        return f"Edge({self.child.id} → {self.parent.id})"


class Node:
    """A simple component, or a scope with its members."""

    __slots__ = (
        "abstract",
        "admits",
        "attributes",
        "begun",
        "children",
        "definition",
        "everyone",
        "group_members",
        "groups",
        "id",
        "interface",
        "is_scope",
        "name",
        "once",
        "parents",
        "policies",
        "roles",
        "subscopes",
    )

    def __init__(self, id: str, *, is_scope: bool, name: str = "", abstract: bool = False) -> None:
        self.id = id
        #: What it is called in its scope; several nodes may have the same name.
        self.name = name or id
        self.is_scope = is_scope
        self.abstract = abstract
        self.attributes: dict[str, Any] = {}
        self.roles: frozenset[str] = frozenset()
        #: The base interface; of a simple component, its subscriptions and advertisements.
        self.interface = OMITTED
        #: What a scope imposes on every member.
        self.everyone = OMITTED
        self.policies: dict[Kind, Policy | Custom] = {}
        #: Whether only the first version of a notification enters (duplicate mode `at_scope`).
        self.once = False
        #: Whose attributes must match to join; None admits everybody.
        self.admits: Filter | None = None
        #: The definition that it is an instance of.
        self.definition: str | None = None
        #: Whether a rule has made it, and no administrator.
        self.begun = False
        self.parents: dict[str, Edge] = {}
        self.children: dict[str, Edge] = {}
        #: Those of the children that are scopes.
        self.subscopes: dict[str, Edge] = {}
        #: Edges that carry nothing, because one end is abstract.
        self.groups: dict[str, Edge] = {}
        self.group_members: dict[str, Edge] = {}

    @property
    def facts(self) -> Mapping[str, Any]:
        """What rules and selections may ask about: attributes, and beside them name and roles.

        What a simple component says of itself cannot replace its name, its roles or its id: they
        decide which scopes it is let into.
        """
        own = {"_id": self.id, "roles": tuple(sorted(self.roles))}
        if self.is_scope:
            return {"name": self.name, **self.attributes, **own}
        return {**self.attributes, **own, "name": self.name}

    def __repr__(self) -> str:
        return f"{'Scope' if self.is_scope else 'Component'}({self.id!r})"
