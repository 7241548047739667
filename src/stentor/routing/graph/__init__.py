"""Routing on generic graphs: cycles are allowed, links and brokers may come and go."""

from stentor.routing.graph.router import GraphRouter

__all__ = ["GraphRouter"]
