"""`stentor record`: subscribe, and write down for the checker what came."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stentor.cli.command import Argument, Option
from stentor.cli.options import BrokerArgument, JsonOption, NameOption, connects

if TYPE_CHECKING:
    from stentor.client import Bus
    from stentor.filters import Filter


@connects
def record(
    how: BrokerArgument,
    filters: Annotated[
        list[str] | None,
        Argument(
            metavar="[FILTER]...",
            help="What to subscribe to, each in the subscription language. None means everything.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The recording, whose name ends with .jsonl. If it exists, it is continued.",
        ),
    ] = Path("recording.jsonl"),
    durable: Annotated[
        str | None,
        Option(
            "--durable",
            metavar="NAME",
            help="Let the broker keep filters and position under this name.",
        ),
    ] = None,
    name: NameOption = None,
    json: JsonOption = False,
) -> None:
    """Subscribe, and record what comes for `stentor check`.

    Each line of the file is an action: a subscription, a notification, the end of one. What several
    filters match comes once. Record publishers with `stentor publish --record`, and programs with
    `stentor.connect(..., record=FILE)`; `stentor check` judges the files of all of them together.

    \b
    Examples:
      stentor record 127.0.0.1:7411 "symbol = 'IBM'" --name desk-7 --out desk-7.jsonl
      stentor record 127.0.0.1:7411 "price > 100" "volume > 500" -o both.jsonl
    """
    from stentor.cli.running import run
    from stentor.filters import Filter

    wanted = [Filter(text) for text in filters or [""]]

    async def main() -> None:
        async with how.bus(name, record=out) as bus:
            await _record(bus, wanted, durable, out, json=json)

    run(main)


async def _record(
    bus: Bus, filters: list[Filter], durable: str | None, out: Path, *, json: bool
) -> None:
    """Take everything until it is cancelled; the client writes it down."""
    from stentor.cli.exits import note
    from stentor.cli.json_forms import print_json
    from stentor.cli.printing import subscribed
    from stentor.notation.counts import counted

    count = 0
    async with subscribed(bus, filters, durable=durable) as subscription:
        note(f"recording at {bus.broker}, in {out}")
        try:
            async for batch in subscription.batches():
                count += len(batch)
        finally:
            if json:
                print_json({"recorded": count, "file": out})
            note(f"{counted(count, 'notification')} recorded")
