"""What the site shows of the code."""

from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]


def test_examples_and_attributes_are_explained_as_they_are_written() -> None:
    package = griffe.load(
        "stentor.broker.settings",
        search_paths=[ROOT / "src"],
        extensions=griffe.load_extensions(str(ROOT / "tools" / "docstrings.py")),
        allow_inspection=False,
    )
    settings = package["Settings"]
    assert settings.docstring is not None
    assert "\n```pycon\n>>> Settings(data=" in settings.docstring.value
    assert settings.docstring.value.endswith("\n('127.0.0.1:0',)\n```")
    queue = package["Limits"]["queue"]
    assert queue.docstring is not None
    assert queue.docstring.value == "Notifications that wait in memory for one subscription."
    assert str(queue.annotation) == "int"
    about = package["About"]["least"]
    assert about.docstring is not None
    assert about.docstring.value == "The smallest number that is allowed."
