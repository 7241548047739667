"""From options, environment and file to `Settings`; mistakes are named with their place.

Four layers say what a broker is like: the options of the command, variables of the environment, a
TOML file, and the defaults of `Settings`. For each key the first that has it wins. Every value
keeps its *origin* on the way (`--listen`, `STENTOR_LISTEN`, `broker.toml:3`), so that each problem
can name the place that has to be changed, and `--show-config` can tell where a value came from. All
problems are reported at once, one per line.

Paths in a file are relative to the directory that the file is in, others to the working directory.
A secret that begins with @ is the name of a file that holds it; @@ stands for a plain @.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from stentor.broker.advertising import MOST
from stentor.broker.advertising import problem as unusable
from stentor.broker.config_keys import (
    NONE,
    PREFIX,
    Key,
    broker_keys,
    grant_keys,
    sections,
    shown,
)
from stentor.broker.settings import Grant, Settings, TlsFiles
from stentor.errors import InvalidConfiguration, StentorError
from stentor.notation.document import Document, Problems, near
from stentor.notation.secrets import names_file, read_secret
from stentor.notation.toml_lines import KeyPath
from stentor.notation.units import (
    DURATION_FORM,
    SIZE_FORM,
    parse_duration,
    parse_size,
)
from stentor.transport.address import Address

#: Variables that are no settings of a broker but mean something to the command line.
OTHER_VARIABLES: Final = frozenset(
    {"STENTOR_CONFIG", "STENTOR_CONNECT_TIMEOUT", "STENTOR_DEBUG", "STENTOR_TRUST"}
)

#: A name or a token may well be "none"; these are not.
_CLEARED_BY_NONE: Final = frozenset({"duration", "size", "path", "address"})
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True)
class Given:
    """A value as it was given, and where."""

    value: Any
    origin: str
    #: From a variable or an option, so that everything is text.
    textual: bool = False
    #: What relative paths are relative to.
    base: Path | None = None


#: What one source says: values by key. `("grants",)` holds a list of such.
Layer: TypeAlias = dict[tuple[str, ...], Given]


@dataclass(frozen=True)
class Configuration:
    """Settings, and how they came about."""

    settings: Settings
    #: Where each value that is no default came from, by dotted key.
    origins: dict[str, str] = field(default_factory=dict)
    #: What the operator should know, though it is no mistake.
    warnings: tuple[str, ...] = ()


def load(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Configuration:
    """Put the layers together. `flags` has values by dotted key; None means not given.

    >>> load(flags={"limits.timeout": "2m"}, environment={}).settings.limits.timeout
    120.0
    """
    environment = os.environ if environment is None else environment
    problems = Problems()
    warnings = unknown_variables(environment)
    layers = [from_flags(flags or {}), from_environment(environment)]
    if file is not None:
        document = Document.read(file, InvalidConfiguration)
        problems = document.problems
        layers.append(layer_of(document, document.data))
        if has_secrets(layers[-1]) and readable_by_others(file):
            warnings.append(f"{file} holds tokens and others can read it; run: chmod 600 {file}")
    merged = merge(layers)
    settings = build(merged, problems)
    problems.check(InvalidConfiguration)
    origins = {".".join(path): given.origin for path, given in merged.items()}
    return Configuration(settings, origins, tuple(warnings))


# -- layers


def from_flags(flags: Mapping[str, Any]) -> Layer:
    """What the options of the command say, by dotted key."""
    keys = {key.dotted: key for key in broker_keys()}
    return {
        keys[dotted].path: Given(value, keys[dotted].flag, textual=True)
        for dotted, value in flags.items()
        if value is not None and value != []
    }


def from_environment(environment: Mapping[str, str]) -> Layer:
    """What the variables say. An empty one counts as not set."""
    return {
        key.path: Given(environment[key.variable], key.variable, textual=True)
        for key in broker_keys()
        if environment.get(key.variable)
    }


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Warnings about variables that look like settings.

    They are no mistakes: container platforms make such variables of the names of services.
    """
    known = {key.variable for key in broker_keys()} | OTHER_VARIABLES
    return [
        f"{name}: there is no such setting{near(name, known)}"
        for name in sorted(environment)
        if name.startswith(PREFIX) and name not in known
    ]


def merge(layers: Iterable[Layer]) -> Layer:
    """For each key the first layer that has it."""
    merged: Layer = {}
    for layer in layers:
        for path, given in layer.items():
            merged.setdefault(path, given)
    return merged


