"""The report at the end: what was promised, and what was counted."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from market.cast import DESKS, EXCHANGES
from market.pipeline import Pipelined
from market.story import Outcome
from market.view import duration

#: What a reader may try next, as it stands in the README.
COMMANDS: Final = (
    "stentor broker",
    "stentor subscribe \"symbol = 'IBM' and price > 100\"",
    'stentor publish \'{"symbol": "IBM", "price": 120.5}\'',
    "stentor broker --listen 127.0.0.1:7412 --data ./b2 --neighbor 127.0.0.1:7411",
    "stentor status --watch",
)


def show(console: Console, outcome: Outcome) -> None:
    """Print it."""
    console.print()
    console.print(_counts(outcome))
    console.print()
    console.print(_latencies(outcome))
    console.print()
    for line in _words(outcome):
        console.print(line)
    if outcome.pipelined is not None:
        console.print()
        console.print(_pipeline(outcome.pipelined))
    for problem in outcome.problems:
        console.print(Text(problem, style="bold red"))


def invite(console: Console) -> None:
    """Say how to go on."""
    console.print("\nNow try it, each in its own terminal (`.venv/bin/stentor` is the command):\n")
    for command in COMMANDS:
        console.print(Text(f"  {command}", style="cyan"), soft_wrap=True)


def _counts(outcome: Outcome) -> Table:
    verdict = outcome.verdict
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")

    def row(name: str, value: int, words: str, *, good: bool | None = None) -> None:
        style = "" if good is None else "bold green" if good else "bold red"
        table.add_row(name, Text(f"{value:,}", style=style), words)

    row("published", verdict.published, f"by {len(EXCHANGES)} exchanges")
    row(
        "acknowledged",
        verdict.acknowledged,
        "in a journal, on disk",
        good=verdict.acknowledged == verdict.published,
    )
    row("expected", verdict.expected, "by the oracle: every trade against every filter")
    row(
        "delivered",
        verdict.delivered,
        f"to {len(DESKS)} consumers",
        good=verdict.delivered == verdict.expected,
    )
    row("missing", verdict.missing, "", good=not verdict.missing)
    row("twice", verdict.twice, "", good=not verdict.twice)
    row("out of order", verdict.out_of_order, "", good=not verdict.out_of_order)
    row("otherwise wrong", verdict.wrong, "altered, or not asked for", good=not verdict.wrong)
    return table


def _pipeline(found: Pipelined) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column(f"on Spark, in {found.seconds:.0f} s")
    table.add_column("", justify="right")
    table.add_column("without Spark", justify="right")
    table.add_column("")

    def row(name: str, value: int, expected: int, words: str) -> None:
        style = "bold green" if value == expected else "bold red"
        table.add_row(name, Text(f"{value:,}", style=style), f"{expected:,}", Text(words, "dim"))

    row("archived", found.archived, found.trades, "trades, in a Delta table")
    row(
        "matches",
        found.matched,
        found.expected,
        f"with {found.subscriptions:,} stored subscriptions; brokers would say the same",
    )
    row("bars", found.right, found.due, "published back into the overlay, and received")
    return table


def _latencies(outcome: Outcome) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("latency")
    for heading in ("deliveries", "median", "95 %", "99 %", "longest"):
        table.add_column(heading, justify="right")
    for name, latencies in outcome.latencies.items():
        if not len(latencies):
            table.add_row(name, "0")
            continue
        table.add_row(
            name,
            f"{len(latencies):,}",
            *(duration(latencies.percentile(share)) for share in (0.5, 0.95, 0.99, 1.0)),
        )
    return table


def _words(outcome: Outcome) -> list[str]:
    saved = 1 - outcome.carried / max(1, outcome.flooding)
    return [
        f"{outcome.later:,} more deliveries were of what had been published before their consumer "
        "came, or while it was away.",
        f"Links carried {outcome.carried:,} notifications. Flooding would have sent "
        f"{outcome.flooding:,} at least: {saved:.0%} saved. Besides, {outcome.stretches:,} "
        "stretches of journals were read for those who caught up.",
        f"The formal model says of the run: {outcome.verdict.report}.",
    ]
