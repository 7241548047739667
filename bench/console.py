"""Tables and progress on the terminal."""

from __future__ import annotations

import sys

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from figures import seconds
from tables import Results, Table

#: Wide enough for every table where there is no terminal to ask.
WIDTH = 140


def show(results: Results, tables: list[Table]) -> None:
    """All tables, and what they were measured with."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    for table in tables:
        grid = Grid(title=table.title, caption=table.note, box=SIMPLE_HEAD, title_justify="left")
        grid.title_style, grid.caption_justify = "bold", "left"
        for place, name in enumerate(table.header):
            right = place > 0 and name not in ("Engine", "Load")
            grid.add_column(escape(name), justify="right" if right else "left")
        for row in table.rows:
            grid.add_row(*map(escape, row))
        console.print(grid)
        console.print()
    machine = results["machine"]
    console.print(
        f"{results['profile']} run of {seconds(results['seconds'])} on {machine['processor']}, "
        f"Python {machine['python']}, Numba {machine['numba']}, PyArrow {machine['pyarrow']}"
    )
