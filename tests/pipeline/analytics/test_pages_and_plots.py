"""Pages and pictures, without Spark."""

import sys
from datetime import UTC, datetime, timedelta

import pytest

from stentor.errors import PipelineError
from stentor.pipeline.analytics import plots
from stentor.pipeline.analytics.reports import Page, Section, Table

PNG = b"\x89PNG\r\n\x1a\n"
START = datetime(2024, 3, 1, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def page() -> Page:
    table = Table(
        ["filter", "events"], [("x < 1 | y & z", 12345), ("", None)], frozenset({"filter"})
    )
    return Page(
        "A < B",
        "intro",
        [
            Section("One", "text", table, (PNG + b"1", "says")),
            Section("Two", picture=(PNG, "more")),
        ],
    )


def test_html_holds_everything(page, tmp_path):
    page.write(tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    text = (tmp_path / "page.html").read_text()
    assert "<h1>A &lt; B</h1>" in text
    assert "<code>x &lt; 1 | y &amp; z</code>" in text
    assert "<td class='number'>12,345</td>" in text
    assert text.count("src='data:image/png;base64,") == 2


def test_another_name_is_refused(page, tmp_path):
    with pytest.raises(PipelineError, match=r"end with .html"):
        page.write(tmp_path / "page.md")


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.traffic_plot([(START, "north", 1.5)], MINUTE, "1 minute"),
        lambda: plots.traffic_plot(
            [(START + i * MINUTE, f"b{i % 9}", i / 7) for i in range(50)], MINUTE, "1 minute"
        ),
        lambda: plots.types_plot([(f"type{i}", 50 - i) for i in range(40)]),
        lambda: plots.popularity_plot([5, 3, 1, 1]),
        lambda: plots.selectivity_plot([0.0, 0.0, 0.01, 1.0]),
        lambda: plots.selectivity_plot([0.0]),
        lambda: plots.selectivity_plot([1.0]),
        lambda: plots.potential_plot([("simple", 0, "exact"), ("merging", 0, "upper bound")]),
        lambda: plots.attributes_plot([("a" * 60, 0.5, 1.0), ("b", 0.0, 0.2)]),
    ],
)
def test_a_picture(draw):
    assert draw().startswith(PNG)


def test_silence_is_drawn_as_zero():
    line = {START: 1.0, START + 5 * MINUTE: 2.0}
    times = plots._with_gaps(line, START, START + 8 * MINUTE, MINUTE)
    assert times == [START + i * MINUTE for i in (0, 1, 4, 5, 6, 8)]


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PipelineError, match="pip install matplotlib"):
        plots.popularity_plot([1])
