"""`stentor version` and `stentor completion`."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

from stentor.cli.command import Argument
from stentor.cli.json_forms import print_json
from stentor.cli.options import JsonOption


def version(json: JsonOption = False) -> None:
    """Print the release and what it runs on.

    \b
    Examples:
      stentor version
    """
    import platform
    import sqlite3

    import stentor
    from stentor.protocol.messages import VERSIONS

    if json:
        print_json(
            {
                "stentor": stentor.__version__,
                "protocol": list(VERSIONS),
                "python": platform.python_version(),
                "platform": platform.platform(),
                "sqlite": sqlite3.sqlite_version,
            }
        )
        return
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


def completion(
    shell: Annotated[
        Shell | None,
        Argument(
            metavar="[SHELL]",
            help="bash, zsh or fish. By default what $SHELL says.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print a script that teaches a shell to complete commands.

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
    from click.shell_completion import get_completion_class

    from stentor.cli.app import app

    script = get_completion_class(shell)
    assert script is not None
    print(script(app, {}, "stentor", "_STENTOR_COMPLETE").source())
