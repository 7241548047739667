"""`stentor check`: hold recordings against the specification."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from click.exceptions import Exit

from stentor.cli.command import Argument, Option
from stentor.cli.exits import FAILURE, warn
from stentor.cli.json_forms import print_json
from stentor.cli.options import JsonOption


def check(
    recordings: Annotated[
        list[Path],
        Argument(
            metavar="FILE...",
            help="Recordings of the clients of one run.",
            show_default=False,
        ),
    ],
    order: Annotated[
        list[str] | None,
        Option(
            "--order",
            metavar="WORD",
            help="An order that must hold: fifo, causal, total_pairwise or total_global. May be "
            "given several times.",
        ),
    ] = None,
    among: Annotated[
        str,
        Option(
            "--among",
            metavar="FILTER",
            help="Require the orders only among what this filter matches, such as what goes "
            "through "
            "one sequencer.",
        ),
    ] = "",
    settled: Annotated[
        bool,
        Option(
            "--settled",
            metavar="",
            help="Everything had arrived when the recordings were ended, so what is missing is "
            "lost. The clocks of their machines have to agree for this.",
        ),
    ] = False,
    advertisements: Annotated[
        bool,
        Option(
            "--advertisements",
            metavar="",
            help="Only what its publisher has advertised may be delivered, and must be.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check recordings: was everything delivered as promised?

    No client may receive an event that nobody published, that it did not subscribe to, that it has
    already received, that was altered, or that violates a required order. With --settled, every
    client must have received every event that it subscribed to. Each event of a durable
    subscription or a group is confirmed once, or becomes a dead letter once. Every violation is
    reported, and the exit code is then 1. Include the recordings of all publishers, or their events
    count as invented.

    \b
    Examples:
      stentor check desk-7.jsonl feed.jsonl --order fifo
      stentor check *.jsonl --settled --order fifo --order causal
      stentor check *.jsonl --order total_global --among "room = 7"
    """
    from stentor import semantics
    from stentor.client.recordings import recorded
    from stentor.filters import Filter
    from stentor.notation.counts import counted

    run = recorded(*recordings, settled=settled)
    report = semantics.check(
        run.trace, advertisements=advertisements, order=order or (), among=Filter(among)
    )
    if json:
        print_json(
            {
                "ok": report.ok,
                "report": str(report).splitlines(),
                "torn": list(map(str, run.torn)),
                "doubtful": run.doubtful,
                "again": run.again,
            }
        )
    else:
        sys.stdout.write(f"{report}\n")
    for path in run.torn:
        warn(f"{path} ends within a line, which is left out: its process was killed")
    if run.doubtful:
        warn(
            f"{counted(run.doubtful, 'publication was', 'publications were')} neither acknowledged "
            "nor delivered, and may or may not have happened"
        )
    if run.again:
        warn(
            f"{counted(run.again, 'notification')} came again to a subscription whose client "
            "had not confirmed it, as is right"
        )
    if not report.ok:
        raise Exit(FAILURE)
