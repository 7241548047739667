"""`stentor why-not`: why an event does not match a filter."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import msgspec
from click.exceptions import Exit

from stentor.cli.command import Argument
from stentor.cli.options import JsonOption

#: Alternatives of a filter that are shown.
_SHOWN: Final = 3


def why_not(
    filter: Annotated[
        str, Argument(metavar="FILTER", help="What was asked for.", show_default=False)
    ],
    event: Annotated[
        str,
        Argument(
            metavar="JSON", help="The event, as `stentor publish` takes it.", show_default=False
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Say why an event does not match a filter, part by part.

    Each line is a part of the filter that must hold, and what the event says about it. Of several
    alternatives, those nearest to a match are shown. The last line is an event that would match,
    with as little changed as possible. No broker is needed.

    \b
    Examples:
      stentor why-not "price > 100 and symbol = 'IBM'" '{"symbol": "IBM", "price": 99}'
    """
    from stentor.cli.exits import USAGE, report
    from stentor.cli.json_forms import from_json, to_json
    from stentor.errors import StentorError
    from stentor.filters import Filter
    from stentor.filters.mismatch import alternatives, nearest

    wanted = Filter(filter)
    try:
        notification = from_json(event.encode("utf-8", "surrogateescape"))
    except StentorError as error:
        report(error)
        raise Exit(USAGE) from None
    matches = wanted.matches(notification)
    found = [] if matches else alternatives(wanted, notification)
    near = None if matches else nearest(wanted, notification)
    if json:
        from stentor.cli.json_forms import print_json

        told = [
            [{"part": a.text, "holds": a.holds, "found": a.found} for a in way] for way in found
        ]
        would = None if near is None else msgspec.Raw(to_json(near, meta=True))
        print_json({"matches": matches, "alternatives": told, "would_match": would})
        return
    if matches:
        sys.stdout.write("it matches\n")
        return
    if not found:
        sys.stdout.write("it does not match: nothing can match this filter\n")
        return
    sys.stdout.write("it does not match:\n")
    for number, parts in enumerate(found[:_SHOWN]):
        if number:
            sys.stdout.write("or\n")
        width = max(len(part.text) for part in parts)
        for part in parts:
            mark = "ok  " if part.holds else "FAIL"
            sys.stdout.write(f"  {mark}  {part.text:<{width}}  {part.found}\n")
    if len(found) > _SHOWN:
        sys.stdout.write(f"and {len(found) - _SHOWN:,} alternatives that are further off\n")
    if near is not None:
        sys.stdout.write(f"it would match: {to_json(near, meta=True).decode()}\n")
