"""Options that several commands share: whom to connect to, and as whom.

A command that `connects` has one parameter of the type `Connecting`, which is the broker's address
on the command line. The options of `connecting` are added to its own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar, get_args

from stentor.cli.command import Argument, Option
from stentor.errors import InvalidConfiguration

if TYPE_CHECKING:
    from stentor.client import Bus

R = TypeVar("R")

#: Where a broker listens that was started without options.
LOCAL: Final = "127.0.0.1:7411"
#: How long clients try to reach a broker. One that starts for the first time compiles its matching
#: code before it listens, and whoever types the second command meanwhile need not do so again.
PATIENCE: Final = "5m"
#: Seconds between two attempts, at first and at most. Whoever sees that the broker listens goes on
#: at once, and a subscriber should be there by then.
DELAYS: Final = (0.05, 1.0)
_ADDRESS: Final = re.compile(r"unix:.+|\w+://\S+|[\w.\[\]:,-]*[.:][\w.\[\]:,-]*|localhost")


def is_address(text: str) -> bool:
    """Whether this is meant as an address, where a filter, JSON or a word may stand as well.

    >>> [is_address(each) for each in ("b1:7411", "tls://b1", "localhost", "10.0.0.7,b2:1")]
    [True, True, True, True]
    >>> [is_address(each) for each in ("price > 100", '{"a":1}', "show", "x='a:b'", "true")]
    [False, False, False, False, False]
    """
    return _ADDRESS.fullmatch(text) is not None


@dataclass(frozen=True)
class Connecting:
    """Whom to connect to, and how."""

    addresses: tuple[str, ...]
    token: str | None
    tls: dict[str, Any] | None
    timeout: float
    trust: tuple[str, ...] = ()
    #: What was named in the place of an address, where that may be.
    directory: Path | None = None

    def bus(self, name: str | None, **options: Any) -> Bus:
        """A client of these brokers, not yet open, that says so when it cannot reach them."""
        from stentor.cli.contact import Contact
        from stentor.client import connect

        bus = connect(
            *self.addresses,
            name=name,
            token=self.token,
            tls=self.tls,
            timeout=self.timeout,
            trust=self.trust,
            delays=DELAYS,
            **options,
        )
        Contact(bus)
        return bus


def broker_argument(told_by: Callable[[str], bool] = is_address) -> Argument:
    """The address, which may be left out if what follows is not taken for one."""
    return Argument(
        metavar="[ADDRESS]",
        help="The broker: host:port, tls://host:port or unix:path. Several that serve equally well "
        f"are separated by commas.  [default: {LOCAL}]",
        omitted=LOCAL,
        told_by=told_by,
        show_default=False,
    )


BrokerArgument: TypeAlias = Annotated[Connecting, broker_argument()]
JsonOption: TypeAlias = Annotated[
    bool,
    Option("--json", metavar="", help="JSON, for scripts: answers on stdout, errors on stderr."),
]
NameOption: TypeAlias = Annotated[
    str | None,
    Option(
        "--name",
        metavar="NAME",
        help="The client's name, unique among all; random by default.",
    ),
]


def connecting(
    address: str,
    token: Annotated[
        str | None,
        Option(
            "--token",
            metavar="TOKEN",
            envvar="STENTOR_TOKEN",
            help="Shows who you are, if the broker asks for it. @FILE reads it from a file, which "
            "keeps it out of the list of processes.",
        ),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        Option(
            "--tls-ca",
            metavar="FILE",
            envvar="STENTOR_TLS_CA",
            help="PEM file of the authority that signed the broker's certificate. By default "
            "those that this machine trusts.",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        Option(
            "--tls-certificate",
            metavar="FILE",
            envvar="STENTOR_TLS_CERTIFICATE",
            help="PEM file of the certificate to show, if the broker asks for one.",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        Option(
            "--tls-key",
            metavar="FILE",
            envvar="STENTOR_TLS_KEY",
            help="PEM file of its private key.",
        ),
    ] = None,
    trust: Annotated[
        str | None,
        Option(
            "--trust",
            metavar="HOSTS",
            envvar="STENTOR_TRUST",
            help="Other brokers to which you may be redirected, besides those on the same "
            "hosts and "
            "those that --tls-ca has signed for: hosts such as b2.example or *.example, "
            "separated by commas.",
        ),
    ] = None,
    connect_timeout: Annotated[
        str,
        Option(
            "--connect-timeout",
            metavar="DURATION",
            envvar="STENTOR_CONNECT_TIMEOUT",
            help="How long to try to reach a broker before giving up, such as 500ms, 10s or 1m; a "
            "number is seconds.",
        ),
    ] = "10s",
) -> Connecting:
    """The shared options, checked."""
    from stentor.notation.secrets import read_secret
    from stentor.notation.units import parse_duration
    from stentor.transport.address import Address

    addresses = tuple(str(Address.parse(part.strip())) for part in address.split(","))
    tls = {"ca": tls_ca, "certificate": tls_certificate, "key": tls_key}
    given = {name: file for name, file in tls.items() if file is not None}
    try:
        seconds = parse_duration(connect_timeout)
    except InvalidConfiguration as error:
        raise InvalidConfiguration(f"--connect-timeout: {error}") from None
    return Connecting(
        addresses,
        None if token is None else read_secret(token),
        given or None,
        seconds,
        () if trust is None else tuple(part.strip() for part in trust.split(",")),
    )


def connects(command: Callable[..., R]) -> Callable[..., R]:
    """A command of a client, with the options of `connecting`."""
    return _with_options(command, patience=PATIENCE)


def asks(command: Callable[..., R]) -> Callable[..., R]:
    """A command that asks one broker, with the same options but `--trust`: nobody is sent on."""
    return _with_options(command, without="trust")


def asks_or_reads(command: Callable[..., R]) -> Callable[..., R]:
    """The same, where a data directory may stand in the place of the address."""
    return _with_options(command, without="trust", directories=True)


def _with_options(
    command: Callable[..., R],
    without: str = "",
    *,
    directories: bool = False,
    patience: str | None = None,
) -> Callable[..., R]:
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())
    place, how = next((i, p) for i, p in enumerate(own) if Connecting in get_args(p.annotation))
    own[place] = how.replace(annotation=Annotated[str, *get_args(how.annotation)[1:]])
    _, *shared = inspect.signature(connecting, eval_str=True).parameters.values()
    options = [option for option in shared if option.name != without]
    if patience is not None:
        options = [
            each.replace(default=patience) if each.name == "connect_timeout" else each
            for each in options
        ]

    @wraps(command)
    def run(**given: Any) -> R:
        chosen = {option.name: given.pop(option.name) for option in options}
        where = given[how.name]
        if directories and Path(where).is_dir():
            directory = Path(where)
            given[how.name] = replace(connecting(LOCAL, **chosen), directory=directory)
        elif directories and "/" in where and not is_address(where):
            raise InvalidConfiguration(f"{where}: there is no such directory")
        else:
            given[how.name] = connecting(where, **chosen)
        return command(**given)

    run.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return run
