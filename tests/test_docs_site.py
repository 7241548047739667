"""What the site shows of the code."""

from pathlib import Path
from textwrap import dedent

import griffe

EXTENSION = Path(__file__).parents[1] / "tools" / "docstrings.py"


def test_examples_and_attributes_are_explained_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        dedent('''
            class Limits:
                """Bounds.

                >>> Limits()
                Limits(queue=5)

                None is larger.
                """

                queue: Annotated[int, About("What waits " "in memory.", "count", least=1)] = 5
                #: The smallest number
                #: that is allowed.
                least: float = 0
        ''')
    )
    extensions = griffe.load_extensions(str(EXTENSION))
    limits = griffe.load("module", search_paths=[tmp_path], extensions=extensions)["Limits"]
    assert limits.docstring.value == (
        "Bounds.\n\n```pycon\n>>> Limits()\nLimits(queue=5)\n```\n\nNone is larger."
    )
    assert limits["queue"].docstring.value == "What waits in memory."
    assert str(limits["queue"].annotation) == "int"
    assert limits["least"].docstring.value == "The smallest number\nthat is allowed."
