"""The README and the pages with examples are true: the examples run as written."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = [
    pytest.param(example, id=f"{page} {number}")
    for page in ("README.md", "docs/extending.md", "docs/routing.md")
    for number, example in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    )
]


@pytest.mark.parametrize("example", EXAMPLES)
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