def layer_of(
    document: Document,
    table: Mapping[str, Any],
    prefix: KeyPath = (),
    *,
    others: Sequence[str] = (),
) -> Layer:
    """The settings in a table of a document that stands at `prefix`.

    Keys in `others` belong to somebody else and are left alone; any further one is a problem.
    """
    found: Layer = {}
    tables = {path[0] for path in sections()}
    names = {key.path[0] for key in broker_keys()} | {"grants", *others}
    for name, value in table.items():
        path = (*prefix, name)
        if name in others:
            continue
        if name == "grants":
            if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
                document.problem(path, "grants is a list of tables; write [[grants]] for each")
                continue
            keys = [key.path[0] for key in grant_keys()]
            grants = []
            for index, each in enumerate(value):
                grant = _given(document, each, (*path, index), keys)
                # Where to point at if the grant as a whole is wrong.
                grants.append(grant | {(): Given(None, document.origin((*path, index)))})
            found[("grants",)] = Given(grants, document.origin(path))
        elif name not in tables:
            found |= _given(document, {name: value}, prefix, names)
        elif isinstance(value, dict):
            keys = [key.path[1] for key in broker_keys() if key.path[0] == name]
            inside = _given(document, value, path, keys)
            found |= {(name, *inner): given for inner, given in inside.items()}
        else:
            document.problem(path, f"{name} is a table; write [{name}] and its keys below")
    return found


def _given(
    document: Document, table: Mapping[str, Any], prefix: KeyPath, names: Collection[str]
) -> Layer:
    """The values in a table; a key that is none of these names is a problem."""
    found: Layer = {}
    base = document.file.parent.absolute()
    for name, value in table.items():
        path = (*prefix, name)
        if name in names:
            found[(name,)] = Given(value, document.origin(path), base=base)
        else:
            document.unknown(path, names)
    return found


def has_secrets(layer: Layer) -> bool:
    """Whether a token is among the values, rather than the name of a file that holds it."""
    secrets = {key.path for key in broker_keys() if key.about.kind == "secret"}
    own = [given.value for path, given in layer.items() if path in secrets]
    grants = layer.get(("grants",))
    if grants is not None:
        own += [one[("token",)].value for one in grants.value if ("token",) in one]
    return any(isinstance(value, str) and not names_file(value) for value in own)


