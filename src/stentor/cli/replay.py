"""`stentor replay`: publish archived events again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from click.exceptions import Exit

from stentor.cli.command import Argument, Option
from stentor.cli.options import Connecting, JsonOption, asks


@asks
def replay(
    path: Annotated[
        str,
        Argument(
            metavar="PATH",
            help="The archive: a directory, or a URI such as s3://bucket/events.",
            show_default=False,
        ),
    ],
    to: Annotated[
        Connecting,
        Option(
            "--to",
            metavar="ADDRESS",
            help="The broker that gets the events: host:port, tls://host:port or unix:path. Of "
            "several, separated by commas, the first that can be reached.",
            show_default=False,
        ),
    ],
    speed: Annotated[
        str,
        Option(
            "--speed",
            metavar="SPEED",
            help="How fast, compared to the original times: 1x, 10x, 0.5x; or max for as fast as "
            "possible.",
        ),
    ] = "1x",
    filter: Annotated[
        str,
        Option(
            "--filter", metavar="FILTER", help="Only these events, in the subscription language."
        ),
    ] = "",
    since: Annotated[
        str | None,
        Option(
            "--since",
            metavar="TIME",
            help="Only events from this time on: 2026-01-01T00:00:00Z, yesterday 14:00, or 2h for "
            "two hours ago.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        Option("--until", metavar="TIME", help="Only events before this time."),
    ] = None,
    keep_time: Annotated[
        bool,
        Option(
            "--keep-time",
            metavar="",
            help="Let the events keep their old times, instead of the time of the replay.",
        ),
    ] = False,
    resume: Annotated[
        bool,
        Option(
            "--resume",
            metavar="",
            help="Go on with a replay that was interrupted. Give the same options as before; "
            "nothing is published twice.",
        ),
    ] = False,
    note: Annotated[
        Path | None,
        Option(
            "--note",
            metavar="FILE",
            help="Where to keep how far the replay has come. By default inside the archive.",
        ),
    ] = None,
    yes: Annotated[
        bool, Option("--yes", "-y", metavar="", help="Do not ask before it begins.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Publish archived events again, in their order.

    They are published as new notifications with the old contents, at the old intervals divided by
    the speed. Each batch is on the broker's disk before the next one goes. After an interruption,
    by Ctrl-C or by a crash, --resume goes on exactly there.

    \b
    Examples:
      stentor replay archive/ --to 127.0.0.1:7411 --speed 10x
      stentor replay archive/ --to 127.0.0.1:7411 --speed max --filter "symbol = 'IBM'"
      stentor replay archive/ --to b1:7411 --since 2026-01-01T00:00:00Z --until 2026-01-02T00:00:00Z
      stentor replay archive/ --to 127.0.0.1:7411 --speed 10x --resume
    """
    from stentor.cli.replaying import Request, run

    request = Request(
        path=path,
        brokers=",".join(to.addresses),
        speed=_speed(speed),
        filter=filter,
        since=_moment(since),
        until=_moment(until),
        keep_time=keep_time,
        resume=resume,
        note=note,
        token=to.token,
        tls=to.tls,
        timeout=to.timeout,
    )
    raise Exit(run(request, ask=not yes and sys.stdin.isatty(), json=json))


def _moment(text: str | None) -> str | None:
    from stentor.notation.moments import moment

    return None if text is None else moment(text).isoformat()


def _speed(text: str) -> float | None:
    """A factor; None is as fast as possible."""
    from math import isfinite

    from stentor.errors import InvalidConfiguration

    if text.strip().lower() == "max":
        return None
    try:
        speed = float(text.strip().lower().removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not (isfinite(speed) and speed > 0):
        raise InvalidConfiguration(
            f"--speed: {text!r} is not a speed; write 1x, 10x or 0.5x, or max"
        )
    return speed
