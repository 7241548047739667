"""`stentor durables`: where durable subscriptions live, how far they are, and what to do with them.

Every broker knows where each lives. What only its home can do or tell is asked there.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from click import BadParameter

from stentor.cli import completing
from stentor.cli.command import Argument, Option
from stentor.cli.exits import note
from stentor.cli.json_forms import print_json
from stentor.cli.options import BrokerArgument, Connecting, JsonOption, asks
from stentor.notation.counts import counted


class Action(StrEnum):
    """What to do."""

    LIST = "list"
    SHOW = "show"
    MOVE = "move"
    RESET = "reset"
    DELETE = "delete"


@asks
def durables(
    how: BrokerArgument,
    action: Annotated[
        Action,
        Argument(help="What to do; all but `list` need a NAME.", show_default=True),
    ] = Action.LIST,
    name: Annotated[
        str | None,
        Argument(
            metavar="[NAME]",
            help="The name of the durable subscription.",
            show_default=False,
            complete=completing.durables,
        ),
    ] = None,
    to: Annotated[
        str | None,
        Option(
            "--to",
            metavar="TIME",
            help="For reset: where it begins again: 1h for an hour ago, yesterday 14:00, an ISO "
            "time, or earliest.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show, move, reset or delete durable subscriptions.

    `list` shows all of them in the overlay, and for those that live at this broker how many events
    they are behind, how old the oldest of these is, and how many were refused. `show` shows
    everything about one, including refused events that wait, how often each was refused, and why.
    `move` moves it to this broker; if its own cannot be reached, the newest copy is used, and what
    was confirmed after that is delivered again. `reset` makes it begin again with what was
    published since a time, and `delete` deletes it; its consumers are notified.

    \b
    Examples:
      stentor durables 127.0.0.1:7411
      stentor durables 127.0.0.1:7411 show desk-7
      stentor durables 127.0.0.1:7412 move desk-7
      stentor durables 127.0.0.1:7411 reset desk-7 --to 2h
      stentor durables 127.0.0.1:7411 delete desk-7
    """
    arguments: dict[str, Any] = {}
    if (action is Action.RESET) != (to is not None):
        raise BadParameter("--to TIME goes with reset, and reset needs it", param_hint="--to")
    if action is not Action.LIST:
        if name is None:
            raise BadParameter(f"{action} needs the name of one", param_hint="NAME")
        arguments["name"] = name
    elif name is not None:
        raise BadParameter("list shows all; did you mean show?", param_hint="NAME")
    if action not in (Action.LIST, Action.SHOW):
        arguments["do"] = str(action)
    if to is not None:
        from stentor.notation.moments import moment

        arguments["to"] = 0.0 if to == "earliest" else moment(to).timestamp()
    at_home = action in (Action.SHOW, Action.RESET, Action.DELETE)
    found = _ask(how, arguments, at_home=at_home)
    if json:
        print_json(found)
    elif action is Action.LIST:
        from stentor.cli.status_view import homes_table, print_tables

        print_tables(homes_table(found))
    elif action is Action.DELETE:
        sys.stdout.write(f"{name} is deleted; it lived at {found['home']}\n")
    else:
        _show(found)


def _ask(how: Connecting, arguments: dict[str, Any], *, at_home: bool) -> Any:
    """Put the question, to the home of the one that it names if need be."""
    from dataclasses import replace

    from stentor.cli.operator import Operator
    from stentor.cli.running import run

    async def main() -> Any:
        async with Operator(how) as operator:
            if not at_home:
                return await operator.ask("durables", **arguments)
            found = await operator.ask("durables", name=arguments["name"])
            if "positions" in found or not found["reachable"]:
                return await operator.ask("durables", **arguments)
        note(f"{found['name']!r} lives at {found['home']!r}; asking there")
        async with Operator(replace(how, addresses=tuple(found["addresses"]))) as operator:
            return await operator.ask("durables", **arguments)

    return run(main)


def _show(found: dict[str, Any]) -> None:
    for key, value in found.items():
        match key, value:
            case "resting", list():
                shown = f"\n{' ' * 10} ".join(map(_resting, value))
            case "oldest", float():
                shown = f"{value:.1f} s"
            case "since", float():
                shown = f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC"
            case _, bool():
                shown = "yes" if value else "no"
            case _, dict():
                shown = ", ".join(f"{stream} {offset}" for stream, offset in value.items())
            case _, list():
                shown = " or ".join(value)
            case _:
                shown = "" if value is None else str(value)
        sys.stdout.write(f"{key:<10} {shown or 'none'}\n")


def _resting(refused: dict[str, Any]) -> str:
    """One that was refused, in a line."""
    place = f"{refused['stream']} {refused['offset']}"
    when = f"again in {refused['due']:.1f} s" if refused["due"] else "due"
    times = counted(refused["attempts"], "time")
    return f"{place}: refused {times}, {when}: {refused['cause']}"
