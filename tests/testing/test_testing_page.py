"""The page on testing is true: its examples pass as tests, in a project of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def test_examples_pass_as_written(pytester: pytest.Pytester) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    *tests, plain = examples
    names = re.findall(r"def (test_\w+)", "\n".join(tests))
    assert len(names) == 7
    pytester.makepyfile("\n".join(tests))
    plugins = ("-p", "stentor.testing.plugin", "-p", "no:xdist", "-p", "no:benchmark")
    pytester.runpytest_inprocess(*plugins).assert_outcomes(passed=len(names))
    exec(compile(plain, "docs/testing.md", "exec"), {})
