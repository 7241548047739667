"""The ways that streams take through the overlay: what parts of a broker ask, whatever its shape.

In a tree `stentor.node.streams` answers, in a graph `stentor.node.graph_directory`.
"""

from __future__ import annotations

from typing import Protocol

from stentor.node.streams import Sends
from stentor.protocol.messages import Origin, StreamId, Streams
from stentor.routing.protocol import BrokerId


class Ways(Protocol):
    """Which brokers there are, and in which direction.

    A stream comes through one neighbor, in order. If that may have changed, or something was lost
    on the way, it *begins afresh*, and who needs all of it has to ask its journal.
    """

    own: Origin

    @property
    def others(self) -> list[Origin]:
        """All other brokers that can be reached."""

    @property
    def entering(self) -> tuple[Origin, ...]:
        """The streams that enter at this broker."""

    @property
    def reserve(self) -> set[str]:
        """Neighbors through which a stream comes that comes through another one as well."""

    @property
    def allows_cycles(self) -> bool:
        """Whether links may form cycles."""

    @property
    def is_settled(self) -> bool:
        """Whether links lead to all brokers that have to be asked, as far as is known."""

    @property
    def spreads_marks(self) -> bool:
        """Whether all are told how far a stream is, also those to whom nothing of it comes."""

    def hearers(self, stream: StreamId) -> list[str]:
        """The neighbors that are told from here how far the stream is."""

    def announce_as(self, own: Origin) -> None:
        """By what others know this broker; to be said before the first link is made."""

    def origin(self, stream: StreamId) -> Origin | None:
        """The broker of a stream, as far as it can be reached."""

    def root(self, stream: StreamId) -> BrokerId:
        """The broker at which the stream enters the overlay."""

    def reaches(self, stream: StreamId) -> bool:
        """Whether there is a way to the stream, or it is here."""

    def towards(self, stream: StreamId) -> str | None:
        """The neighbor through which the stream comes."""

    def relay(self, stream: StreamId) -> str | None:
        """The neighbor that passes on what is for the broker of a stream."""

    def leads(self, stream: StreamId, neighbor: str) -> bool:
        """Whether what comes of the stream goes on to this neighbor."""

    def children(self, stream: StreamId) -> list[str]:
        """The neighbors to which all goes on that comes of the stream."""

    def behind(self, neighbor: str, origin: StreamId | None = None) -> list[Origin]:
        """The brokers that are reached through this neighbor; by what comes of `origin`, too."""

    def adopt(self, stream: StreamId) -> tuple[Origin, Sends]:
        """Answer for the stream of a broker that is gone from now on; messages."""

    def link_up(self, neighbor: str) -> Streams | None:
        """A new link: what the neighbor is to be told."""

    def link_down(self, neighbor: str) -> tuple[list[Origin], list[StreamId], Sends]:
        """A link is gone: streams that begin afresh, those that are gone, and messages."""

    def changed(self) -> tuple[list[Origin], list[StreamId], Sends]:
        """The router may have heard something: the same."""

    def heard(self, neighbor: str, message: Streams) -> tuple[list[Origin], Sends, bool]:
        """News from a neighbor: streams that begin afresh, messages, whether there is a cycle."""
