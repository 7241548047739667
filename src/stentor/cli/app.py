"""All commands, and how they begin and end."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

import click

from stentor.cli import exits
from stentor.cli.command import Group
from stentor.errors import StentorError

_BROKER: Final = "pip install 'stentor[broker]'"
_SPARK: Final = "pip install 'stentor[spark]'"
#: What a client works without, and what to do where something else needs it.
_MISSING: Final = {
    "fcntl": "a broker runs on Linux or macOS; connect to one there",
    "numba": _BROKER,
    "numpy": _BROKER,
    "pyarrow": _BROKER,
    "rich": "pip install rich, or ask for --json",
    "deltalake": "pip install 'stentor[archive]'",
    "pandas": _SPARK,
    "pyspark": _SPARK,
}

_HELP: Final = """\
Publish and subscribe by content: every event reaches exactly the subscribers whose filters it
matches.

\b
Begin here, with each command in its own terminal:
  stentor broker
  stentor subscribe "symbol = 'IBM' and price > 100"
  stentor publish '{"symbol": "IBM", "price": 120.5}'

\b
Exit codes:
  0    success; also when Ctrl-C or SIGTERM ends a broker or an overlay, or SIGTERM a pipeline
  1    failure; stderr says why, and what to do about it
  2    wrong use or configuration
  130  interrupted by Ctrl-C; 143 by SIGTERM
"""


def _debug(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        os.environ["STENTOR_DEBUG"] = "1"


def _version(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from stentor import __version__

        print(f"stentor {__version__}")
        context.exit()


app = Group(
    "stentor",
    _HELP,
    {
        "broker": "stentor.cli.broker:broker",
        "up": "stentor.cli.up:up",
        "subscribe": "stentor.cli.subscribe:subscribe",
        "detect": "stentor.cli.detect:detect",
        "publish": "stentor.cli.publish:publish",
        "offers": "stentor.cli.operate:offers",
        "status": "stentor.cli.status:status",
        "links": "stentor.cli.operate:links",
        "durables": "stentor.cli.durables:durables",
        "reload": "stentor.cli.operate:reload",
        "drain": "stentor.cli.operate:drain",
        "backup": "stentor.cli.backup:backup",
        "restore": "stentor.cli.backup:restore",
        "journal": "stentor.cli.journal:journal",
        "pipeline": "stentor.cli.pipeline:pipeline",
        "archive": "stentor.cli.archive:archive",
        "replay": "stentor.cli.replay:replay",
        "record": "stentor.cli.record:record",
        "check": "stentor.cli.check:check",
        "scopes": "stentor.cli.scopes:scopes",
        "filter": "stentor.cli.filter:filter",
        "why": "stentor.cli.why:why",
        "why-not": "stentor.cli.why_not:why_not",
        "explain": "stentor.cli.explain:explain",
        "completion": "stentor.cli.shell:completion",
        "version": "stentor.cli.shell:version",
    },
    params=[
        click.Option(
            ["--debug"],
            is_flag=True,
            envvar="STENTOR_DEBUG",
            show_envvar=True,
            expose_value=False,
            callback=_debug,
            help="Show a traceback with errors.",
        ),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Print the release and exit.",
        ),
    ],
)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run a command line; always ends with `SystemExit`."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    exits.speak_json("--json" in given)
    try:
        sys.exit(app.main(given, prog_name="stentor", standalone_mode=False))
    except click.ClickException as error:
        exits.report_usage(error)
        sys.exit(error.exit_code)
    except StentorError as error:
        _trace()
        exits.report(error)
        sys.exit(exits.exit_code(error))
    except BrokenPipeError:
        # Who reads our output has enough. What is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(exits.OK)
    except ModuleNotFoundError as error:
        advice = _MISSING.get(error.name or "")
        if advice is None:
            raise
        _trace()
        exits.fail(f"this needs {error.name}, which is not installed: {advice}")
        sys.exit(exits.FAILURE)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(exits.INTERRUPTED)
    except Exception as error:
        _trace()
        exits.fail(
            f"{type(error).__name__}: {error}; this should not happen, please report it "
            "with what `stentor --debug` shows"
        )
        sys.exit(exits.FAILURE)


def _trace() -> None:
    if os.environ.get("STENTOR_DEBUG"):
        traceback.print_exc()
