"""Options that several commands share: whom to connect to, and as whom."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from stentor.errors import InvalidConfiguration

AddressArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        help="The broker: host:port, tls://host:port or unix:path. Several that serve equally well "
        "are separated by commas.",
        show_default=False,
    ),
]
TokenOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="STENTOR_TOKEN",
        help="Says who you are, if the broker wants to know. @FILE reads it from a file, which "
        "keeps it out of the list of processes.",
    ),
]
TlsCaOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca",
        metavar="FILE",
        envvar="STENTOR_TLS_CA",
        help="PEM file of the authority that signed the broker's certificate. By default "
        "those that this machine trusts.",
    ),
]
TlsCertificateOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--tls-certificate",
        metavar="FILE",
        envvar="STENTOR_TLS_CERTIFICATE",
        help="PEM file of the certificate to show, if the broker wants one.",
    ),
]
TlsKeyOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--tls-key",
        metavar="FILE",
        envvar="STENTOR_TLS_KEY",
        help="PEM file of its private key.",
    ),
]
TrustOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--trust",
        metavar="HOSTS",
        envvar="STENTOR_TRUST",
        help="Other brokers to which you may be sent on, besides those on the same hosts and those "
        "that --tls-ca has signed for: hosts such as b2.example or *.example, separated by commas.",
    ),
]
ConnectTimeoutOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--connect-timeout",
        metavar="DURATION",
        envvar="STENTOR_CONNECT_TIMEOUT",
        help="How long to try to reach a broker, such as 500ms, 10s or 1m; a number is seconds.",
    ),
]
NameOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="The client's name, unique among all. By default something random.",
    ),
]


@dataclass(frozen=True)
class Connecting:
    """Whom to connect to, and how."""

    addresses: tuple[str, ...]
    token: str | None
    tls: dict[str, Any] | None
    timeout: float
    trust: tuple[str, ...] = ()


def connecting(
    address: str,
    token: str | None,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    timeout: str,
    trust: str | None = None,
) -> Connecting:
    """The shared options, checked."""
    from stentor.broker.config import read_secret
    from stentor.notation.units import parse_duration
    from stentor.transport.address import Address

    addresses = tuple(str(Address.parse(part.strip())) for part in address.split(","))
    tls = {"ca": ca, "certificate": certificate, "key": key}
    given = {name: file for name, file in tls.items() if file is not None}
    try:
        seconds = parse_duration(timeout)
    except InvalidConfiguration as error:
        raise InvalidConfiguration(f"--connect-timeout: {error}") from None
    return Connecting(
        addresses,
        None if token is None else read_secret(token),
        given or None,
        seconds,
        () if trust is None else tuple(part.strip() for part in trust.split(",")),
    )
