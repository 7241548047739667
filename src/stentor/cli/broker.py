"""`stentor broker`: run one broker until it is told to stop."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from click.exceptions import Exit

from stentor.broker.config_keys import Key, broker_keys, value_form
from stentor.cli.command import Option
from stentor.cli.options import JsonOption

if TYPE_CHECKING:
    from stentor.broker.config import Configuration

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
#: In this order help lists them.
_GROUPS: Final = ("Network", "Journal", "Security", "TLS", "Limits", "Operation")


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
    help = f"{about.text}  [{'; '.join(notes)}]"
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
    option = Option(
        flag,
        help=help,
        metavar=metavar or None,
        show_default=False,
        complete=(lambda given: list(about.choices)) if about.choices else None,
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
    keys = sorted(broker_keys(), key=lambda key: _GROUPS.index(key.about.group))
    options = [_option(key) for key in keys]
    names = {option.name: key.dotted for option, key in zip(options, keys, strict=True)}

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
        Option(
            "--config",
            "-c",
            metavar="FILE",
            envvar="STENTOR_CONFIG",
            help="TOML file with settings. Options and variables go before it.",
        ),
    ] = None,
    show_config: Annotated[
        bool,
        Option(
            "--show-config",
            metavar="",
            help="Print the settings in force, and where each comes from, as a configuration file, "
            "and end.",
        ),
    ] = False,
    supervised: Annotated[bool, Option("--supervised", hidden=True)] = False,
    json: JsonOption = False,
) -> None:
    """Run a broker.

    It prints where it listens and what it serves, and logs to stderr. SIGTERM or Ctrl-C shuts it
    down cleanly: what was acknowledged is on disk, and clients are told where else to connect. A
    second signal ends it at once. SIGHUP, like `stentor reload`, makes it read its configuration
    file again.

    Every setting is an option, an environment variable or a key in the file, in this order of
    precedence. Access is open to everybody unless the file has grants.

    With --json it prints the same as one object when it is ready, and logs in JSON unless
    --log-format says otherwise.

    \b
    Examples:
      stentor broker
      stentor broker --listen 127.0.0.1:7411 --data ./b1
      stentor broker --listen 127.0.0.1:7412 --data ./b2 --neighbor 127.0.0.1:7411
      stentor broker --config b1.toml --monitor 127.0.0.1:9411 --log-format json
      stentor broker --config b1.toml --show-config
    """
    from stentor.broker.config import load, to_toml
    from stentor.cli.serving import serve

    if json and settings["log_format"] is None:
        settings["log_format"] = "json"

    def read() -> Configuration:
        return load(config, flags=settings)

    if show_config:
        configuration = read()
        if json:
            from stentor.cli.json_forms import print_json

            print_json(_in_force(configuration))
            return
        sys.stdout.write(to_toml(configuration.settings, origins=configuration.origins))
        return
    raise Exit(serve(read, reloads=config is not None, supervised=supervised, json=json))


def _in_force(configuration: Configuration) -> dict[str, Any]:
    """The settings in force as the table of a configuration file, without secrets."""
    import tomllib

    from stentor.broker.config import to_toml

    settings = tomllib.loads(to_toml(configuration.settings))
    return {"settings": settings, "origins": dict(configuration.origins)}
