"""Routing on trees: acyclic peers, hierarchies, and hybrids of both."""

from stentor.routing.tree.plane import Role
from stentor.routing.tree.router import TreeRouter

__all__ = ["Role", "TreeRouter"]
