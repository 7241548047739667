"""Histories of processes that are killed while they settle, each judged by what was recorded."""

from __future__ import annotations

import pytest
from killing_histories import run_history
from nursery import Nursery


@pytest.mark.spec("R-07.41", "R-07.60")
@pytest.mark.parametrize("seed", [10, 12])
def test_each_order_is_confirmed_once_or_dead_once(nursery: Nursery, seed: int) -> None:
    history, report = run_history(nursery, seed)
    assert report.owed >= 50
    assert history.seen.dead > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_each_order_is_confirmed_once_or_dead_once_in_many(nursery: Nursery, seed: int) -> None:
    run_history(nursery, seed)
