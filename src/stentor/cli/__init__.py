"""The command `stentor`.

Commands live in one module each and import what they need when they run, so that help, completion
and mistakes are answered at once.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; always ends with `SystemExit`."""
    from stentor.cli.app import run

    run(arguments)
