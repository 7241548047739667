"""What a run is at: lines on the standard error, so that the tables can go to a file."""

from __future__ import annotations

import sys


def progress(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)
