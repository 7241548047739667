"""`stentor broker`: run one broker until it is told to stop."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from stentor.broker.config_keys import Key, broker_keys, value_form
from stentor.cli.exits import FAILURE, OK, complain

if TYPE_CHECKING:
    from collections.abc import Callable

    from stentor.broker.config import Configuration
    from stentor.broker.host import Broker

_METAVARS: Final = {
    "text": "TEXT",
    "secret": "TOKEN",
    "count": "N",
    "duration": "DURATION",
    "size": "SIZE",
    "path": "PATH",
    "address": "ADDRESS",
    "addresses": "ADDRESS",
}

_log: Final = logging.getLogger("stentor.broker")


def _option(key: Key) -> inspect.Parameter:
    """The option of one setting. It is not given a value unless the user gives one: where values
    come from is the business of `stentor.broker.config`."""
    about = key.about
    notes = [f"env: {key.variable}"]
    if about.choices:
        notes.insert(0, value_form(key))
    if about.kind == "addresses":
        notes.insert(0, "repeatable")
    if about.kind in ("duration", "size") and key.optional:
        notes.insert(0, "none: no bound")
    if key.shown_default and about.kind != "flag":
        notes.append(f"default: {key.shown_default}")
    shown = "; ".join(notes).replace("[", "\\[")
    help = f"{about.text} [dim]({shown})[/dim]"
    kind: Any = str | None
    flag = key.flag
    metavar = "NAME" if key.path == ("name",) else _METAVARS.get(about.kind, "")
    if about.choices:
        metavar = "WORD"
    if about.kind == "addresses":
        kind = list[str]
    elif about.kind == "flag":
        kind = bool | None
        flag = f"{key.flag}/--no-{key.flag[2:]}"
        metavar = ""
    option = typer.Option(
        flag, help=help, metavar=metavar, show_default=False, rich_help_panel=about.group
    )
    return inspect.Parameter(
        "_".join(key.path),
        inspect.Parameter.KEYWORD_ONLY,
        default=[] if about.kind == "addresses" else None,
        annotation=Annotated[kind, option],
    )


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command one option per setting, in the place of its `settings`."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.name != "settings"]
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    options = [_option(key) for key in broker_keys()]
    names = {
        parameter.name: key.dotted for parameter, key in zip(options, broker_keys(), strict=True)
    }

    def wrapper(**values: Any) -> None:
        settings = {names[name]: values.pop(name) for name in names}
        command(settings=settings, **values)

    wrapper.__doc__ = command.__doc__
    wrapper.__name__ = command.__name__
    wrapper.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*options, *own], return_annotation=None
    )
    wrapper.__annotations__ = {p.name: p.annotation for p in (*options, *own)}
    return wrapper


@_with_settings
def broker(
    settings: dict[str, Any],
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            envvar="STENTOR_CONFIG",
            help="TOML file with settings. Options and variables go before it.",
            rich_help_panel="Operation",
        ),
    ] = None,
    show_config: Annotated[
        bool,
        typer.Option(
            "--show-config",
            metavar="",
            help="Print the settings in force, and where each comes from, as a configuration file, "
            "and end.",
            rich_help_panel="Operation",
        ),
    ] = False,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Run a broker.

    It prints where it listens and what it serves, and logs to stderr. SIGTERM or Ctrl-C end it in
    good order: what was acknowledged is on disk, and clients are told where else to go. A second
    one ends it at once.

    Every setting is an option, a variable of the environment or a key in the file, in this order
    of precedence. Access is open to everybody unless the file has grants.

    \b
    Examples:
      stentor broker
      stentor broker --listen 127.0.0.1:7411 --data ./b1
      stentor broker --listen 127.0.0.1:7412 --data ./b2 --neighbor 127.0.0.1:7411
      stentor broker --config b1.toml --monitor 127.0.0.1:9411 --log-format json
      stentor broker --config b1.toml --show-config
    """
    from stentor.broker.config import load, to_toml

    configuration = load(config, flags=settings)
    if show_config:
        sys.stdout.write(to_toml(configuration.settings, origins=configuration.origins))
        return
    raise typer.Exit(_serve(configuration, supervised=supervised))


def _serve(configuration: Configuration, *, supervised: bool) -> int:
    from stentor.broker.logs import configure
    from stentor.cli.running import event_loop

    handler = configure(configuration.settings)
    try:
        with asyncio.Runner(loop_factory=event_loop) as runner:
            return runner.run(_life(configuration, supervised=supervised))
    finally:
        handler.close()


async def _life(configuration: Configuration, *, supervised: bool) -> int:
    from stentor.broker.host import Broker

    settings = configuration.settings
    for warning in configuration.warnings:
        _log.warning("%s", warning, extra={"event": "configuration"})
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        if asked.is_set():
            complain(f"stentor: {number.name} a second time; ending at once")
            os._exit(FAILURE)
        asked.set()
        _log.info("%s: shutting down", number.name, extra={"event": "stopping"})

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    if supervised:
        _watch_parent(settings.limits.shutdown + 5.0)
    broker = Broker(settings)
    await broker.start()
    try:
        print(banner(broker), flush=True)
        stopping = asyncio.ensure_future(asked.wait())
        closed = asyncio.ensure_future(broker.wait_closed())
        await asyncio.wait([stopping, closed], return_when=asyncio.FIRST_COMPLETED)
        for future in (stopping, closed):
            future.cancel()
    finally:
        await broker.stop()
    return OK


def banner(broker: Broker) -> str:
    """Where it listens and what it serves."""
    settings = broker.settings
    journal = broker.journal.status()
    kept = journal["head"] - journal["low"] + 1
    rows = [("listening", ", ".join(broker.addresses))]
    if settings.data is None:
        rows.append(("data", "in memory: lost with the broker; --data DIRECTORY keeps it"))
    else:
        rows.append(("data", f"{settings.data}, {kept:,} notifications"))
    rows.append(("neighbors", ", ".join(settings.neighbors) or "none"))
    rows.append(("routing", settings.routing))
    if settings.grants:
        rows.append(("access", f"{len(settings.grants)} grants"))
    else:
        rows.append(("access", "everybody"))
    if broker.monitor_address is not None:
        rows.append(("monitor", f"http://{broker.monitor_address}/metrics"))
    lines = [f"broker {broker.name}", *(f"  {name:<10} {value}" for name, value in rows)]
    return "\n".join(lines)


def _watch_parent(patience: float) -> None:
    """End when standard input does: the supervisor holds the other end of it.

    A thread waits for that, so that not even a stalled event loop survives its supervisor.
    """

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(patience)
        os._exit(FAILURE)

    threading.Thread(target=watch, name="stentor-parent", daemon=True).start()
