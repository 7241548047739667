"""Faults that are planted into the core are found (`planted_faults`)."""

import pytest
from planted_faults import faults, look_for, problems


def test_all_faults_can_be_planted() -> None:
    """Whoever changes the source changes the table with it."""
    assert problems() == []
    names = [fault.name for fault in faults()]
    assert len(set(names)) == len(names) >= 24


@pytest.mark.slow
@pytest.mark.parametrize("start", range(8))
def test_all_faults_are_found(start: int) -> None:
    """All of them, in eight parts."""
    wrong = [each for each in look_for(faults()[start::8]) if not each.as_expected]
    assert not wrong, wrong
