"""A short soak, so that the long one works when it is wanted."""

from __future__ import annotations

import asyncio

import pytest
from overlay_processes import Overlay
from soak import soak


@pytest.mark.slow
def test_a_short_soak(overlay: Overlay) -> None:
    account = asyncio.run(soak(overlay, 20.0, round_seconds=4.0))
    assert account.rounds >= 1
    assert account.delivered == account.owed > 0
    assert account.growth < 30 * 2**20
