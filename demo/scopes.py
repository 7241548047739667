"""Scopes: a stock market whose boundaries decide who hears what, and when.

Everything it prints is computed while it runs, from docs/examples/delayed.scopes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from stentor.scopes import ScopeGraph
from stentor.scopes.drawing import draw

console = Console(highlight=False)

MARKET = Path(__file__).parent.parent / "docs" / "examples" / "delayed.scopes"
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("PC1", {"type": "Order", "share": "IBM", "quantity": 10}),
    ("ME1", {"type": "Accept", "customer": "C1", "share": "IBM"}),
    ("ME1", {"type": "Quote", "share": "IBM", "price": 120.5, "executed": True}),
    ("ME1", {"type": "OrderBook", "share": "IBM", "bids": 10}),
    ("PC3", {"type": "Order", "share": "SAP", "market": "M2"}),
    ("ME2", {"type": "Quote", "share": "SAP", "price": 98.0}),
]
LATER = 900.0


def main() -> None:
    """Draw the graph, then publish in it."""
    graph = ScopeGraph.load(MARKET)
    console.rule("[bold]Two stock markets as scopes")
    console.print(draw(graph), markup=False, soft_wrap=True)
    console.print()
    table = Table("published by", "event", "at once", "15 minutes later", "stopped")
    for publisher, event in EVENTS:
        outcome = graph.outcome(event, publisher, explain=True)
        now = graph.settle(outcome)
        later = graph.advance(LATER)
        stopped = dict.fromkeys(" → ".join(each.at) for each in outcome.refusals)
        table.add_row(
            publisher,
            ", ".join(f"{name}={value!r}" for name, value in event.items()),
            _names(now, publisher),
            ", ".join(f"{d.consumer} ({d.notification['type']})" for d in later),
            ", ".join(list(stopped)[:3]) + (" …" if len(stopped) > 3 else ""),
        )
    console.print(table)
    console.print(
        "No program names a scope. market.scopes and delayed.scopes say who belongs where, "
        "what crosses each boundary, that quotes leave the professionals late, and that a market "
        "is left by completed trades alone.\n"
    )


def _names(deliveries: list[Any], publisher: str) -> str:
    return ", ".join(d.consumer for d in deliveries if d.consumer != publisher) or "nobody"


if __name__ == "__main__":
    main()
