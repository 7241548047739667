"""The 25 configurations of the portfolio, and imperfect merging besides (R-07.68).

Flooding; the four strategies among peers; all sixteen pairs of a strategy for subscriptions and one
for advertisements; the four strategies in a hierarchy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stentor.simulation import Network

#: Those that filter; flooding does not.
FILTERING: Final = ("simple", "identity", "covering", "merging")
LOOSENESS: Final = (0.1, 0.3, 0.6)


@dataclass(frozen=True)
class Configuration:
    """A strategy, with what goes with it."""

    routing: str
    advertisements: str | None = None
    hierarchy: bool = False
    looseness: float = 0.0

    @property
    def name(self) -> str:
        """
        >>> Configuration("simple", "covering").name, Configuration("merging", looseness=0.1).name
        ('simple × covering', 'merging, 0.1 loose')
        """
        name = f"hierarchy, {self.routing}" if self.hierarchy else self.routing
        if self.advertisements is not None:
            name += f" × {self.advertisements}"
        return f"{name}, {self.looseness} loose" if self.looseness else name

    @property
    def is_exact(self) -> bool:
        """Whether a notification only crosses links behind which somebody wants it."""
        return self.routing != "flooding" and not self.hierarchy and not self.looseness

    def network(
        self, edges: Iterable[tuple[int, int]], sample: Iterable[Mapping[str, Any]]
    ) -> Network:
        overlay = Network.hierarchy if self.hierarchy else Network.tree
        return overlay(
            edges, self.routing, self.advertisements, looseness=self.looseness, sample=sample
        )


CONFIGURATIONS: Final = (
    Configuration("flooding"),
    *(Configuration(routing) for routing in FILTERING),
    *(Configuration("merging", looseness=looseness) for looseness in LOOSENESS),
    *(
        Configuration(routing, advertisements)
        for routing in FILTERING
        for advertisements in FILTERING
    ),
    *(Configuration(routing, hierarchy=True) for routing in FILTERING),
)
