"""A short soak, so that the long one works when it is wanted."""

from __future__ import annotations

import asyncio

import pytest
from attacks import ATTACKS, QUIET_ATTACKS
from overlay_processes import Overlay
from soak import soak


@pytest.mark.slow
def test_a_short_soak(overlay: Overlay) -> None:
    account = asyncio.run(soak(overlay, 20.0, round_seconds=2.0))
    assert set(account.attacks) == {each.__name__ for each in (*ATTACKS, *QUIET_ATTACKS)}
    assert account.delivered == account.owed > 0
    assert account.growth < 30 * 2**20