def readable_by_others(file: Path) -> bool:
    return bool(file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


# -- values


def build(layer: Layer, problems: Problems) -> Settings:
    """The settings that the values make; what is wrong with them goes to `problems`."""
    values: dict[tuple[str, ...], Any] = {}
    for key in broker_keys():
        given = layer.get(key.path)
        if given is not None:
            value = _converted(key, given, problems)
            if value is not MISSING:
                values[key.path] = value
    parts = {path[0]: value for path, value in values.items() if len(path) == 1}
    for section, cls in sections().items():
        part = _part(section, cls, layer, values, problems)
        if part is not None:
            parts[section[0]] = part
    if ("grants",) in layer:
        parts["grants"] = tuple(_grants(layer[("grants",)].value, problems))
    settings = Settings(**parts)
    if not problems:
        _check_together(settings, layer, problems)
    return settings


def _part(
    section: tuple[str, ...],
    cls: type,
    layer: Layer,
    values: Mapping[tuple[str, ...], Any],
    problems: Problems,
) -> Any:
    """A nested table, if anything of it was given and nothing is missing."""
    given = [path for path in layer if path[:-1] == section]
    if not given:
        return None
    missing = [
        key
        for key in broker_keys()
        if key.path[:-1] == section and key.required and key.path not in layer
    ]
    for key in missing:
        problems.add(
            layer[given[0]].origin,
            f"{key.dotted} is missing; give it with {key.flag}, {key.variable} or in the file",
        )
    here = {path[-1]: value for path, value in values.items() if path[:-1] == section}
    if missing or len(here) < len(given):
        return None
    return cls(**here)


def _grants(given: list[Layer], problems: Problems) -> Iterable[Grant]:
    taken: dict[tuple[str, str], str] = {}
    for layer in given:
        origin = layer[()].origin
        values = {}
        for key in grant_keys():
            if key.path in layer:
                value = _converted(key, layer[key.path], problems)
                if value is not MISSING:
                    values[key.path[0]] = value
            elif key.required:
                problems.add(origin, f"a grant needs a {key.dotted}")
        if "token" not in values and "certificate" not in values:
            problems.add(origin, "a grant needs a token or a certificate, to know who it is for")
        for what in ("token", "certificate"):
            if what in values:
                first = taken.setdefault((what, values[what]), origin)
                if first != origin:
                    problems.add(origin, f"the {what} is that of the grant at {first}")
        if "name" in values:
            try:
                yield Grant(**values)
            except InvalidConfiguration as error:
                problems.add(origin, str(error))


def _converted(key: Key, given: Given, problems: Problems) -> Any:
    """The value of the setting; MISSING, and a problem, if there is none in it."""
    try:
        return convert(key, given)
    except StentorError as error:
        what = "" if given.origin == key.flag else f"{key.dotted}: "  # the option is named already
        problems.add(given.origin, f"{what}{error}")
        return MISSING


def convert(key: Key, given: Given) -> Any:
    """The value of the setting, or `InvalidConfiguration` that says what it must be."""
    value = given.value
    if key.optional and key.about.kind in _CLEARED_BY_NONE and value == NONE:
        return None
    match key.about.kind:
        case "flag":
            return _flag(value, given.textual)
        case "count":
            return _at_least(key, _count(value, given.textual))
        case "share":
            return _share(value, given.textual)
        case "duration":
            return _at_least(key, _measure(value, parse_duration, DURATION_FORM, float))
        case "size":
            return _at_least(key, _measure(value, parse_size, SIZE_FORM, int))
        case "addresses":
            items = _items(value, given.textual)
            return tuple(_address(item, given.base) for item in items)
        case "filters":
            return tuple(_filter(item) for item in _items(value, given.textual))
        case "texts":
            return tuple(_text(item) for item in _items(value, given.textual))
        case "choices":
            return tuple(_chosen(key, _text(item)) for item in _items(value, given.textual))
        case "address":
            return _address(_text(value), given.base)
        case "path":
            return _path(_text(value), given.base)
        case "secret":
            return read_secret(_text(value), given.base)
        case _:
            return _chosen(key, _text(value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidConfiguration(f"{value!r} is not text; put it in quotes")
    if not value:
        raise InvalidConfiguration("empty; leave it out for the default")
    return value


def _chosen(key: Key, value: str) -> str:
    choices = key.about.choices
    if choices and value not in choices:
        raise InvalidConfiguration(
            f"{value!r} is not one of {', '.join(choices)}{near(value, choices).rstrip(';')}"
        )
    return value


def _flag(value: Any, textual: bool) -> bool:
    if isinstance(value, bool):
        return value
    if textual and isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise InvalidConfiguration(f"{value!r} is neither true nor false")


def _count(value: Any, textual: bool) -> int:
    if type(value) is int:
        return value
    if textual and isinstance(value, str):
        digits = value.strip().replace("_", "")
        if digits.removeprefix("-").isdecimal():
            return int(digits)
    raise InvalidConfiguration(f"{value!r} is not a whole number")


def _share(value: Any, textual: bool) -> float:
    if textual and isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    if type(value) in (int, float) and 0 <= value <= 1:
        return float(value)
    raise InvalidConfiguration(f"{value!r} is not a number from 0 to 1")


def _measure(value: Any, parse: Any, form: str, kind: type[int] | type[float]) -> Any:
    if isinstance(value, str):
        return parse(value)
    if type(value) is int or (kind is float and type(value) is float and value == value):
        return kind(value)
    raise InvalidConfiguration(f"{value!r} is not {form}")


def _at_least(key: Key, value: Any) -> Any:
    least = key.about.least
    if value < least:
        raise InvalidConfiguration(f"{value:g} is too small; at least {least:g} is needed")
    return value


def _items(value: Any, textual: bool) -> Sequence[str]:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",")] if textual else [value]
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return value
    raise InvalidConfiguration(f'{value!r} is not a list of texts; write ["...", "..."]')


def _path(value: str, base: Path | None) -> Path:
    path = Path(value).expanduser()
    return path if base is None else base / path


def _address(text: str, base: Path | None) -> str:
    address = Address.parse(text)
    if address.kind == "unix":
        return f"unix:{_path(address.path, base)}"
    return str(address)


def _filter(text: str) -> str:
    from stentor.filters import Filter  # takes a while to load, and few configurations need it

    Filter(text)
    return text


def _check_together(settings: Settings, layer: Layer, problems: Problems) -> None:
    """What can only be seen by looking at several settings."""

    def origin(*path: str) -> str:
        given = layer.get(path)
        return given.origin if given else key_at(*path).flag

    listen = [Address.parse(text) for text in settings.listen]
    if not listen:
        problems.add(origin("listen"), "a broker must listen somewhere")
    own = {str(address) for address in listen if address.port or address.path}
    if len(own) < sum(1 for address in listen if address.port or address.path):
        problems.add(origin("listen"), "an address is given twice")
    if settings.tls is None and any(address.kind == "tls" for address in listen):
        problems.add(
            origin("listen"), "tls:// needs a certificate; set tls.certificate and tls.key"
        )
    for text in settings.advertise:
        wrong = unusable(text, listen)
        if wrong is not None:
            problems.add(origin("advertise"), wrong)
    if len(settings.advertise) > MOST:
        problems.add(origin("advertise"), f"others are told {MOST} addresses at most; choose")
    for text in settings.neighbors:
        address = Address.parse(text)
        if text in own:
            problems.add(origin("neighbors"), f"{text} is this broker's own address")
        if address.kind in ("tcp", "tls") and not address.port:
            problems.add(origin("neighbors"), f"{text}: nobody can be reached at port 0")
    if len(set(settings.neighbors)) < len(settings.neighbors):
        problems.add(origin("neighbors"), "a neighbor is given twice")
    if settings.monitor is not None:
        monitor = Address.parse(settings.monitor)
        if monitor.kind != "tcp":
            problems.add(origin("monitor"), f"{monitor} is not of the form host:port")
        elif str(monitor) in own:
            problems.add(origin("monitor"), f"{monitor} is where the broker listens for clients")


def key_at(*path: str) -> Key:
    """The key with this path."""
    (key,) = (key for key in broker_keys() if key.path == path)
    return key


# -- and back


def with_absolute_paths(settings: Settings) -> Settings:
    """The same settings, wherever they are read: paths no longer depend on a directory."""
    tls = settings.tls
    if tls is not None:
        ca = None if tls.ca is None else tls.ca.absolute()
        tls = TlsFiles(tls.certificate.absolute(), tls.key.absolute(), ca)

    def place(text: str) -> str:
        address = Address.parse(text)
        return f"unix:{Path(address.path).absolute()}" if address.kind == "unix" else text

    return replace(
        settings,
        data=None if settings.data is None else settings.data.absolute(),
        tls=tls,
        listen=tuple(map(place, settings.listen)),
        advertise=tuple(map(place, settings.advertise)),
        neighbors=tuple(map(place, settings.neighbors)),
    )


def to_toml(
    settings: Settings, *, secrets: bool = False, origins: Mapping[str, str] | None = None
) -> str:
    """The settings as a configuration file, which `load` reads as the same settings.

    Relative paths mean another place if the file is put elsewhere: see `with_absolute_paths`.
    Secrets are left out unless asked for. With `origins`, each line tells where its value is from.

    >>> print(to_toml(Settings(name="b1")))  # doctest: +ELLIPSIS
    listen = ["127.0.0.1:7411"]
    advertise = []
    name = "b1"
    ...
    """
    top: list[str] = []
    tables: dict[str, list[str]] = {}
    for key in broker_keys():
        value: Any = settings
        for name in key.path:
            value = None if value is None else getattr(value, name)
        lines = top if len(key.path) == 1 else tables.setdefault(key.path[0], [])
        written = _written(key, value, secrets)
        if written is not None:
            line = f"{key.path[-1]} = {written}"
            if origins is not None:
                line += f"  # {origins.get(key.dotted, 'default')}"
            lines.append(line)
    blocks = ["\n".join(top)]
    blocks += ["\n".join([f"[{name}]", *lines]) for name, lines in tables.items() if lines]
    for grant in settings.grants:
        lines = ["[[grants]]"]
        for key in grant_keys():
            written = _written(key, getattr(grant, key.path[0]), secrets)
            if written is not None:
                lines.append(f"{key.path[0]} = {written}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _written(key: Key, value: Any, secrets: bool) -> str | None:
    """A value in TOML; None if it has to be left out."""
    kind = key.about.kind
    if value is None:
        return _quoted(NONE) if key.default is not None and key.optional else None
    if kind == "secret" and not secrets:
        return '"(hidden)"'
    if kind == "secret" and value.startswith("@"):
        return _quoted("@" + value)
    if kind in ("addresses", "filters", "texts", "choices"):
        return "[" + ", ".join(_quoted(item) for item in value) + "]"
    if kind in ("flag", "count", "share", "duration", "size"):
        text = shown(key, value)
        return _quoted(text) if kind in ("duration", "size") else text
    return _quoted(str(value))


def _quoted(text: str) -> str:
    # JSON's strings are TOML's, but for one more character that TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
