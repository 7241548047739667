"""Parts that are at rest are not asked, and would have had nothing to do or to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chain_histories
import detector_histories
import live_histories
import placement_histories
import pytest
import scope_histories
import settling_histories
import takeover_histories

from stentor.node.agenda import Agenda
from stentor.node.core import Core

HISTORIES: dict[str, tuple[Callable[[int], object], int]] = {
    "live": (live_histories.run_history, 12),
    "rendezvous": (lambda seed: live_histories.run_history(seed, shape="rendezvous"), 4),
    "settling": (settling_histories.run_history, 8),
    "chains": (chain_histories.run_history, 6),
    "takeovers": (takeover_histories.run_history, 4),
    "detectors": (detector_histories.check, 6),
    "placements": (lambda seed: placement_histories.check(seed, faults=True), 4),
    "scopes": (scope_histories.run_scope_history, 6),
}


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[Core]:
    """Cores that were found at rest, each as often as that; all their parts are asked as well."""
    found: list[Core] = []
    take = Core.take

    def checked(core: Core) -> Any:
        rested = core.agenda.at_rest
        actions = take(core)
        if rested and core.agenda.at_rest:
            core._tell()
            core._publish()
            assert core.agenda.take() == []
            on_their_way = (core.traffic, core.publishing)
            assert not [p for p in core._working if p.has_work and p not in on_their_way]
            found.append(core)
        return actions

    monkeypatch.setattr(Core, "take", checked)
    return found


@pytest.mark.parametrize("kind", HISTORIES)
def test_parts_at_rest_have_nothing_to_do(rests: list[Core], kind: str) -> None:
    run, count = HISTORIES[kind]
    for seed in range(4_000, 4_000 + count):
        run(seed)
    assert rests


def test_parts_are_at_rest_when_asked_since_they_were_stirred() -> None:
    """To have no work is not enough: there may be something to say."""
    agenda = Agenda()
    agenda.idle()
    assert not agenda.at_rest
    agenda.ask()
    assert not agenda.at_rest
    agenda.idle()
    assert agenda.at_rest
    agenda.ask()
    assert agenda.at_rest
    agenda.stir()
    assert not agenda.at_rest
    agenda.idle()
    assert not agenda.at_rest
    agenda.ask()
    agenda.stir()
    agenda.idle()
    assert not agenda.at_rest
