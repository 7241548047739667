"""The README and the pages with examples are true: the examples run as written."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = (
    "README.md",
    "docs/extending.md",
    "docs/routing.md",
    "docs/scopes.md",
    "docs/tutorial.md",
)
#: Pages whose examples need more than an interpreter, each with a test of its own.
ELSEWHERE = {
    "docs/addressing.md": "tests/filters/test_dialects.py",
    "docs/client.md": "tests/client/test_client_page.py",
    "docs/pipeline.md": "tests/pipeline/test_pipeline_page.py",
    "docs/testing.md": "tests/testing/test_testing_page.py",
}


def examples_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


EXAMPLES = [
    pytest.param(example, id=f"{page} {number}")
    for page in PAGES
    for number, example in enumerate(examples_of(page))
]


def test_no_page_has_examples_that_nobody_runs() -> None:
    pages = [str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md")]
    assert {page for page in [*pages, "README.md"] if examples_of(page)} == {*PAGES, *ELSEWHERE}
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text()


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run_as_written(example: str) -> None:
    exec(compile(example, "<example>", "exec"), {"__name__": "example"})


def test_scope_graphs_are_written_as_the_page_says() -> None:
    from stentor.scopes.drawing import draw
    from stentor.scopes.language import Deployment, parse

    page = (ROOT / "docs" / "scopes.md").read_text()
    scripts = [parse(text) for text in re.findall(r"```scopes\n(.*?)```", page, re.DOTALL)]
    assert len(scripts) >= 5
    first = Deployment(assume=True)
    first.run(scripts[0])
    assert draw(first.graph) in page


def test_the_mistake_is_shown_as_printed() -> None:
    from stentor import Filter
    from stentor.errors import FilterSyntaxError

    text, shown = re.findall(r">>> Filter\('(.*?)'\)\n(.*?)\n\n", README, re.DOTALL)[0]
    with pytest.raises(FilterSyntaxError) as raised:
        Filter(text)
    lines = [line[4:].rstrip() for line in shown.splitlines()]
    assert "\n".join(lines) == f"stentor.errors.FilterSyntaxError: {raised.value}"
