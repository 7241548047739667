"""Rendezvous by content: filters and notifications meet where a mapping of values sends them."""

from stentor.research.rendezvous.axes import Axis
from stentor.research.rendezvous.boxes import BoxRouter, BoxSpace
from stentor.research.rendezvous.key_router import KeyRendezvousRouter
from stentor.research.rendezvous.mappings import AttributeSplit, KeySpaceSplit, SelectiveAttribute
from stentor.research.rendezvous.topics import TopicRouter

__all__ = [
    "AttributeSplit",
    "Axis",
    "BoxRouter",
    "BoxSpace",
    "KeyRendezvousRouter",
    "KeySpaceSplit",
    "SelectiveAttribute",
    "TopicRouter",
]
