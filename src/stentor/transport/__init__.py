"""Connections that carry the protocol's messages: TCP, TLS, Unix sockets, within the process.

`serve` and `connect` take an address and a handler, and give both sides a `Connection`. Everything
works on any asyncio event loop.
"""

from stentor.transport.address import DEFAULT_PORT, Address
from stentor.transport.connection import Connection, Handler, Room
from stentor.transport.connector import connect
from stentor.transport.listener import Listener, serve
from stentor.transport.rota import Rota
from stentor.transport.tls import client_context, peer_name, server_context

__all__ = [
    "DEFAULT_PORT",
    "Address",
    "Connection",
    "Handler",
    "Listener",
    "Room",
    "Rota",
    "client_context",
    "connect",
    "peer_name",
    "serve",
    "server_context",
]
