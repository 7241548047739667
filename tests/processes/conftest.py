"""What the tests with processes share: one nursery for all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "transport"))

from nursery import Nursery
from overlay_processes import Overlay


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def overlay(tmp_path: Path, nursery: Nursery) -> Iterator[Overlay]:
    with Overlay(tmp_path, nursery) as overlay:
        yield overlay
