"""`stentor why`: why a client has an event, or has not.

The broker where the event entered has it, and the broker of the client knows what became of it; so
all brokers of the overlay are asked, several at a time. See `stentor.node.parts.inquiries`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

from stentor.cli.command import Option
from stentor.cli.options import BrokerArgument, Connecting, JsonOption, asks
from stentor.errors import InvalidConfiguration, InvalidValue, StentorError

if TYPE_CHECKING:
    from stentor.cli.operator import Operator

#: Brokers that are asked at the same time.
_AT_ONCE: Final = 16


@asks
def why(
    how: BrokerArgument,
    notification: Annotated[
        str,
        Option(
            "--notification",
            metavar="ID",
            help="The id of the event: `publish` returns it, `subscribe --meta` shows it as _id.",
            show_default=False,
        ),
    ],
    client: Annotated[
        str,
        Option(
            "--client",
            metavar="NAME",
            help="The name of the client, of a durable subscription or of a group.",
            show_default=False,
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Say why a client got an event, or why not.

    All brokers of the overlay are asked, which takes the right to operate them. The answer names
    where the event entered, the way to the client's broker, and for each subscription of the client
    what was decided there: which part of the filter failed, whether it began too late, whether the
    event waits, was delivered and when, was confirmed, has expired, was dropped by which policy, or
    became a dead letter. It works as long as a journal has the event.

    \b
    Examples:
      stentor why 127.0.0.1:7411 --notification ticker:1789000000000:17 --client desk
    """
    from stentor.cli.running import run
    from stentor.model import NotificationId

    try:
        NotificationId.parse(notification)
    except InvalidValue as error:
        raise InvalidConfiguration(f"--notification: {error}") from None
    found = run(lambda: _inquire(how, notification, client))
    if json:
        from stentor.cli.json_forms import print_json

        print_json(found)
    else:
        sys.stdout.write("\n".join(_lines(found)) + "\n")


async def _inquire(how: Connecting, notification: str, client: str) -> dict[str, Any]:
    """Everything that the brokers know about it."""
    import asyncio

    from stentor.cli.operator import Operator

    unreachable: dict[str, str] = {}
    gate = asyncio.Semaphore(_AT_ONCE)

    async def at(name: str, addresses: list[str], question: Any) -> Any:
        async with gate:
            try:
                async with Operator(replace(how, addresses=tuple(addresses))) as operator:
                    return await question(operator)
            except (StentorError, OSError) as error:
                unreachable[name] = str(error)
                return None

    async def everywhere(question: Any) -> list[Any]:
        others = (at(name, where, question) for name, where in brokers.items())
        answers = await asyncio.gather(question(first), *others)
        return [answer for answer in answers if answer is not None]

    async with Operator(how) as first:
        found = await _found(first, how.timeout, notification)
        brokers = {b["broker"]: b["addresses"] for b in found["brokers"] if b["addresses"]}
        holders = [found]
        if not found["found"]:
            holders = await everywhere(lambda o: _found(o, how.timeout, notification))
        events = [event | {"broker": h["broker"]} for h in holders for event in h["found"]]
        answers = []
        if events:
            asked = {key: events[0][key] for key in ("stream", "offset", "data")}
            answers = await everywhere(lambda o: o.ask("why", how.timeout, client=client, **asked))
    return {
        "notification": notification,
        "client": client,
        "entered": [_event(event) for event in events],
        "due": next((h["due"] for h in holders if h["due"] is not None), None),
        "refused": [refusal for h in holders for refusal in h["refused"]],
        "incomplete": sorted(h["broker"] for h in holders if h["more"]),
        "unreachable": unreachable,
        "way": _way(answers),
        "hidden": [h | {"broker": a["broker"]} for a in answers for h in a["way"]["hidden"]],
        "scopes": [text for a in answers for text in a["scopes"]],
        "verdicts": [v | {"broker": a["broker"]} for a in answers for v in a["verdicts"]],
        "connected": sorted(a["broker"] for a in answers if a["connected"]),
    }


async def _found(operator: Operator, timeout: float, notification: str) -> Any:
    """What a broker finds of it; a long journal takes several questions."""
    found = await operator.ask("why", timeout, notification=notification)
    end = monotonic() + timeout
    while found["more"] and monotonic() < end:
        arguments = {"notification": notification, "from": found["more"]}
        found = await operator.ask("why", timeout, **arguments)
    return found


def _event(event: dict[str, Any]) -> dict[str, Any]:
    from stentor.cli.json_forms import to_json
    from stentor.model.codec import decode

    says = to_json(decode(event["data"]), meta=True).decode()
    return {key: event[key] for key in ("broker", "stream", "offset", "time")} | {"says": says}


def _way(answers: list[Any]) -> list[str]:
    """The brokers from the entry to the client, as the stream comes now."""
    by_name = {a["broker"]: a["way"] for a in answers}
    ends = [a["broker"] for a in answers if a["connected"] or a["verdicts"]]
    way: list[str] = []
    at: str | None = ends[0] if ends else None
    while at is not None and at not in way:
        way.insert(0, at)
        at = by_name[at]["from"] if at in by_name else None
    return way


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"{found['notification']}"]
    for event in found["entered"]:
        lines.append(f"  says      {event['says']}")
        place = f"{event['stream']} {event['offset']}"
        lines.append(f"  entered   {event['broker']}, {place}, at {_time(event['time'])}")
    for refusal in found["refused"]:
        lines.append(f"  refused   at {_time(refusal['time'])}: {refusal['cause']}")
    if found["due"] is not None:
        lines.append(f"  scheduled to be delivered at {_time(found['due'])}, not before")
    if not (found["entered"] or found["refused"] or found["due"] is not None):
        lines.append("  no journal has it: it was never published, volatile, or retention has")
        lines.append("  removed it")
    if found["incomplete"]:
        names = ", ".join(found["incomplete"])
        lines.append(f"  the journals of {names} were not read to the end; raise --timeout")
    for name, cause in found["unreachable"].items():
        lines.append(f"  {name} could not be asked: {cause}")
    if len(found["way"]) > 1:
        lines.append(f"  way       {' -> '.join(found['way'])}")
    for hidden in found["hidden"]:
        pair = hidden["broker"], hidden["neighbor"]
        source, target = pair if hidden["direction"] == "out" else pair[::-1]
        lines.append(f"  border    a grant does not let it pass from {source} to {target}")
    lines += [f"  scopes    {text}" for text in found["scopes"]]
    if found["entered"]:
        lines += _verdicts(found)
    return lines


def _verdicts(found: dict[str, Any]) -> list[str]:
    client = found["client"]
    if not found["verdicts"]:
        where = ", ".join(found["connected"])
        told = f"is connected to {where} and subscribes to nothing" if where else "is not known"
        return [f"{client} {told}; what has ended is remembered for a while only"]
    lines = []
    for verdict in found["verdicts"]:
        time = verdict["time"]
        when = "" if time is None else f", at {_time(time)}"
        ended = f" (ended at {_time(verdict['ended'])})" if "ended" in verdict else ""
        lines.append(
            f"{client} at {verdict['broker']}, {verdict['subscription']}{ended}: "
            f"{verdict['text']}{when}"
        )
        lines.append(f"  filter    {verdict['filter']}")
        for number, parts in enumerate(verdict.get("alternatives", ())):
            width = max(len(part["text"]) for part in parts)
            for part in parts:
                mark = "ok  " if part["holds"] else "FAIL"
                or_ = "or  " if number and part is parts[0] else "    "
                lines.append(f"  {or_}  {mark}  {part['text']:<{width}}  {part['found']}")
    return lines


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
