"""All commands, and how they begin and end."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from stentor.cli import exits
from stentor.cli.archive import archive
from stentor.cli.broker import broker
from stentor.cli.check import check
from stentor.cli.durables import durables
from stentor.cli.explain import explain
from stentor.cli.journal import journal
from stentor.cli.operate import drain, links, offers
from stentor.cli.pipeline import pipeline
from stentor.cli.publish import publish
from stentor.cli.record import record
from stentor.cli.replay import replay
from stentor.cli.shell import completion, version
from stentor.cli.status import status
from stentor.cli.subscribe import subscribe
from stentor.cli.up import up
from stentor.errors import StentorError

app = typer.Typer(
    name="stentor",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def root(
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            metavar="",
            envvar="STENTOR_DEBUG",
            help="Show a traceback with errors.",
        ),
    ] = False,
) -> None:
    """Publish and subscribe by content: every event reaches those who asked for it, by what it
    says.

    \b
    Begin here, each in a terminal of its own:
      stentor broker
      stentor subscribe 127.0.0.1:7411 "symbol = 'IBM' and price > 100"
      stentor publish 127.0.0.1:7411 '{"symbol": "IBM", "price": 120.5}'

    \b
    Exit codes:
      0    it did what was asked
      1    it failed; one line on stderr says why, and what to do
      2    it was used wrongly, or configured so
      130  it was interrupted by Ctrl-C; 143 by SIGTERM

    \b
    A broker and an overlay run until they are told to stop, by Ctrl-C or SIGTERM: that is 0. So it
    is for a pipeline with SIGTERM.
    """
    if debug:
        os.environ["STENTOR_DEBUG"] = "1"


app.command()(broker)
app.command()(up)
app.command()(subscribe)
app.command()(publish)
app.command()(offers)
app.command()(status)
app.add_typer(links)
app.command()(durables)
app.command()(drain)
app.add_typer(journal)
app.add_typer(pipeline)
app.add_typer(archive)
app.command()(replay)
app.command()(record)
app.command()(check)
app.command(short_help="Say what an error or a setting means.")(explain)
app.command(short_help="Print a completion script for a shell.")(completion)
app.command()(version)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run a command line; always ends with `SystemExit`."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="stentor")
    except StentorError as error:
        _trace()
        exits.complain(exits.describe(error))
        sys.exit(exits.exit_code(error))
    except BrokenPipeError:
        # Who reads our output has enough. What is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(exits.OK)
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
    except Exception as error:
        _trace()
        exits.complain(
            f"stentor: {type(error).__name__}: {error}; this should not happen, please report it "
            "with what `stentor --debug` shows"
        )
        sys.exit(exits.FAILURE)


def _trace() -> None:
    if os.environ.get("STENTOR_DEBUG"):
        traceback.print_exc()
