"""What one subscription and one withdrawal cost among many, also in another state of the sources.

    python bench/single_changes.py [--filters N] [--against FOLDER] [--only STRATEGY]

It is what `./dev bench routing --only changes` measures, the whole path and the routers alone. With
`--against`, the sources of another state (a folder with `stentor` in it) take turns with these,
process by process, so that both have the same luck with the machine.
"""

# ruff: noqa: E402

from __future__ import annotations

from onecore import ROOT, use_one_core

use_one_core()

import argparse
import json
import os
import subprocess
import sys
from statistics import median
from typing import Any, Final

from network.changes import measure_changes
from network.configurations import FILTERING

ROUNDS: Final = 3
CHANGES: Final = 1_000


def elsewhere(folder: str, routing: str, filters: int) -> dict[str, float]:
    """Microseconds by a process of its own, with the sources in this folder."""
    command = [sys.executable, __file__, "--filters", str(filters), "--once", routing]
    environment = {**os.environ, "PYTHONPATH": folder}
    said = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, Any] = json.loads(said.stdout)
    return {
        f"{what}, {part}": row[what][key]
        for what in ("subscribe", "unsubscribe")
        for part, key in (("whole path", "mean_us"), ("routers alone", "routers_us"))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--filters", type=int, default=1_000, help="so many are held")
    parser.add_argument("--against", help="a folder with another state of `stentor`")
    parser.add_argument("--only", choices=FILTERING, help="one strategy")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once is not None:
        print(json.dumps(measure_changes(given.once, given.filters, CHANGES)))
        return
    folders = [str(ROOT / "src"), *([given.against] if given.against else [])]
    for routing in (given.only,) if given.only else FILTERING:
        rounds = [[elsewhere(f, routing, given.filters) for f in folders] for _ in range(ROUNDS)]
        for part in rounds[0][0]:
            here, *there = (min(turn[i][part] for turn in rounds) for i in range(len(folders)))
            print(f"{routing:10}{part:30}{here:8.1f} µs", end="")
            if there:
                ratio = median(now[part] / before[part] for now, before in rounds)
                print(f", there {there[0]:.1f} µs; {ratio:.2f} of it", end="")
            print(flush=True)


if __name__ == "__main__":
    main()
