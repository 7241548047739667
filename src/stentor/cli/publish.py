"""`stentor publish`: publish JSON objects, from the command line or from a pipe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from click.exceptions import Exit

from stentor.cli.command import Argument, Option
from stentor.cli.input_files import is_file_name
from stentor.cli.options import (
    Connecting,
    JsonOption,
    NameOption,
    broker_argument,
    connects,
    is_address,
)

if TYPE_CHECKING:
    from stentor.filters import Filter


def _is_address(text: str) -> bool:
    """Whether the first word is an address, and not a file whose name has a dot like a host's."""
    return is_address(text) and not is_file_name(text)


@connects
def publish(
    how: Annotated[Connecting, broker_argument(_is_address)],
    events: Annotated[
        list[str] | None,
        Argument(
            metavar="[JSON|FILE]...",
            help="Events: JSON objects or arrays of them; or files of these, one per line, or "
            ".csv files whose first line names the attributes. Without any, lines are read from "
            "stdin.",
            show_default=False,
        ),
    ] = None,
    ack: Annotated[
        bool,
        Option(
            "--ack/--no-ack",
            metavar="",
            help="Whether to wait until all of them are in the broker's journal (on disk, if the "
            "broker has a data directory), and to fail if they are not.",
        ),
    ] = True,
    volatile: Annotated[
        bool,
        Option(
            "--volatile",
            metavar="",
            help="Skip the journal: deliver at most once, to those who are connected now.",
        ),
    ] = False,
    type: Annotated[
        str | None,
        Option(
            "--type",
            metavar="NAME",
            help="The event type of events that have no _type of their own.",
        ),
    ] = None,
    retain: Annotated[
        str | None,
        Option(
            "--retain",
            metavar="KEY",
            help="Keep the newest event under this key, for subscribers who ask for last values.",
        ),
    ] = None,
    retain_by: Annotated[
        str | None,
        Option(
            "--retain-by",
            metavar="ATTRIBUTE",
            help="Like --retain, with a key for each value of an attribute.",
        ),
    ] = None,
    deliver_at: Annotated[
        str | None,
        Option(
            "--deliver-at",
            metavar="TIME",
            help="Deliver to nobody before this time: 10m from now on, tomorrow 9:00, or an ISO "
            "time. Until then the broker keeps it on disk.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        Option(
            "--expires",
            metavar="TIME",
            help="Deliver to nobody after this time: an ISO time, or a duration such as 1h, which "
            "begins when it may be delivered.",
        ),
    ] = None,
    priority: Annotated[
        int | None,
        Option(
            "--priority",
            metavar="0..9",
            min=0,
            max=9,
            help="Higher priorities come first to those who subscribe by priority; the "
            "default is 4.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        Option("--rate", metavar="N", min=0.001, help="At most N per second."),
    ] = None,
    skip_bad: Annotated[
        bool,
        Option(
            "--skip-bad",
            metavar="",
            help="Go on after a line that is not a notification; otherwise it ends there.",
        ),
    ] = False,
    sequencer: Annotated[
        str | None,
        Option(
            "--sequencer",
            metavar="BROKER",
            help="Publish at the broker with this name, wherever it is: all who get what is "
            "published there get it in the same order.",
        ),
    ] = None,
    advertise: Annotated[
        list[str] | None,
        Option(
            "--advertise",
            metavar="FILTER",
            help="Announce first what will be published, where publications have to be "
            "advertised: 'true' for anything. May be repeated.",
            show_default=False,
        ),
    ] = None,
    record: Annotated[
        Path | None,
        Option(
            "--record",
            metavar="FILE",
            help="Write down what is published, for `stentor check`. The name ends with .jsonl.",
        ),
    ] = None,
    name: NameOption = None,
    json: JsonOption = False,
) -> None:
    """Publish events: JSON objects, files of them, or stdin.

    It ends when all of them are safe, and says how many were published. If the broker refuses some,
    it says how many and why, reads no further, and the exit code is 1. Nested objects become
    attributes with dotted names; null leaves an attribute out.

    Values that JSON lacks are written as `stentor subscribe` prints them:
    {"$time": "2026-01-01T12:00:00Z"}, {"$bytes": "00ff"} in hexadecimal,
    {"$set": ["a", "b"]}, {"$number": "inf"}. The members _type, _subject, _channel,
    _content_type, _payload, _time, _deliver_at, _expires and _priority are what a notification has
    beside its attributes; _id is ignored.

    \b
    Examples:
      stentor publish 127.0.0.1:7411 '{"symbol": "IBM", "price": 120.5}'
      stentor publish quotes.jsonl
      stentor publish 127.0.0.1:7411 orders.csv --type order
      tail -f events.log | stentor publish 127.0.0.1:7411 --type log --skip-bad
      stentor publish 127.0.0.1:7411 --retain-by symbol '{"symbol": "IBM", "price": 121}'
      stentor publish 127.0.0.1:7411 --deliver-at 10m --expires 1h '{"remind": "ann"}'
      stentor publish --advertise "exists price" quotes.jsonl
      stentor subscribe b1:7411 --meta | stentor publish b2:7411
    """
    from stentor.cli.exits import USAGE, report
    from stentor.cli.publishing import Publishing, bad_argument, key_of
    from stentor.cli.running import run
    from stentor.errors import InvalidConfiguration

    if not events and sys.stdin.isatty():
        raise InvalidConfiguration(
            "nothing to publish; give JSON objects or files as arguments, or pipe lines into this "
            "command"
        )
    if retain is not None and retain_by is not None:
        raise InvalidConfiguration("--retain and --retain-by contradict each other; choose one")
    if volatile and deliver_at is not None:
        raise InvalidConfiguration(
            "what is delivered later is kept on disk until then, which --volatile skips; choose one"
        )
    if volatile and (retain is not None or retain_by is not None):
        raise InvalidConfiguration(
            "a last value is kept by the journal, which --volatile skips; choose one"
        )
    publishing = Publishing(
        ack=ack,
        volatile=volatile,
        type=type,
        key=key_of(retain, retain_by),
        rate=rate,
        skip_bad=skip_bad,
        sequencer=sequencer,
        record=record,
        deliver_at=_moment(deliver_at),
        expires=_moment(expires),
        priority=priority,
        advertise=_filters(advertise or []),
    )

    bad = None if skip_bad else bad_argument(events or [])
    if bad is not None:  # nobody has to wait for a broker to be told that
        report(bad)
        raise Exit(USAGE)

    async def main() -> int:
        return await publishing.run(how, name, events or [])

    code = run(main)
    if json:
        from stentor.cli.json_forms import print_json

        print_json(publishing.told)
    raise Exit(code)


def _filters(texts: list[str]) -> list[Filter]:
    if not texts:
        return []
    from stentor.filters import Filter  # takes a while, and most publishers need none

    return [Filter(text) for text in texts]


def _moment(text: str | None) -> str | None:
    """As the client takes it, which knows durations and ISO times."""
    from stentor.notation.moments import moment
    from stentor.notation.units import exact_duration

    if text is None or exact_duration(text) is not None:
        return text
    return moment(text, ahead=True).isoformat()
