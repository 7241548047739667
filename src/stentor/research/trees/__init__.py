"""Trees whose routers carry notifications themselves, so that links can be replaced as planned."""

from stentor.research.trees.change import CHANGE_MESSAGES, Plan
from stentor.research.trees.router import CarryingRouter

__all__ = ["CHANGE_MESSAGES", "CarryingRouter", "Plan"]
