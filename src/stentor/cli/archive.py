"""`stentor archive`: what is done to an archive as a whole."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from stentor.cli.command import Argument, Group, Option
from stentor.cli.json_forms import print_json
from stentor.cli.options import JsonOption
from stentor.notation.counts import counted

archive = Group(
    "archive",
    "Tidy up archives of events, and convert old ones.",
    {
        "compact": "stentor.cli.archive:compact",
        "convert": "stentor.cli.archive:convert",
    },
)

_Path: TypeAlias = Annotated[
    str,
    Argument(
        metavar="PATH",
        help="The archive: a directory, or a URI such as s3://bucket/events.",
        show_default=False,
    ),
]


def compact(
    path: _Path,
    grace: Annotated[
        str,
        Option(
            "--grace",
            metavar="DURATION",
            help="How long files that were replaced are kept for readers who began before.",
        ),
    ] = "1 day",
    json: JsonOption = False,
) -> None:
    """Join small files, and delete what is no longer needed.

    It may run at any time, beside writers and readers.

    \b
    Example:
      stentor archive compact archive/ --grace "2 days"
    """
    from stentor.pipeline.archives import compact

    done = compact(None, path, grace=grace)
    if json:
        print_json(done)
        return
    print(
        f"{counted(done.files_before, 'file')} joined into {done.files_after:,} with "
        f"{counted(done.rows, 'event')}; {counted(done.deleted, 'file')} deleted"
    )


def convert(
    path: _Path,
    to: Annotated[
        str | None,
        Option(
            "--to",
            metavar="PATH",
            help="Where the Delta table is made. By default it takes the place of the archive, "
            "which stays as PATH.before.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make a Delta table of an archive of an older version.

    Stop the queries that write to it first; they go on from their checkpoints afterwards.

    \b
    Example:
      stentor archive convert archive/
    """
    from stentor.pipeline.archives.conversion import convert

    done = convert(path, to)
    if json:
        print_json(done)
        return
    print(
        f"{counted(done.rows, 'event')} in {counted(done.files, 'file')} at {done.path}; the old "
        f"archive is at {done.before}, and can be deleted"
    )
