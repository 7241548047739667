"""What operators see of durable subscriptions, and what they can do about them.

Every broker knows all names and where each lives. Positions, and how far it is behind, are known at
its home; there it is reset and deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stentor.errors import (
    DurableElsewhere,
    InvalidConfiguration,
    ProtocolError,
    ShuttingDown,
    StentorError,
)
from stentor.node.core import Core
from stentor.node.durable import Durable
from stentor.node.last_values import label
from stentor.node.parts.durables import Hear
from stentor.protocol import messages as m

if TYPE_CHECKING:
    from stentor.broker.host import Broker

#: Refused notifications that are shown of one durable subscription.
SHOWN: Final = 100


def asked(broker: Broker, arguments: dict[str, Any]) -> Any:
    """Answer the question "durables": all, one by its `name`, or what to do with that."""
    core = broker.core
    name = arguments.get("name")
    if name is None:
        return [_listed(core, home) for home in core.homes.registry if home.broker is not None]
    if not isinstance(name, str):
        raise ProtocolError(f"name={name!r} is not a name of a durable subscription")
    home = _named(core, name)
    name = home.name
    match arguments.get("do"):
        case None:
            found = _listed(core, home) | {"copy": core.homes.copied(name)}
            durable = core.durables.get(name)
            return found if durable is None else found | {"resting": _resting(core, durable)}
        case "reset":
            to = arguments.get("to")
            if not isinstance(to, int | float) or to != to:
                raise ProtocolError(f"to={to!r} is not a time; give seconds since 1970")
            reset = partial(core.homes.reset, _held(core, home), float(to))
            return _stored(broker, reset, home)
        case "delete":
            return _stored(broker, partial(core.homes.remove, _held(core, home)), home)
        case "move":
            if core.homes.paused:
                raise ShuttingDown("this broker is being removed; move it to another")
            return _stored(broker, partial(core.homes.fetch, name), home)
        case other:
            raise ProtocolError(f"a durable subscription cannot {other!r}")


def _stored(broker: Broker, act: Callable[[Hear], None], home: m.Home) -> Awaitable[Any]:
    """Do something with one, and answer when it is on disk."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def hear(error: StentorError | None) -> None:
        if done.done():
            pass  # it is tried again until it is on disk
        elif error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    async def answer() -> Any:
        await done
        return _listed(broker.core, broker.core.homes.registry.get(home.name) or home)

    act(hear)
    broker.changed()
    return answer()


def _named(core: Core, text: str) -> m.Home:
    """The one that its subscriber calls so; or GRANT/NAME, if several do."""
    found: list[m.Home] = [
        home
        for home in core.homes.registry
        if home.broker is not None
        and text in (home.name, label(home.name), f"{home.owner}/{label(home.name)}")
    ]
    if not found:
        raise InvalidConfiguration(f"there is no durable subscription {text!r} in this overlay")
    if len(found) > 1:
        names = ", ".join(f"{home.owner}/{text}" for home in found)
        raise InvalidConfiguration(f"several grants have a durable subscription {text!r}: {names}")
    return found[0]


def _held(core: Core, home: m.Home) -> Durable:
    durable = core.durables.get(home.name)
    if durable is None:
        assert home.broker is not None
        places = " or ".join(home.broker.addresses)
        hint = f"; ask {places or 'that broker'}"
        if core.directory.origin(home.broker.stream) is None:
            hint = ", which cannot be reached; wait for it, or `move` it to this broker first"
        raise DurableElsewhere(
            f"the durable subscription {label(home.name)!r} lives at broker "
            f"{home.broker.broker!r}{hint}"
        )
    return durable


def _listed(core: Core, home: m.Home) -> dict[str, Any]:
    assert home.broker is not None
    origin = core.directory.origin(home.broker.stream)
    found: dict[str, Any] = {
        "name": label(home.name),
        "home": home.broker.broker,
        "addresses": list((origin or home.broker).addresses),
        "reachable": origin is not None,
        "term": home.term,
        "since": home.since,
        "owner": home.owner,
    }
    durable = core.durables.get(home.name)
    if durable is None:
        return found
    heads = core.homes.heads()
    behind = {s: max(0, head - durable.positions.get(s, 0)) for s, head in heads.items()}
    return found | {
        "filter": str(durable.interest),
        "group": durable.group,
        "attached": core.is_attached(durable),
        "positions": dict(durable.positions),
        "lag": sum(behind.values()),
        "behind": {stream: count for stream, count in behind.items() if count},
        "oldest": _age(core, durable),
        "refused": sum(map(len, durable.refused.values())),
    }


def _age(core: Core, durable: Durable) -> float | None:
    """Seconds since the oldest was published that is not confirmed."""
    since = core.homes.waiting_since(durable)
    return None if since is None else max(0.0, core.clock.time - since)


def _resting(core: Core, durable: Durable) -> list[dict[str, Any]]:
    """What its subscribers have refused, those first that come again soonest."""
    found: list[dict[str, Any]] = [
        {
            "stream": stream,
            "offset": offset,
            "attempts": refusal.attempts,
            "due": refusal.left(core.clock.time),
            "cause": refusal.cause,
        }
        for stream, refused in durable.refused.items()
        for offset, refusal in refused.items()
    ]
    return sorted(found, key=lambda each: each["due"])[:SHOWN]
