"""`stentor journal`: look at, check and repair the journal in a data directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from click.exceptions import Exit

from stentor.cli.command import Argument, Group, Option
from stentor.cli.exits import FAILURE
from stentor.cli.json_forms import print_json
from stentor.cli.options import JsonOption

journal = Group(
    "journal",
    "Inspect, check and repair the journal in a data directory.",
    {
        "info": "stentor.cli.journal:info",
        "check": "stentor.cli.journal:check",
        "repair": "stentor.cli.journal:repair",
    },
)

_Directory: TypeAlias = Annotated[
    Path,
    Argument(metavar="DIRECTORY", help="The broker's data directory.", show_default=False),
]


def info(directory: _Directory, json: JsonOption = False) -> None:
    """Say what a journal holds. It is quick, and the broker may be running.

    \b
    Examples:
      stentor journal info ./b1
      stentor journal info ./b1 --json | jq .head
    """
    from stentor.cli.journal_info import read_info, shown

    found = read_info(directory)
    _print(found if json else shown(found), json=json)


def check(directory: _Directory, json: JsonOption = False) -> None:
    """Verify every notification in a journal. The broker may be running.

    It reads everything, so it can take long. If something is missing or altered, it says what,
    and the exit code is 1.

    \b
    Examples:
      stentor journal check ./b1
    """
    from stentor.broker.storage import check

    report = check(directory)
    _print(_data(report) if json else str(report), json=json)
    if not report.ok:
        raise Exit(FAILURE)


def repair(
    directory: _Directory,
    force: Annotated[
        bool,
        Option(
            "--force",
            metavar="",
            help="Make a new stream even of a journal that is in order, as is right for one that "
            "was restored from a backup.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Save what is intact in a damaged journal. The broker must not be running.

    All notifications that are intact go into a new journal, in order. It is a new stream, so that
    nobody mistakes a position in the old one for one in the new. The old file is kept beside it.

    \b
    Examples:
      stentor journal repair ./b1
      stentor journal repair --force ./b1-from-backup
    """
    from stentor.broker.storage import repair

    report = repair(directory, force=force)
    _print(_data(report) if json else str(report), json=json)


def _print(found: Any, *, json: bool) -> None:
    if json:
        print_json(found)
    else:
        sys.stdout.write(f"{found}\n")


def _data(report: Any) -> dict[str, Any]:
    import dataclasses

    return dataclasses.asdict(report) | {"ok": report.ok}
