"""`stentor subscribe`: print what filters match, one JSON object per line."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Annotated, Any, Final

from click.exceptions import Exit

from stentor.cli.command import Argument, Option
from stentor.cli.options import BrokerArgument, JsonOption, NameOption, connects, is_address

if TYPE_CHECKING:
    from stentor.filters import Filter

#: Words of a filter whose quotes the shell has taken away.
_OPERATORS: Final = frozenset({"=", "!=", "<>", "<", "<=", ">", ">=", "and", "or", "in", "like"})


@connects
def subscribe(
    how: BrokerArgument,
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="[FILTER]...",
            help="What you want, in the subscription language; without it, everything. What "
            "several filters match is printed once.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int, Option("--count", "-n", metavar="N", min=0, help="End after N; 0 means never.")
    ] = 0,
    timeout: Annotated[
        str | None,
        Option(
            "--timeout",
            metavar="DURATION",
            help="End when nothing has come for this long, such as 500ms, 30s or 5m. If --count "
            "asked for more, it says how many came, and the exit code is 1.",
        ),
    ] = None,
    meta: Annotated[
        bool,
        Option(
            "--meta",
            metavar="",
            help="Add _id, _time, _type, _subject, _channel, _content_type, _payload, _deliver_at, "
            "_expires and _priority where there are any, and with several filters those that "
            "match, as _filters.",
        ),
    ] = False,
    durable: Annotated[
        str | None,
        Option(
            "--durable",
            metavar="NAME",
            help="Let the broker remember under this name how far you are. Next time you go on "
            "there, with whatever was published meanwhile.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        Option(
            "--expires",
            metavar="DURATION",
            help="Leave out events that are older than this, by their time: 10s, 1h.",
        ),
    ] = None,
    forget: Annotated[
        bool,
        Option("--forget", metavar="", help="Delete the durable subscription at the end."),
    ] = False,
    since: Annotated[
        str | None,
        Option(
            "--since",
            metavar="TIME",
            help="History first, then what is new: 2h for the last two hours, yesterday 14:00, "
            "2026-01-01T00:00:00Z, or earliest for everything there is.",
        ),
    ] = None,
    archive: Annotated[
        str | None,
        Option(
            "--archive",
            metavar="PATH",
            help="History from this archive first, then from the journals after it, then what is "
            "new. --since says where to begin.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        Option(
            "--group",
            metavar="NAME",
            help="Share the notifications with the other members: each goes to one of them.",
        ),
    ] = None,
    choice: Annotated[
        str,
        Option(
            "--choice",
            metavar="WORD",
            help="How a group chooses: round_robin, least_loaded or key:ATTRIBUTE, which keeps "
            "equal values with one member.",
        ),
    ] = "round_robin",
    retained: Annotated[
        bool,
        Option("--retained", metavar="", help="Begin with the last value of every key."),
    ] = False,
    strict: Annotated[
        bool,
        Option("--strict", metavar="", help="Refuse a filter that nothing can match."),
    ] = False,
    verbose: Annotated[
        bool,
        Option(
            "--verbose",
            "-v",
            metavar="",
            help="Say on stderr when the subscription is in force, and when the connection is lost "
            "and made again.",
        ),
    ] = False,
    name: NameOption = None,
    json: JsonOption = False,
) -> None:
    """Print the events that filters match, one JSON object per line.

    Each line is complete when it appears. It ends at Ctrl-C, or when its output is closed. A lost
    connection is made again, and nothing is missed or printed twice. With --json, warnings and
    errors are JSON, too.

    Values that JSON lacks are objects with one member: {"$time": "2026-01-01T12:00:00Z"},
    {"$bytes": "00ff"} in hexadecimal, {"$set": ["a", "b"]}, {"$number": "inf"}. Nested records
    have dotted names. `stentor publish` reads all of it back.

    \b
    Examples:
      stentor subscribe 127.0.0.1:7411 "symbol = 'IBM' and price > 100"
      stentor subscribe 127.0.0.1:7411 "price > 100" "symbol = 'IBM'" --meta
      stentor subscribe 127.0.0.1:7411 --meta --since 1h | jq ._time
      stentor subscribe 127.0.0.1:7411 "price > 100" --archive archive/ --since 2026-01-01T00:00:00Z
      stentor subscribe 127.0.0.1:7411 "price > 100" --durable desk-7
      stentor subscribe tls://b1.example:7411 "isa job" --group workers --token @token
      stentor subscribe 127.0.0.1:7411 "temperature > 30" --count 1 --timeout 5m
    """
    from stentor.cli.printing import Printer, print_all
    from stentor.cli.running import run

    wanted = _filters(words or [""])
    _advise(wanted, strict)
    options = {
        "durable": durable,
        "since": _since(since, archive),
        "group": group,
        "choice": choice,
        "retained": retained,
        "expires": None if expires is None else duration("--expires", expires),
    }
    patience = None if timeout is None else duration("--timeout", timeout)
    printer = Printer(count, patience, meta=meta, words=wanted)

    async def main() -> int:
        filters = list(wanted)
        return await print_all(how, name, filters, options, printer, verbose=verbose, forget=forget)

    raise Exit(run(main))


def _filters(words: list[str]) -> dict[Filter, str]:
    """The filters, and how each was written."""
    from stentor.errors import InvalidConfiguration, StentorError
    from stentor.filters import Filter

    try:
        return {Filter(word): word for word in words}
    except StentorError:
        hint = _misplaced(words)
        if hint is None:
            raise
        raise InvalidConfiguration(hint) from None


def _misplaced(words: list[str]) -> str | None:
    """What the shell has made of a filter, or the user of the order of words, if that explains it.

    >>> print(_misplaced(["symbol", "=", "IBM"]))
    the filter came in 3 words; put it in quotes, with single quotes within: "symbol = 'IBM'"
    """
    from stentor.errors import StentorError
    from stentor.filters import Filter

    address = next(filter(is_address, words), None)
    if address is not None:
        return f"{address} looks like an address, which comes before the filters"
    if len(words) > 1:
        whole = " ".join(words)
        try:
            Filter(whole)
        except StentorError:
            if not _OPERATORS.intersection(words):
                return None
            # The shell has taken the quotes away.
            whole = "symbol = 'IBM'"
            return (
                f"the filter came in {len(words)} words; put it in quotes, with single quotes "
                f'within: "{whole}"'
            )
        return f'the filter came in {len(words)} words; put it in quotes: "{whole}"'
    if words[0].isidentifier() and stat.S_ISREG(os.fstat(1).st_mode):
        return (
            f"an attribute alone is not a condition; if the shell has taken > for a redirection, "
            f'put the filter in quotes: "{words[0]} > 100"'
        )
    return None


def _advise(wanted: dict[Filter, str], strict: bool) -> None:
    """Say if nothing can match a filter, or if it reads otherwise than it was probably meant."""
    import warnings

    from stentor.cli.exits import warn
    from stentor.errors import FilterWarning, NeverMatches
    from stentor.filters.advice import advice

    warnings.simplefilter("ignore", FilterWarning)  # the library would say it again
    for filter, word in wanted.items():
        for each in advice(word, filter):
            if strict and each.never:
                raise NeverMatches(each.text)
            warn(each.text)


def _since(text: str | None, archive: str | None) -> Any:
    """As the client takes it; a duration is so long ago."""
    if archive is not None:
        from stentor.notation.moments import moment
        from stentor.pipeline import past

        return past(archive, moment(text).isoformat() if text else None)
    if text is None:
        return None
    from stentor.notation.moments import moment

    return text if text == "earliest" else moment(text)


def duration(option: str, text: str) -> float:
    """The seconds of a duration that was given for an option."""
    from stentor.errors import InvalidConfiguration
    from stentor.notation.units import parse_duration

    try:
        return parse_duration(text)
    except InvalidConfiguration as error:
        raise InvalidConfiguration(f"{option}: {error}") from None
