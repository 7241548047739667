"""The tour: run it with `./dev demo`.

The live demo runs five brokers as processes, and in the end a pipeline on Spark. `--all` first
shows what lies beneath, matching and routing, on their own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
import tempfile
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import uvloop
from rich.console import Console

from market import report
from market.brokers import Stalled
from market.story import QUICK, Outcome, Script, play
from market.view import teller
from stentor.errors import StentorError
from stentor.matching.index.preparing import prepare

T = TypeVar("T")

#: Where the picture of the pipeline's results goes.
PLOT: Final = Path("demo-bars.png")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev demo",
        description="Market data through five broker processes, one of which is killed and healed; "
        "then the same on Spark.",
    )
    parser.add_argument("--all", action="store_true", help="show matching and routing first")
    parser.add_argument("--scopes", action="store_true", help="show scopes, and nothing else")
    parser.add_argument(
        "--composite", action="store_true", help="raise alarms, find them on Spark; nothing else"
    )
    parser.add_argument("--quick", action="store_true", help="the live demo in a few seconds")
    parser.add_argument("--no-pipeline", action="store_true", help="without Spark")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        default=PLOT,
        help="where the picture goes: %(default)s",
    )
    options = parser.parse_args()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # for terminals of old
    if options.scopes:
        import scopes

        scopes.main()
        return 0
    if options.composite:
        import alarms

        return alarms.main(spark=not options.no_pipeline)
    if options.all:
        import matching
        import routing

        matching.main()
        routing.main()
    console = Console(highlight=False)
    # Now, and not by five brokers at once, none of which would be there in time.
    with console.status("preparing the matching code"):
        prepare(None, lambda text: console.print(text, style="dim"))
    console.rule("[bold]Five brokers, one of which is killed")
    try:
        script = replace(QUICK if options.quick else Script(), pipeline=not options.no_pipeline)
        outcome = live(script, console)
    except (Stalled, StentorError, OSError) as error:
        print(f"the demo cannot go on: {error}", file=sys.stderr)
        return 1
    if outcome is None:
        return 130
    report.show(console, outcome)
    if outcome.pipelined is not None and outcome.pipelined.bars:
        from market import plot

        picture = plot.save(outcome.pipelined, options.plot)
        console.print(f"\nThe bars as a picture: {picture}", highlight=False, soft_wrap=True)
    if outcome.ok:
        report.invite(console)
    return 0 if outcome.ok else 1


def live(script: Script, console: Console) -> Outcome | None:
    """The live demo; None if it was interrupted."""
    # Deliveries are timed here, so neither the thread that draws nor the search for garbage, of
    # which there is little, may keep the event loop waiting.
    sys.setswitchinterval(0.0005)
    gc.disable()
    with (
        tempfile.TemporaryDirectory(prefix="stentor-demo-") as directory,
        teller(console) as telling,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_interruptible(play(script, telling, Path(directory))))


async def _interruptible(playing: Coroutine[Any, Any, T]) -> T | None:
    """Until the end, or the first signal; then the brokers are stopped, which takes a second."""
    task = asyncio.create_task(playing)
    loop = asyncio.get_running_loop()
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    try:
        return await task
    except asyncio.CancelledError:
        return None


if __name__ == "__main__":
    sys.exit(main())
