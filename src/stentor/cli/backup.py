"""`stentor backup` and `stentor restore`: copy a data directory while its broker runs, and back."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from stentor.cli.command import Argument, Option
from stentor.cli.exits import note
from stentor.cli.options import LOCAL, Connecting, JsonOption, asks_or_reads, is_address


def is_source(text: str) -> bool:
    """Whether this names what is to be copied, and not where to."""
    return (Path(text) / "journal.db").exists() or is_address(text)


@asks_or_reads
def backup(
    how: Annotated[
        Connecting,
        Argument(
            metavar="[SOURCE]",
            help=f"The broker's address, or its data directory.  [default: the broker at {LOCAL}]",
            omitted=LOCAL,
            told_by=is_source,
            show_default=False,
        ),
    ],
    to: Annotated[
        Path,
        Argument(metavar="TO", help="A directory that does not exist yet.", show_default=False),
    ],
    json: JsonOption = False,
) -> None:
    """Copy a broker's data while the broker runs.

    The copy holds what was committed at one moment. It is verified from end to end, and gets its
    name only when it is complete and on disk. The broker is asked where its data are, and they are
    read from there: run this on the broker's machine, as a user who may read them.

    \b
    Examples:
      stentor backup 127.0.0.1:7411 /backup/b1-monday
      stentor backup /var/lib/stentor /backup/b1-monday
    """
    from stentor.broker.storage.backup import BackupReport, backup

    source = how.directory or _asked(how)
    report: BackupReport = backup(source, to, _Shown().progress)
    _print(report, json=json)


def restore(
    copy: Annotated[
        Path,
        Argument(
            metavar="BACKUP", help="The copy that `stentor backup` has made.", show_default=False
        ),
    ],
    to: Annotated[
        Path,
        Argument(metavar="DIRECTORY", help="The data directory to create.", show_default=False),
    ],
    replace: Annotated[
        bool,
        Option(
            "--replace",
            metavar="",
            help="Replace an existing journal, which is kept below the directory.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Put a backup into the data directory of a stopped broker.

    A broker that is started with it serves what the copy holds and publishes under a new stream,
    since others may have seen what came after the copy. What was published after the backup is lost
    with the old data; durable subscribers that have not received it are told of a gap.

    \b
    Examples:
      stentor restore /backup/b1-monday /var/lib/stentor
      stentor restore --replace /backup/b1-monday ./b1
    """
    from stentor.broker.storage.backup import restore

    report = restore(copy, to, replace=replace, progress=_Shown().progress)
    _print(report, json=json)


def _asked(how: Connecting) -> Path:
    """Where the broker says that its data are, if that is on this machine."""
    from stentor.cli.journal_info import read_info
    from stentor.cli.operate import ask
    from stentor.errors import InvalidConfiguration

    found = ask(how, "backup")
    data = Path(found["data"])
    try:
        here = read_info(data)["stream"] == found["stream"]
    except (InvalidConfiguration, OSError):
        here = False
    if not here:
        raise InvalidConfiguration(
            f"the data of {found['broker']!r} are in {data} where it runs, and not here; run this "
            "there, or name the directory under which this machine has them"
        )
    return data


def _print(report: object, *, json: bool) -> None:
    if json:
        from stentor.cli.json_forms import print_json

        print_json(asdict(report))  # type: ignore[call-overload]
    else:
        sys.stdout.write(f"{report}\n")


class _Shown:
    """Says now and then how far it is."""

    def __init__(self) -> None:
        import time

        self._clock = time.monotonic
        self._next = self._clock() + 2.0

    def progress(self, done: int, of: int) -> None:
        now = self._clock()
        if now >= self._next and of:
            self._next = now + 2.0
            note(f"{100 * done // of} % copied")
