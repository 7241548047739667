"""Rendezvous routing: filters and notifications meet at a broker that both find by a name."""

from stentor.routing.rendezvous.axes import Axis
from stentor.routing.rendezvous.boxes import BoxRouter, BoxSpace
from stentor.routing.rendezvous.key_router import KeyRendezvousRouter
from stentor.routing.rendezvous.mappings import AttributeSplit, KeySpaceSplit, SelectiveAttribute
from stentor.routing.rendezvous.pastry import Pastry, key_of, number_of
from stentor.routing.rendezvous.topics import TopicRouter
from stentor.routing.rendezvous.types import TypeRendezvousRouter

__all__ = [
    "AttributeSplit",
    "Axis",
    "BoxRouter",
    "BoxSpace",
    "KeyRendezvousRouter",
    "KeySpaceSplit",
    "Pastry",
    "SelectiveAttribute",
    "TopicRouter",
    "TypeRendezvousRouter",
    "key_of",
    "number_of",
]
