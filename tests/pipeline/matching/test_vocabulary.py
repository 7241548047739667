"""What a program has registered goes where its filters go, as far as it can."""

from __future__ import annotations

import pickle

from stentor.filters.custom import Operator, registered
from stentor.pipeline.matching.vocabulary import Vocabulary


def test_an_operator_whose_module_is_missing_is_left_out() -> None:
    lost = b"cno_such_module_anywhere\nfunction\n."
    before = dict(registered)
    Vocabulary(operators=pickle.dumps([lost]), types=b"").install()
    assert registered == before
    assert all(isinstance(operator, Operator) for operator in registered.values())
