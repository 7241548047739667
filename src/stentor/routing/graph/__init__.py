"""Routing on generic graphs: cycles are allowed, links and brokers may come and go.

`GraphRouter` is the one to use. `FirstArrivalRouter` is the simple routing in cycles of the
literature, in which each change finds its own way.
"""

from stentor.routing.graph.router import GraphRouter
from stentor.routing.graph.simple_cycles import FirstArrivalRouter

__all__ = ["FirstArrivalRouter", "GraphRouter"]
