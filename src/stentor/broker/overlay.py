"""A whole overlay in one file: which brokers there are, and how they are linked.

    [overlay]                       # what all brokers have in common: any setting of a broker
    data = "data"                   # each broker gets a directory of its own in it
    routing = "covering"

    [[broker]]
    name = "b1"
    listen = "127.0.0.1:7411"

    [[broker]]
    name = "b2"
    listen = "127.0.0.1:7412"
    neighbors = ["b1"]              # names in this file, or addresses of brokers elsewhere

or, for a regular one, nothing but a number:

    [overlay]
    brokers = 5
    topology = "line"               # or "star" or "tree"; or "ring", in a graph or rendezvous
    base_port = 7411                # b1 gets this port, b2 the next, ...

A link is named at either end or at both; it is the same link. Links must form a tree, so a cycle is
a mistake, and it is named, unless the overlay is a graph or rendezvous. In a hierarchy a broker
names its `parent`. Several trees are allowed, though seldom meant.

Port 0 is a port that is free when the overlay is started, and stays the same while it runs.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from stentor.broker.config import (
    Given,
    Layer,
    build,
    convert,
    from_environment,
    key_at,
    layer_of,
    merge,
    unknown_variables,
)
from stentor.broker.settings import DEFAULT_PORT, Settings
from stentor.errors import InvalidAddress, InvalidConfiguration, InvalidTopology, StentorError
from stentor.notation.document import Document, near
from stentor.notation.toml_lines import KeyPath
from stentor.transport.address import Address

TOPOLOGIES: Final = ("line", "star", "tree", "ring")
MAX_BROKERS: Final = 1000

#: Of `[overlay]`: keys that are no settings of a broker.
_OWN: Final = (
    "brokers",
    "topology",
    "base_port",
    "host",
    "monitor_base_port",
    "run",
)
#: Settings that every broker must have for itself.
_EACH: Final = ("listen", "name", "neighbors", "parent", "monitor")
_DEFAULT_HOST: Final = "127.0.0.1"
#: Hosts that mean every interface, and how the machine itself reaches them.
_EVERYWHERE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class OverlayLink(NamedTuple):
    """A link of the overlay: `dialer` makes the connection."""

    dialer: str
    other: str
    #: Whether the other one is above the dialer.
    up: bool = False


@dataclass(frozen=True)
class OverlaySettings:
    """Brokers by name, in the order of the file, and their links."""

    file: Path
    #: Without the neighbors that are in the file: `settings` adds those.
    brokers: dict[str, Settings]
    links: tuple[OverlayLink, ...]
    #: Directory for what belongs to the running overlay.
    run: Path
    warnings: tuple[str, ...] = ()

    def settings(self, name: str) -> Settings:
        """The complete settings of a broker."""
        broker = self.brokers[name]
        links = [link for link in self.links if link.dialer == name]
        linked = [self.address(link.other) for link in links if not link.up]
        parents = [self.address(link.other) for link in links if link.up]
        parent = parents[0] if parents else broker.parent
        return replace(broker, neighbors=(*linked, *broker.neighbors), parent=parent)

    def address(self, name: str) -> str:
        """Where the other brokers, on the same machine, reach this one."""
        address = Address.parse(self.brokers[name].listen[0])
        return str(replace(address, host=_EVERYWHERE.get(address.host, address.host)))

    def with_ports(self) -> OverlaySettings:
        """The same with a free port wherever the port was 0."""
        wanted = [
            (name, which, index, address)
            for name, settings in self.brokers.items()
            for which in ("listen", "monitor")
            for index, address in enumerate(_addresses(settings, which))
            if address.kind in ("tcp", "tls") and not address.port
        ]
        ports = free_ports([address.host for _, _, _, address in wanted])
        brokers = dict(self.brokers)
        for (name, which, index, address), port in zip(wanted, ports, strict=True):
            chosen = str(address.with_port(port))
            if which == "monitor":
                brokers[name] = replace(brokers[name], monitor=chosen)
            else:
                listen = list(brokers[name].listen)
                listen[index] = chosen
                brokers[name] = replace(brokers[name], listen=tuple(listen))
        return replace(self, brokers=brokers)


def free_ports(hosts: Iterable[str]) -> list[int]:
    """A port for each, all different, on which nobody listens now."""
    found: list[socket.socket] = []
    try:
        for host in hosts:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            held = socket.socket(family, socket.SOCK_STREAM)
            found.append(held)
            held.bind((host, 0))
        return [held.getsockname()[1] for held in found]
    except OSError as error:
        raise InvalidConfiguration(f"no free port: {error.strerror or error}") from error
    finally:
        for held in found:
            held.close()


# -- reading


def read_overlay(file: Path, *, environment: Mapping[str, str] | None = None) -> OverlaySettings:
    """The overlay that a file describes; all its mistakes are reported at once.

    Variables of the environment go before the file, but for those that brokers must not share.
    """
    environment = os.environ if environment is None else environment
    document = Document.read(file, InvalidConfiguration)
    return _Reader(document, environment).overlay()


class _Reader:
    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self._document = document
        self._problems = document.problems
        self._warnings = unknown_variables(environment)
        self._environment = {
            path: given
            for path, given in from_environment(environment).items()
            if path[0] not in (*_EACH, "data")
        }
        self._common: dict[str, Any] = {}
        self._defaults: Layer = {}
        #: Where in the file each broker is.
        self._places: dict[str, KeyPath] = {}
        self._islands: list[list[str]] = []
        self._shape = "tree"

    def overlay(self) -> OverlaySettings:
        document, problems = self._document, self._problems
        for name in document.data:
            if name not in ("overlay", "broker"):
                document.unknown((name,), ("overlay", "broker"))
        self._read_common()
        tables = self._tables()
        brokers, links = self._brokers(tables)
        self._check_places(brokers)
        document.check()
        self._check_links(brokers, links)
        problems.check(InvalidTopology)
        if len(self._islands) > 1:
            parts = "; ".join(", ".join(island) for island in self._islands)
            self._warnings.append(
                f"{document.file}: these groups of brokers are not linked with each other: {parts}"
            )
        run = self._common.get("run", document.file.with_suffix(".run").name)
        return OverlaySettings(
            document.file,
            brokers,
            tuple(links),
            document.file.parent.absolute() / Path(str(run)).expanduser(),
            tuple(self._warnings),
        )

    # -- [overlay]

    def _read_common(self) -> None:
        document = self._document
        table = document.data.get("overlay", {})
        if not isinstance(table, dict):
            document.problem(("overlay",), "overlay is a table; write [overlay]")
            return
        checks = {
            "brokers": lambda v: _number(v, 1, MAX_BROKERS),
            "topology": lambda v: _one_of(v, TOPOLOGIES),
            "base_port": lambda v: _number(v, 0, 65535),
            "monitor_base_port": lambda v: _number(v, 0, 65535),
            "host": _text,
            "run": _text,
        }
        assert set(checks) == set(_OWN)
        for name, check in checks.items():
            if name in table:
                problem = check(table[name])
                if problem:
                    document.problem(("overlay", name), f"{name}: {problem}")
                else:
                    self._common[name] = table[name]
        for name in _EACH:
            if name in table:
                document.problem(
                    ("overlay", name),
                    f"{name} is each broker's own; set it in [[broker]]",
                )
        self._defaults = layer_of(document, table, ("overlay",), others=(*_OWN, *_EACH))
        self._shape = str(table.get("overlay", "tree"))

    # -- [[broker]]

    def _tables(self) -> list[dict[str, Any]]:
        """The tables of the brokers, or what they would be in a regular overlay."""
        document, problems = self._document, self._problems
        given = document.data.get("broker")
        count = self._common.get("brokers")
        if given is None:
            if count is None:
                if not problems:
                    problems.add(
                        str(document.file),
                        "there are no brokers; write [[broker]] for each, or brokers = 5 in "
                        "[overlay]",
                    )
                return []
            above = self._shape == "hierarchy"
            usual = "ring" if self._shape == "rendezvous" else "line"
            return regular(count, self._common.get("topology", usual), hierarchy=above)
        if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
            document.problem(("broker",), "write [[broker]] for each broker")
            return []
        for name in ("brokers", "topology"):
            if name in self._common:
                document.problem(
                    ("overlay", name),
                    f"{name} makes a regular overlay; leave it or the [[broker]] tables out",
                )
        return given

    def _brokers(
        self, tables: Sequence[dict[str, Any]]
    ) -> tuple[dict[str, Settings], dict[OverlayLink, str]]:
        document, problems = self._document, self._problems
        regular_overlay = "broker" not in document.data
        prefixes = [
            ("overlay", "brokers") if regular_overlay else ("broker", index)
            for index in range(len(tables))
        ]
        names = [
            name if isinstance(name := table.get("name"), str) and name else None
            for table in tables
        ]
        brokers: dict[str, Settings] = {}
        links: dict[OverlayLink, str] = {}
        for index, (table, prefix, name) in enumerate(zip(tables, prefixes, names, strict=True)):
            if name is None:
                document.problem((*prefix, "name"), "every broker needs a name")
            elif name in brokers:
                document.problem(
                    (*prefix, "name"),
                    f"{name!r} is the name of another broker, too",
                )
            own = layer_of(document, table, prefix, others=("neighbors", "parent"))
            own = self._completed(own, index, name, prefix)
            settings = build(
                merge([self._environment, own, self._defaults_without_data()]), problems
            )
            neighbors = table.get("neighbors", [])
            outside = self._neighbors(neighbors, (*prefix, "neighbors"), name, names, links)
            parents = [table["parent"]] if "parent" in table else []
            above = self._neighbors(parents, (*prefix, "parent"), name, names, links, up=True)
            if name is not None and name not in brokers:
                parent = above[0] if above else None
                brokers[name] = replace(settings, neighbors=tuple(outside), parent=parent)
                self._places[name] = prefix
        return brokers, links

    def _defaults_without_data(self) -> Layer:
        return {path: given for path, given in self._defaults.items() if path != ("data",)}

    def _completed(self, own: Layer, index: int, name: str | None, prefix: KeyPath) -> Layer:
        """Add what follows from the place among the others: ports and directory."""
        document = self._document
        made: dict[str, str] = {}
        host = self._common.get("host", _DEFAULT_HOST)
        host = f"[{host}]" if ":" in host else host
        if ("listen",) not in own:
            made["listen"] = f"{host}:{_port(self._common.get('base_port', DEFAULT_PORT), index)}"
        if ("monitor",) not in own and "monitor_base_port" in self._common:
            made["monitor"] = f"{host}:{_port(self._common['monitor_base_port'], index)}"
        completed = dict(own)
        for key, value in made.items():
            completed[(key,)] = Given(
                value, document.origin(prefix), base=document.file.parent.absolute()
            )
        data = self._defaults.get(("data",))
        if data is not None and ("data",) not in own and name is not None:
            try:
                base = convert(key_at("data"), data)
            except StentorError as error:
                self._problems.add(data.origin, f"data: {error}")
            else:
                directory = name.replace(os.sep, "_")
                if base is not None:
                    completed[("data",)] = Given(str(Path(base) / directory), data.origin)
        return completed

    def _neighbors(
        self,
        given: Any,
        place: KeyPath,
        name: str | None,
        names: Sequence[str | None],
        links: dict[OverlayLink, str],
        *,
        up: bool = False,
    ) -> list[str]:
        """Note the links that are named here; the neighbors that are not in the file."""
        document, problems = self._document, self._problems
        if isinstance(given, str):
            given = [given]
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            document.problem(place, 'neighbors are a list of names: ["b1", "b2"]')
            return []
        outside = []
        for index, neighbor in enumerate(given):
            origin = document.origin((*place, index))
            if neighbor == name:
                problems.add(origin, f"{name} cannot be its own neighbor")
            elif neighbor in names:
                if name is not None and OverlayLink(neighbor, name) not in links:
                    links.setdefault(OverlayLink(name, neighbor, up), origin)
            else:
                try:
                    if ":" not in neighbor:
                        raise InvalidAddress
                    outside.append(str(Address.parse(neighbor)))
                except InvalidAddress:
                    known = [each for each in names if each is not None]
                    hint = near(neighbor, known).rstrip(";")
                    problems.add(
                        origin,
                        f"there is no broker {neighbor!r} in this file{hint}, and it is no "
                        "address of one elsewhere",
                    )
        return outside

    # -- what is wrong with all of them together

    def _check_places(self, brokers: Mapping[str, Settings]) -> None:
        """No two may want the same port, socket or directory."""
        document, problems = self._document, self._problems
        listening: list[tuple[Address, str]] = []
        advertised: dict[str, str] = {}
        directories: dict[Path, str] = {}
        for name, settings in brokers.items():
            for which in ("listen", "monitor"):
                origin = document.origin((*self._places[name], which))
                for address in _addresses(settings, which):
                    for other, owner in listening:
                        if _clash(address, other):
                            problems.add(origin, f"{address} is where {owner} listens, too")
                    listening.append((address, name))
            for text in settings.advertise:
                owner = advertised.setdefault(text, name)
                if owner != name and (Address.parse(text).port or Address.parse(text).path):
                    origin = document.origin((*self._places[name], "advertise"))
                    problems.add(origin, f"{text} is where others are told to find {owner}, too")
            if settings.data is not None:
                owner = directories.setdefault(settings.data.resolve(), name)
                if owner != name:
                    origin = document.origin((*self._places[name], "data"))
                    problems.add(origin, f"{settings.data} is the directory of {owner}, too")

    def _check_links(
        self, brokers: Mapping[str, Settings], links: Mapping[OverlayLink, str]
    ) -> None:
        """A link between two brokers that are linked already closes a cycle."""
        shapes = {settings.overlay for settings in brokers.values()}
        if len(shapes) > 1:
            self._problems.add(
                str(self._document.file),
                f"all brokers must be of one overlay, not of {' and '.join(sorted(shapes))}; set "
                "`overlay` in [overlay]",
            )
        cycles = shapes & {"graph", "rendezvous"}
        among_peers = "hybrid" in shapes
        groups = _Groups(brokers)
        so_far: list[OverlayLink] = []
        for link, origin in links.items():
            if groups.join(link) or cycles or (among_peers and not link.up):
                so_far.append(link)
                continue
            cycle = " - ".join([link.dialer, *path_between(link.other, link.dialer, so_far)])
            self._problems.add(
                origin,
                f"the link between {link.dialer} and {link.other} closes a cycle: {cycle}; "
                'leave one of these links out, or set overlay = "graph"',
            )
        self._islands = groups.members()


class _Groups:
    """Brokers that are linked with each other, directly or not (disjoint sets)."""

    def __init__(self, names: Iterable[str]) -> None:
        self._above = {name: name for name in names}

    def _top(self, name: str) -> str:
        while (above := self._above[name]) != name:
            self._above[name] = self._above[above]
            name = above
        return name

    def join(self, link: OverlayLink) -> bool:
        """False if they were together before."""
        one, other = self._top(link.dialer), self._top(link.other)
        self._above[one] = other
        return one != other

    def members(self) -> list[list[str]]:
        found: dict[str, list[str]] = {}
        for name in self._above:
            found.setdefault(self._top(name), []).append(name)
        return list(found.values())


def regular(count: int, topology: str, *, hierarchy: bool = False) -> list[dict[str, Any]]:
    """The tables of a regular overlay, where each broker but the first has one neighbor above it.

    In a ring the last one is linked with the first, too.

    >>> [table.get("neighbors") for table in regular(5, "tree")]
    [None, ['b1'], ['b1'], ['b2'], ['b2']]
    """

    def linked(number: int) -> dict[str, Any]:
        above = {"star": 1, "tree": number // 2}.get(topology, number - 1)
        if hierarchy:
            return {"parent": f"b{above}"}
        closes = ["b1"] if topology == "ring" and number == count > 2 else []
        return {"neighbors": [f"b{above}", *closes]}

    return [{"name": "b1"}, *({"name": f"b{n}", **linked(n)} for n in range(2, count + 1))]


def path_between(start: str, end: str, links: Iterable[OverlayLink]) -> list[str]:
    """The brokers on the way, both ends included; empty if there is none."""
    adjacent: dict[str, list[str]] = {}
    for link in links:
        adjacent.setdefault(link.dialer, []).append(link.other)
        adjacent.setdefault(link.other, []).append(link.dialer)
    came_from = {start: start}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        if here == end:
            way = [end]
            while way[-1] != start:
                way.append(came_from[way[-1]])
            return way[::-1]
        for there in adjacent.get(here, []):
            if there not in came_from:
                came_from[there] = here
                waiting.append(there)
    return []


def _addresses(settings: Settings, which: str) -> list[Address]:
    if which == "listen":
        return [Address.parse(text) for text in settings.listen]
    return [] if settings.monitor is None else [Address.parse(settings.monitor)]


def _clash(one: Address, other: Address) -> bool:
    if one.kind == "unix" or other.kind == "unix":
        return one == other
    if not one.port or one.port != other.port:
        return False
    return one.host == other.host or one.host in _EVERYWHERE or other.host in _EVERYWHERE


def _port(base: int, index: int) -> int:
    return base + index if base else 0


def _number(value: Any, least: int, most: int) -> str:
    if type(value) is not int or not least <= value <= most:
        return f"{value!r} is not a whole number from {least} to {most}"
    return ""


def _one_of(value: Any, choices: Sequence[str]) -> str:
    if value in choices:
        return ""
    return f"{value!r} is not one of {', '.join(choices)}{near(str(value), choices).rstrip(';')}"


def _text(value: Any) -> str:
    return "" if isinstance(value, str) and value else f"{value!r} is not text"
