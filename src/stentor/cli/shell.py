"""`stentor version` and `stentor completion`."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer


def version() -> None:
    """Print the release, and what it runs on.

    \b
    Examples:
      stentor version
    """
    import platform
    import sqlite3

    import stentor
    from stentor.protocol.messages import VERSIONS

    print(f"stentor {stentor.__version__}")
    print(f"protocol {', '.join(map(str, VERSIONS))}")
    print(
        f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}"
    )
    print(f"SQLite {sqlite3.sqlite_version}")


class Shell(StrEnum):
    """Shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(
    context: typer.Context,
    shell: Annotated[
        Shell | None,
        typer.Argument(
            metavar="[SHELL]",
            help="bash, zsh, fish or powershell. By default what $SHELL says.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print a script that lets a shell complete commands and options.

    `stentor --install-completion` puts it where the shell finds it.

    \b
    Examples:
      source <(stentor completion bash)
      stentor completion zsh > ~/.zfunc/_stentor
      stentor completion fish > ~/.config/fish/completions/stentor.fish
    """
    from stentor.errors import InvalidConfiguration

    if shell is None:
        name = os.path.basename(os.environ.get("SHELL", ""))
        if name not in {each.value for each in Shell}:
            raise InvalidConfiguration(
                "which shell? give one of " + ", ".join(each.value for each in Shell)
            )
        shell = Shell(name)
    # The same that the shell asks for when it loads the script itself.
    os.environ["_STENTOR_COMPLETE"] = f"source_{shell.value}"
    try:
        context.find_root().command(args=[], prog_name="stentor")
    finally:
        del os.environ["_STENTOR_COMPLETE"]
        sys.stdout.flush()
