"""Values that a shell completes: error codes, settings, durable subscriptions of a broker.

Nothing here may take long or say anything: a shell waits for it with every press of a key.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

#: Seconds in which a broker has to answer.
_PATIENCE: Final = 0.5


def codes(given: dict[str, Any]) -> list[str]:
    """What `stentor explain` knows."""
    from stentor.broker.config_keys import broker_keys
    from stentor.cli.explanations import explanations

    return [*explanations(), *(key.dotted for key in broker_keys()), "errors", "settings"]


def durables(given: dict[str, Any]) -> list[str]:
    """Names of the durable subscriptions that the broker on the command line knows."""
    import asyncio
    from dataclasses import replace

    from stentor.cli.operator import Operator
    from stentor.cli.options import LOCAL, connecting, is_address

    named = given.get("how")
    address = named if isinstance(named, str) and is_address(named) else LOCAL
    shared = ("token", "tls_ca", "tls_certificate", "tls_key")

    options: dict[str, Any] = {name: given.get(name) for name in shared}

    async def ask() -> list[str]:
        how = connecting(address, **options)
        async with asyncio.timeout(_PATIENCE), Operator(replace(how, timeout=_PATIENCE)) as broker:
            return [each["name"] for each in await broker.ask("durables")]

    with contextlib.suppress(Exception):  # whatever is wrong, there is nothing to complete
        return asyncio.run(ask())
    return []
