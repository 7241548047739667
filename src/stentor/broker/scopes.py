"""What administrators ask of a broker about scopes: to show the graph, and to change it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from stentor.broker.peers import ConnectedClient
from stentor.errors import InvalidScopeGraph, NotPermitted, ProtocolError, StentorError
from stentor.node.parts.scoping import MAX_GRAPH
from stentor.scopes.definition import decode

if TYPE_CHECKING:
    from stentor.broker.host import Broker


def asked(broker: Broker, arguments: dict[str, Any], client: ConnectedClient) -> Any:
    """The graph as it is here; with `deploy` or `change`, what has become of that.

    A question is short, so a graph comes in parts: with `more`, others follow. A change that was
    made for the graph of one epoch, `after`, is refused if there is a later one.
    """
    whole, change = arguments.get("deploy"), arguments.get("change")
    if whole is None and change is None:
        shown = broker.core.scoping.shown()
        operators = {each.producer for each in broker.clients.values() if each.is_operator}
        for key, names in shown["members"].items():
            shown["members"][key] = [name for name in names if name not in operators]
        others = broker.core.directory.others
        brokers = [{"broker": o.broker, "addresses": list(o.addresses)} for o in others]
        return {**shown, "broker": broker.name, "brokers": brokers}
    if not client.permissions.scopes:
        raise NotPermitted(
            f"{client.name!r} may not change the scope graph; set `scopes = true` in the grant if "
            "it should"
        )
    data = change if whole is None else whole
    if not isinstance(data, bytes):
        raise ProtocolError("a scope graph, or a change of it, is sent as bytes")
    client.parts += data
    if len(client.parts) > MAX_GRAPH:
        client.parts = b""
        raise InvalidScopeGraph(f"a graph has at most {MAX_GRAPH:,} bytes; make it smaller")
    if arguments.get("more"):
        return {}
    data, client.parts = client.parts, b""
    after = arguments.get("after")
    if after is not None and not isinstance(after, int):
        raise ProtocolError("an epoch is a whole number")
    return _deployed(broker, data, whole is not None, bool(arguments.get("take_over")), after)


async def _deployed(
    broker: Broker, data: bytes, whole: bool, take_over: bool, after: int | None
) -> Any:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def then(error: StentorError | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    change = await asyncio.to_thread(decode, data)
    records = {record.key: record for record in change.put} if whole else None
    scoping = broker.core.scoping
    change_only = None if whole else change
    scoping.deploy(records, then, change=change_only, take_over=take_over, after=after)
    broker.changed()
    await done
    return {"epoch": broker.core.scopes.entry.epoch, "broker": broker.name}
