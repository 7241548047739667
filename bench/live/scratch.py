"""Where journals are written while something is measured: on the project's own disk.

A temporary directory may be in memory, where nothing has to reach a disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onecore import ROOT


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that is gone afterwards."""
    parent = ROOT / ".cache" / "live"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Path(folder)
