"""Everything that can be set about a broker, with its defaults.

Each field says in an `About` what it is for. The options of `stentor broker`, the variables of the
environment, the keys of the configuration file and the reference in the documentation are all made
of these, by `stentor.broker.config`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, get_args

from stentor.errors import InvalidConfiguration, UnknownStrategy
from stentor.model.names import name_problem, shown, text_problem

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from stentor.routing.protocol import Place

    class Directory:
        """A field that is given as a text or a path, and read as a path."""

        def __get__(self, owner: object, cls: object = None) -> Path | None: ...
        def __set__(self, owner: object, value: str | PathLike[str] | None) -> None: ...

    class Addresses:
        """A field that is given as an address or several, and read as several."""

        def __get__(self, owner: object, cls: object = None) -> tuple[str, ...]: ...
        def __set__(self, owner: object, value: Iterable[str]) -> None: ...

else:
    Directory = Path | None
    Addresses = tuple[str, ...]

#: What may be written for some settings, for type checkers.
Overlay: TypeAlias = Literal["tree", "hierarchy", "hybrid", "graph", "rendezvous"]
Routing: TypeAlias = Literal["covering", "identity", "simple", "merging", "flooding"]
Advertising: TypeAlias = Literal["none"] | Routing
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
LogFormat: TypeAlias = Literal["text", "json"]

#: A broker's usual port.
DEFAULT_PORT: Final = 7411

#: How a setting is written and read.
Kind: TypeAlias = Literal[
    "text",
    "secret",
    "flag",
    "count",
    "share",
    "duration",
    "size",
    "path",
    "address",
    "addresses",
    "filters",
    "texts",
    "choices",
]

#: How links may be made, and what a neighbor can be in each of these overlays.
OVERLAYS: Final[dict[Overlay, tuple[Place, ...]]] = {
    "tree": ("peer",),
    "hierarchy": ("parent", "child"),
    "hybrid": ("peer", "parent", "child"),
    "graph": ("peer",),
    "rendezvous": ("peer", "visitor"),
}
#: How filters are announced to neighbors.
ROUTING: Final = get_args(Routing)
#: The same for advertisements that steer subscriptions; or they do not.
ADVERTISEMENTS: Final = ("none", *ROUTING)
#: What subscriptions do with what does not fit into their queues.
OVERFLOW: Final = ("spill", "block", "drop_oldest", "drop_newest", "disconnect")
#: What brokers themselves say of a client to rules of scopes.
RESERVED_CLAIMS: Final = frozenset({"name", "roles"})
LOG_LEVELS: Final = get_args(LogLevel)
LOG_FORMATS: Final = get_args(LogFormat)


@dataclass(frozen=True, slots=True)
class About:
    """What a setting is for, and what it may be."""

    text: str
    kind: Kind
    #: The only texts that are allowed, if there are any.
    choices: tuple[str, ...] = ()
    #: The smallest number that is allowed.
    least: float = 0
    #: Under which heading help lists it.
    group: str = "Network"


@dataclass(frozen=True)
class TlsFiles:
    """PEM files. With `ca`, the other side must show a certificate that it signed."""

    certificate: Annotated[
        Path,
        About("PEM file with the broker's certificate and those it rests on.", "path", group="TLS"),
    ]
    key: Annotated[Path, About("PEM file with the certificate's private key.", "path", group="TLS")]
    ca: Annotated[
        Path | None,
        About(
            "PEM file with the authority that must have signed the certificates of others: of "
            "clients and neighbors, who then need one. Neighbors are verified against it too.",
            "path",
            group="TLS",
        ),
    ] = None


@dataclass(frozen=True)
class Grant:
    """Who someone is, and what they may do. Filters are in the subscription language.

    A publication must match one of `publish`, a subscription must be covered by one of
    `subscribe`. Whoever wants to hear of demand for an advertisement must be allowed to publish
    all of it, and offers are shown that overlap one of `subscribe`. A durable subscription belongs
    to the grant that made it. The default is everything but operating the broker.
    """

    name: Annotated[
        str,
        About(
            "Whom this is about, the same at all brokers of an overlay. A client `ann` of the "
            "grant `desk` publishes as `ann@desk`.",
            "text",
        ),
    ]
    token: Annotated[str | None, About("The token that they show when connecting.", "secret")] = (
        None
    )
    certificate: Annotated[
        str | None, About("The common name in the TLS certificate that they show.", "text")
    ] = None
    publish: Annotated[
        tuple[str, ...],
        About("They may publish what one of these filters matches; [] for nothing.", "filters"),
    ] = ("",)
    subscribe: Annotated[
        tuple[str, ...],
        About("Their subscriptions must be covered by one of these; [] for none.", "filters"),
    ] = ("",)
    operate: Annotated[
        bool, About("Whether they may see the status, drain the broker and change links.", "flag")
    ] = False
    broker: Annotated[bool, About("Whether they may connect as a neighbor broker.", "flag")] = False
    scopes: Annotated[
        bool,
        About(
            "Whether they may change the scope graph, and read journals whatever it says.", "flag"
        ),
    ] = False
    names: Annotated[
        tuple[str, ...],
        About(
            "Names under which their clients are components of the scope graph, as patterns with "
            "`*` and `?`; a client of another name is the component `NAME@GRANT`.",
            "texts",
        ),
    ] = ()
    attributes: Annotated[
        tuple[str, ...],
        About(
            "Attributes that all of their clients have, for rules of scopes, each as NAME=TEXT.",
            "texts",
        ),
    ] = ()
    claims: Annotated[
        tuple[str, ...],
        About("Attributes that their clients may say they have, with any value.", "texts"),
    ] = ()
    overflow: Annotated[
        tuple[str, ...],
        About(
            "What their subscriptions may do with what does not fit into their queues.",
            "choices",
            choices=OVERFLOW,
        ),
    ] = OVERFLOW
    block: Annotated[
        float | None,
        About(
            "How long publishers wait for one of their subscriptions (`block`), if that is less "
            "than `limits.block`.",
            "duration",
        ),
    ] = None
    subscriptions: Annotated[
        int | None, About("Subscriptions that all of their clients may have here.", "count")
    ] = None
    durables: Annotated[
        int | None, About("Durable subscriptions that the broker keeps for them.", "count")
    ] = None
    groups: Annotated[int | None, About("Groups of theirs that live at the broker.", "count")] = (
        None
    )
    detectors: Annotated[int | None, About("Patterns that are detected for them.", "count")] = None
    rate: Annotated[
        int | None,
        About("Notifications that all of them may publish in a second.", "count", least=1),
    ] = None
    weight: Annotated[
        int | None,
        About(
            "What the filters of one subscription may weigh: about 50 for two comparisons, and two "
            "for each value in a list.",
            "count",
        ),
    ] = None

    def __post_init__(self) -> None:
        problem = 'holds an "@"' if "@" in self.name else text_problem(self.name)
        if problem is not None:
            raise InvalidConfiguration(
                f"the name {shown(self.name)} of a grant {problem}; choose another"
            )
        for text in self.attributes:
            name, equals, _ = text.partition("=")
            if not equals or name_problem(name) or name in RESERVED_CLAIMS:
                raise InvalidConfiguration(
                    f"{shown(text)} is not an attribute of a client; write NAME=TEXT, as in "
                    "tenant=acme"
                )


@dataclass(frozen=True)
class Limits:
    """Bounds on everything that could grow."""

    clients: Annotated[
        int, About("Clients connected at the same time.", "count", least=1, group="Limits")
    ] = 20_000
    subscriptions_per_client: Annotated[
        int, About("Subscriptions of one client.", "count", least=1, group="Limits")
    ] = 10_000
    durables: Annotated[
        int,
        About(
            "Durable subscriptions that the broker keeps; half of them are reserved for the "
            "grants, in equal parts.",
            "count",
            least=1,
            group="Limits",
        ),
    ] = 10_000
    groups: Annotated[
        int,
        About(
            "Groups of consumers that live at the broker, shared in the same way.",
            "count",
            least=1,
            group="Limits",
        ),
    ] = 1_000
    detectors: Annotated[
        int,
        About(
            "Patterns that the broker detects, shared in the same way.",
            "count",
            least=1,
            group="Limits",
        ),
    ] = 256
    scheduled: Annotated[
        int,
        About(
            "Publications that wait to be delivered later, shared in the same way.",
            "count",
            least=1,
            group="Limits",
        ),
    ] = 100_000
    scheduled_bytes: Annotated[
        int,
        About(
            "Bytes of these publications on disk, shared in the same way.",
            "size",
            least=1,
            group="Limits",
        ),
    ] = 2**30
    frame: Annotated[
        int, About("The largest frame that is accepted.", "size", least=4096, group="Limits")
    ] = 16 * 2**20
    window: Annotated[
        int,
        About(
            "Notifications that one client may have published without an answer so far.",
            "count",
            least=1,
            group="Limits",
        ),
    ] = 20_000
    # No less than the window of a client, or of a link: who makes publishers wait ("block") then
    # loses nothing of what one of them has under way.
    queue: Annotated[
        int,
        About(
            "Notifications that wait in memory for one subscription.",
            "count",
            least=1,
            group="Limits",
        ),
    ] = 20_000
    block: Annotated[
        float,
        About(
            "How long publishers wait, in all, for subscribers with the policy `block`. Those that "
            "are behind after that are served as with `spill`.",
            "duration",
            group="Limits",
        ),
    ] = 1.0
    link_queue: Annotated[
        int,
        About("Notifications that wait in memory for one link.", "count", least=1, group="Limits"),
    ] = 100_000
    timeout: Annotated[
        float,
        About(
            "Silence after which a connection is given up; pings are sent after a third of it.",
            "duration",
            least=0.1,
            group="Limits",
        ),
    ] = 30.0
    contact: Annotated[
        float,
        About(
            "How long a broker that starts with a journal and dials neighbors waits for one of "
            "them to say how far it was, before it acknowledges anything.",
            "duration",
            group="Limits",
        ),
    ] = 2.0
    shutdown: Annotated[
        float, About("How long a graceful shutdown may take.", "duration", group="Limits")
    ] = 10.0


@dataclass(frozen=True)
class Retention:
    """How much of the journal is kept; whichever is less. None: no bound."""

    seconds: Annotated[
        float | None,
        About("For how long the journal keeps a notification.", "duration", group="Journal"),
    ] = 7 * 86_400.0
    bytes: Annotated[
        int | None,
        About("How large the journal may grow; the oldest go first.", "size", group="Journal"),
    ] = 10 * 2**30
    durable_seconds: Annotated[
        float | None,
        About(
            "The same for what a durable subscription has not confirmed, if that is longer.",
            "duration",
            group="Journal",
        ),
    ] = 30 * 86_400.0
    durable_bytes: Annotated[
        int | None,
        About(
            "How large the journal may grow for what durable subscriptions have not confirmed, if "
            "that is more.",
            "size",
            group="Journal",
        ),
    ] = 20 * 2**30


@dataclass(frozen=True)
class Settings:
    """A broker. Directories may be texts, and a single address need not be in a tuple.

    >>> Settings(data="b1", listen="127.0.0.1:0").listen
    ('127.0.0.1:0',)
    """

    listen: Annotated[
        Addresses,
        About(
            "Where to listen: host:port, tls://host:port or unix:path. Port 0 picks a free one.",
            "addresses",
        ),
    ] = (f"127.0.0.1:{DEFAULT_PORT}",)  # type: ignore[assignment]
    advertise: Annotated[
        Addresses,
        About(
            "Where others are told to connect, best first, if that differs from where it listens. "
            "Port 0 stands for the port at which it listens.",
            "addresses",
        ),
    ] = ()  # type: ignore[assignment]
    name: Annotated[
        str | None,
        About(
            "The broker's name, unique in the overlay; by default the name of its data directory, "
            "or else its first address.",
            "text",
        ),
    ] = None
    data: Annotated[
        Directory,
        About(
            "Directory of the journal, created if needed; without one, the journal is in memory "
            "and lost with the broker.",
            "path",
            group="Journal",
        ),
    ] = None  # type: ignore[assignment]
    neighbors: Annotated[
        Addresses,
        About(
            "Brokers to link with. Links form a tree, unless the overlay is a graph; in a "
            "rendezvous overlay, brokers hear of all others through them.",
            "addresses",
        ),
    ] = ()  # type: ignore[assignment]
    overlay: Annotated[
        Overlay,
        About(
            "How the brokers of an overlay are linked: a tree of peers; a hierarchy, where each "
            "has one parent; a hybrid of peers with hierarchies below them; a graph, where links "
            "may form cycles and stand in for each other; or rendezvous, where brokers "
            "link with those that deal with the same event types.",
            "text",
            choices=tuple(OVERLAYS),
        ),
    ] = "tree"
    parent: Annotated[
        str | None,
        About("The broker above this one, in a hierarchy.", "address"),
    ] = None
    routing: Annotated[
        Routing,
        About("How subscriptions are announced to neighbors.", "text", choices=ROUTING),
    ] = "covering"
    advertisements: Annotated[
        Advertising,
        About(
            "How advertisements are announced to neighbors, if subscriptions are to go only where "
            "something that overlaps them is advertised. Publications then have to be advertised. "
            "It is `none` at all brokers of an overlay, or at no broker.",
            "text",
            choices=ADVERTISEMENTS,
        ),
    ] = "none"
    looseness: Annotated[
        float,
        About(
            "For merging: what share of the events that a merged filter matches may be unwanted.",
            "share",
        ),
    ] = 0.0
    enforce_advertisements: Annotated[
        bool,
        About(
            "Refuse publications that match no advertisement of their publisher.",
            "flag",
            group="Security",
        ),
    ] = False
    monitor: Annotated[
        str | None,
        About(
            "host:port of the HTTP endpoints /metrics, /healthz, /readyz and /status.",
            "address",
            group="Operation",
        ),
    ] = None
    tls: TlsFiles | None = None
    grants: tuple[Grant, ...] = ()
    token: Annotated[
        str | None,
        About("The token that this broker shows to its neighbors.", "secret", group="Security"),
    ] = None
    limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
    kernels: Annotated[
        Directory,
        About(
            "Directory of compiled matching code, created if needed; brokers may share it. By "
            "default stentor/kernels in the user's cache directory.",
            "path",
            group="Operation",
        ),
    ] = None  # type: ignore[assignment]
    log_level: Annotated[
        LogLevel,
        About(
            "The least important messages to log.", "text", choices=LOG_LEVELS, group="Operation"
        ),
    ] = "info"
    log_format: Annotated[
        LogFormat,
        About(
            "Lines for people, or one JSON object per line.",
            "text",
            choices=LOG_FORMATS,
            group="Operation",
        ),
    ] = "text"

    def __post_init__(self) -> None:
        for name in ("data", "kernels"):
            if isinstance(given := getattr(self, name), str):
                object.__setattr__(self, name, Path(given))
            elif not isinstance(given, Path | None):
                raise InvalidConfiguration(f"{name}={given!r} is not a path; give a text or a Path")
        for name in ("listen", "advertise", "neighbors"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        if self.overlay not in OVERLAYS:
            raise UnknownStrategy(
                f"there is no overlay {shown(self.overlay)}; choose one of {', '.join(OVERLAYS)}"
            )
