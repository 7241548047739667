"""`stentor status`: everything about a running broker."""

from __future__ import annotations

from typing import Annotated, Final

from stentor.cli.command import Option
from stentor.cli.options import BrokerArgument, JsonOption, asks

#: Rows of a table, unless all are asked for.
ROWS: Final = 20


@asks
def status(
    how: BrokerArgument,
    watch: Annotated[
        bool,
        Option(
            "--watch",
            "-w",
            metavar="",
            help="Draw it again and again, with rates of the last interval, until Ctrl-C.",
        ),
    ] = False,
    interval: Annotated[
        str,
        Option(
            "--interval", metavar="DURATION", help="How often --watch asks; a number is seconds."
        ),
    ] = "1s",
    all: Annotated[
        bool,
        Option(
            "--all", "-a", metavar="", help="Every client and subscription, not only the busiest."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show everything about a running broker.

    This shows its neighbors, clients, subscriptions, routing table, queues, drops, journal and
    rates. If the broker has grants, yours must allow you to operate it.

    \b
    Examples:
      stentor status 127.0.0.1:7411
      stentor status 127.0.0.1:7411 --watch
      stentor status 127.0.0.1:7411 --json | jq .counters.published
    """
    from stentor.cli.asking import once, watched
    from stentor.cli.running import run
    from stentor.notation.units import parse_duration

    every = max(0.1, parse_duration(interval))
    limit = None if all else ROWS

    async def main() -> None:
        if watch:
            await watched(how, every, limit, json=json)
        else:
            await once(how, limit, json=json)

    run(main)
