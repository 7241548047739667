"""`stentor detect`: have a pattern over events detected, and print what is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from click.exceptions import Exit

from stentor.cli.command import Argument, Option
from stentor.cli.options import BrokerArgument, JsonOption, NameOption, connects

if TYPE_CHECKING:
    from stentor.composite import Pattern


@connects
def detect(
    how: BrokerArgument,
    pattern: Annotated[
        str,
        Argument(
            metavar="PATTERN",
            help="What you look for, over the names that --event defines: A ; B, F{3} ; L, "
            "A followed by B within 1h.",
            show_default=False,
        ),
    ],
    event: Annotated[
        list[str] | None,
        Option(
            "--event",
            metavar="NAME: FILTER",
            help="What a name in the pattern stands for. Give one for each.",
        ),
    ] = None,
    within: Annotated[
        str | None,
        Option("--within", metavar="DURATION", help="Everything within this time: 500ms, 60s, 1h."),
    ] = None,
    by: Annotated[
        list[str] | None,
        Option(
            "--by",
            metavar="ATTRIBUTE",
            help="Look at the events of each value of this attribute separately. May be given more "
            "than once.",
        ),
    ] = None,
    policy: Annotated[
        str | None,
        Option(
            "--policy",
            metavar="WORD",
            help="best_effort consumes events as they come; guaranteed waits until nothing "
            "older can "
            "come, and neither misses nor invents anything; probabilistic waits until that is "
            "likely. With --durable the default is guaranteed.",
        ),
    ] = None,
    lateness: Annotated[
        str | None,
        Option(
            "--lateness",
            metavar="DURATION",
            help="With guaranteed: by how much events may come later than their own time says. The "
            "default is 2s.",
        ),
    ] = None,
    placement: Annotated[
        str | None,
        Option(
            "--placement",
            metavar="WORD",
            help="Where it is detected, by best effort: minimum_latency (as a whole, at this "
            "broker; the default), minimum_bandwidth (near the sources), minimum_impact (in "
            "parts that others already use), minimum_load (in small parts, spread evenly), "
            "maximum_reliability (at two brokers), delegation (a sequence, at the one broker that "
            "offers its events).",
        ),
    ] = None,
    durable: Annotated[
        str | None,
        Option(
            "--durable",
            metavar="NAME",
            help="Let the broker go on detecting under this name, and keep what it finds while "
            "nobody is connected.",
        ),
    ] = None,
    forget: Annotated[
        bool, Option("--forget", metavar="", help="Delete the durable detector at the end.")
    ] = False,
    count: Annotated[
        int, Option("--count", "-n", metavar="N", min=0, help="End after N; 0 means never.")
    ] = 0,
    timeout: Annotated[
        str | None,
        Option(
            "--timeout",
            metavar="DURATION",
            help="End when nothing has been found for this long. If --count asked for more, it "
            "says how many were found, and the exit code is 1.",
        ),
    ] = None,
    json: JsonOption = False,
    meta: Annotated[
        bool, Option("--meta", metavar="", help="With --json, as in `subscribe`: _id, _time, ...")
    ] = False,
    verbose: Annotated[
        bool,
        Option("--verbose", "-v", metavar="", help="Say on stderr when it is in force."),
    ] = False,
    name: NameOption = None,
) -> None:
    """Have the broker detect a pattern, and print what it finds.

    From now on the broker looks for the pattern. All who ask for the same pattern under the same
    grant share one detector. What is found is published, so others may subscribe to it as to
    anything else.

    \b
    Examples:
      stentor detect 127.0.0.1:7411 "F+ ; L" --event "F: type = 'login_failed'" \\
          --event "L: type = 'lockout'" --within 60s --by account
      stentor detect 127.0.0.1:7411 "(A ; B) where B.price > A.price * 1.1" --by symbol \\
          --event "A: exists price" --event "B: exists price" --json
      stentor detect 127.0.0.1:7411 "D not followed by U within 5m" --by host --durable outages \\
          --event "D: state = 'down'" --event "U: state = 'up'"
    """
    from stentor.cli.printing import Printer, print_from
    from stentor.cli.running import run
    from stentor.cli.subscribe import duration
    from stentor.client.detecting import PLACEMENTS, POLICIES
    from stentor.errors import InvalidConfiguration

    wanted = _pattern(pattern, event or [], within, by or [])
    if policy is not None and policy not in POLICIES:
        raise InvalidConfiguration(f"--policy {policy}: choose one of {', '.join(POLICIES)}")
    if placement is not None and placement not in PLACEMENTS:
        raise InvalidConfiguration(
            f"--placement {placement}: choose one of {', '.join(PLACEMENTS)}"
        )
    options: dict[str, Any] = {"policy": policy, "durable": durable}
    if placement is not None:
        options["placement"] = placement
    if lateness is not None:
        options["lateness"] = duration("--lateness", lateness)
    patience = None if timeout is None else duration("--timeout", timeout)
    printer = Printer(count, patience, meta=meta, words={}, line=None if json else _line)

    async def main() -> int:
        return await print_from(
            how,
            name,
            lambda bus: bus.detect(wanted, **options),
            printer,
            verbose=verbose,
            forget=forget,
        )

    raise Exit(run(main))


def _pattern(text: str, events: list[str], within: str | None, by: list[str]) -> Pattern:
    """What was written; the pattern by itself first, so that a mistake in it is shown there."""
    from stentor.composite import Pattern
    from stentor.composite.expressions import Within
    from stentor.composite.intervals import micros_of
    from stentor.composite.parser import parse_pattern
    from stentor.errors import InvalidConfiguration

    parsed = parse_pattern(text)
    expression = parsed.expression
    if within is not None:
        expression = Within(expression, micros_of(within))
    meanings: dict[str, str] = {}
    for each in events:
        name, colon, filter = each.partition(":")
        if not colon:
            raise InvalidConfiguration(
                f"--event {each!r}: write a name, a colon and a filter, such as "
                "\"F: type = 'login_failed'\""
            )
        if name.strip() in meanings:
            raise InvalidConfiguration(f"--event: {name.strip()} is defined twice")
        meanings[name.strip()] = filter.strip()
    if by and parsed.partition:
        raise InvalidConfiguration("give --by, or `partition by` in the pattern, and not both")
    return Pattern(expression, meanings, partition=tuple(by) or parsed.partition)


def _line(found: Any) -> bytes:
    """A detection for people: when, of what, and by how many events."""
    start, end = found["composite.start"], found["composite.end"]
    counts = [
        f"{name.removesuffix('.count')}×{found[name]}"
        for name in found
        if name.endswith(".count") and name.count(".") == 1
    ]
    keys = [f"{name}={found[name]}" for name in found if "." not in name]
    parts = [
        end.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        *keys,
        *counts,
        f"in {(end - start).total_seconds():g}s",
    ]
    return "  ".join(parts).encode()
