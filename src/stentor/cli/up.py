"""`stentor up`: run a whole overlay as processes of this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from click.exceptions import Exit

from stentor.cli.command import Argument, Option
from stentor.cli.exits import warn
from stentor.cli.options import JsonOption


def up(
    file: Annotated[
        Path,
        Argument(metavar="[FILE]", help="The overlay, in TOML."),
    ] = Path("overlay.toml"),
    check: Annotated[
        bool,
        Option(
            "--check",
            metavar="",
            help="Only read the file, and say what is wrong with it or what it describes.",
        ),
    ] = False,
    watch: Annotated[
        bool,
        Option("--watch", "-w", metavar="", help="Show a table of the brokers below their logs."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Run a whole overlay as processes on this machine.

    Each broker is a process. One that dies is restarted; the logs of all are shown together.
    SIGTERM or Ctrl-C shuts all of them down cleanly, a second signal at once. If this command is
    killed, the brokers end by themselves.

    The file has a table [overlay] with what all brokers share, and a table [[broker]] for
    each, with a name, an address and the names of its neighbors; or just how many, and which
    topology:

    \b
      [overlay]
      brokers = 5
      topology = "tree"      # or "line" or "star"
      base_port = 7411
      data = "data"

    \b
    Examples:
      stentor up overlay.toml
      stentor up --check overlay.toml
      stentor up --watch overlay.toml
    """
    from stentor.broker.overlay import read_overlay
    from stentor.cli.supervising import describe, outline, supervise
    from stentor.errors import InvalidConfiguration

    if json and watch:
        raise InvalidConfiguration("--watch draws a table, and --json prints lines; choose one")

    overlay = read_overlay(file)
    for warning in overlay.warnings:
        warn(warning)
    if check and json:
        from stentor.cli.json_forms import print_json

        print_json(outline(overlay))
    elif check:
        sys.stdout.write(describe(overlay) + "\n")
    else:
        raise Exit(supervise(overlay, watch=watch, json=json))
