"""`stentor drain`, `stentor links` and `stentor offers`: ask a running broker to do something."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final, TypeAlias

from stentor.cli.command import Argument, Group
from stentor.cli.exits import note
from stentor.cli.json_forms import print_json
from stentor.cli.options import BrokerArgument, Connecting, JsonOption, asks, broker_argument
from stentor.notation.counts import counted

links = Group(
    "links",
    "Show, add, remove and replace the links of a running broker.",
    {
        "list": "stentor.cli.operate:list_links",
        "add": "stentor.cli.operate:add_link",
        "remove": "stentor.cli.operate:remove_link",
        "replace": "stentor.cli.operate:replace_link",
    },
)

#: A neighbor is an address as well, so only their number tells whose broker is named.
_Own: TypeAlias = Annotated[Connecting, broker_argument(lambda text: False)]
_Neighbor: TypeAlias = Annotated[
    str,
    Argument(metavar="NEIGHBOR", help="Address of the other broker.", show_default=False),
]

#: Seconds in which a broker refuses what it does not do.
_SOON: Final = 1.0


def ask(how: Connecting, what: str, *, patiently: str | None = None, **arguments: Any) -> Any:
    """One question, one answer. `patiently` is told if the answer, or a refusal, takes time."""
    import asyncio

    from stentor.cli.operator import Operator
    from stentor.cli.running import run

    async def main() -> Any:
        async with Operator(how) as operator:
            asking = asyncio.ensure_future(operator.ask(what, **arguments))
            if patiently is not None and not (await asyncio.wait({asking}, timeout=_SOON))[0]:
                note(f"{patiently}")
            return await asking

    return run(main)


@asks
def list_links(
    how: BrokerArgument,
    json: JsonOption = False,
) -> None:
    """Show the links of a broker, those that are down with the reason.

    \b
    Examples:
      stentor links list 127.0.0.1:7411
    """
    _show_links(ask(how, "links"), json=json)


@asks
def add_link(
    how: _Own,
    neighbor: _Neighbor,
    json: JsonOption = False,
) -> None:
    """Link a broker with another one, for as long as it runs.

    The broker dials until the other one answers, and again whenever the link is lost. To keep the
    link over a restart, add it to the neighbors in the broker's configuration, too. Unless the
    overlay is a graph, links form a tree: one that would close a cycle waits in reserve.

    \b
    Examples:
      stentor links add 127.0.0.1:7411 127.0.0.1:7413
    """
    from stentor.transport.address import Address

    _show_links(ask(how, "links", add=[str(Address.parse(neighbor))]), json=json)


@asks
def remove_link(
    how: _Own,
    neighbor: Annotated[
        str,
        Argument(
            metavar="NEIGHBOR", help="Address or name of the other broker.", show_default=False
        ),
    ],
    json: JsonOption = False,
) -> None:
    """End a link. If the other broker dials it, remove it there.

    \b
    Examples:
      stentor links remove 127.0.0.1:7411 127.0.0.1:7413
      stentor links remove 127.0.0.1:7411 b3
    """
    _show_links(ask(how, "links", remove=[neighbor]), json=json)


@asks
def replace_link(
    how: _Own,
    old: Annotated[
        str,
        Argument(
            metavar="OLD", help="Address or name of the present neighbor.", show_default=False
        ),
    ],
    new: Annotated[
        str,
        Argument(metavar="NEW", help="Address of the new neighbor.", show_default=False),
    ],
    json: JsonOption = False,
) -> None:
    """Link a broker with another neighbor instead of one that it dials.

    The new neighbor has to answer before the old link goes; if the new link is not made, the old
    one stays. Nothing that is journaled is lost or comes twice. In a graph nothing is lost at
    all, since both links are up for a moment.

    \b
    Examples:
      stentor links replace 127.0.0.1:7413 b1 127.0.0.1:7412
    """
    _show_links(ask(how, "links", replace=[old, new]), json=json)


def _show_links(found: list[dict[str, Any]], *, json: bool) -> None:
    if json:
        print_json(found)
        return
    from stentor.cli.status_view import links_table, print_tables

    print_tables(links_table(found))


@asks
def drain(
    how: BrokerArgument,
    json: JsonOption = False,
) -> None:
    """Take a broker out of service without losing anything.

    The broker sends its clients to its neighbors and hands its journal and durable subscriptions
    over to one of them, which serves them from then on. Then it ends. Remove it from the neighbors
    in the configuration of others; its data directory is no longer needed.

    \b
    Examples:
      stentor drain 127.0.0.1:7412
    """
    answer = ask(how, "drain", patiently="draining; this ends when a neighbor has the journal")
    if isinstance(answer, dict):
        note(f"{answer.get('to')} has taken over; the broker ends")
    if json or not isinstance(answer, dict):
        print_json(answer)
        return
    for name, value in answer.items():
        shown = ", ".join(map(str, value)) or "none" if isinstance(value, list) else value
        sys.stdout.write(f"{name.replace('_', ' '):<16} {shown}\n")


@asks
def reload(
    how: BrokerArgument,
    json: JsonOption = False,
) -> None:
    """Have a running broker read its configuration again.

    New grants, tokens, certificates, limits and retention are in force at once. Connections whose
    grant is gone are closed; those that rely on a larger limit than there is now are made again. If
    anything in the configuration is wrong, nothing changes, the mistake is reported, and the exit
    code is 1. A name, an address or an overlay changes only with a restart; if one differs, the
    command says so.

    \b
    Examples:
      stentor reload
      stentor reload 127.0.0.1:7411 --token @operator.token
    """
    found = ask(how, "reload", patiently="the broker looks at its connections")
    if json:
        print_json(found)
        return
    changed = ", ".join(found["changed"]) or "nothing"
    closed = counted(found["closed"], "connection")
    sys.stdout.write(f"changed          {changed}\nclosed           {closed}\n")
    if found["restart"]:
        note(f"only a restart changes {', '.join(found['restart'])}")


@asks
def offers(
    how: BrokerArgument,
    overlapping: Annotated[
        str | None,
        Argument(
            metavar="[FILTER]",
            help="Only those that may match something of what this filter matches.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show what publishers advertise, one filter per line.

    \b
    Examples:
      stentor offers 127.0.0.1:7411
      stentor offers 127.0.0.1:7411 "price > 100"
    """
    from stentor.filters import Filter

    arguments = {} if overlapping is None else {"overlapping": str(Filter(overlapping))}
    found = ask(how, "offers", **arguments)
    if json:
        print_json(found)
    elif not found:
        note("nothing is advertised")
    else:
        for text in found:
            sys.stdout.write(f"{text or '(everything)'}\n")
