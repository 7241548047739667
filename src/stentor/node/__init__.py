"""The broker's whole decision logic, without input or output.

`stentor.node.core` is what brokers run, made of the parts in `stentor.node.parts`. `Node` is
a router and its clients, on any overlay, for the simulator.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stentor.node.gate import Gate, Policy, Reason
    from stentor.node.node import Node

__all__ = ["Gate", "Node", "Policy", "Reason"]

_PLACES = {"Gate": "gate", "Policy": "gate", "Reason": "gate", "Node": "node"}


def __getattr__(name: str) -> Any:
    # Clients use some parts of this package, and can do without the matching engine.
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(f"stentor.node.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
