"""The broker's whole decision logic, without input or output: a router and its clients."""

from stentor.node.gate import Gate, Policy, Reason
from stentor.node.node import Node

__all__ = ["Gate", "Node", "Policy", "Reason"]
