"""The README is true: its examples run, and its commands exist."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_run_as_written(example: str) -> None:
    exec(compile(example, "README.md", "exec"), {})


def test_the_mistake_is_shown_as_printed() -> None:
    from stentor import Filter
    from stentor.errors import FilterSyntaxError

    text, shown = re.findall(r">>> Filter\('(.*?)'\)\n(.*?)\n\n", README, re.DOTALL)[0]
    with pytest.raises(FilterSyntaxError) as raised:
        Filter(text)
    lines = [line[4:].rstrip() for line in shown.splitlines()]
    assert "\n".join(lines) == f"stentor.errors.FilterSyntaxError: {raised.value}"
