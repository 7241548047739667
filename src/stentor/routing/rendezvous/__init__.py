"""Rendezvous routing: filters and notifications meet at a broker found by the name of a type."""

from stentor.routing.rendezvous.pastry import Pastry, key_of, number_of
from stentor.routing.rendezvous.router import RendezvousRouter
from stentor.routing.rendezvous.types import TypeRendezvousRouter

__all__ = ["Pastry", "RendezvousRouter", "TypeRendezvousRouter", "key_of", "number_of"]
