"""Where a broker is: addresses as text and as values."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from stentor.errors import InvalidAddress

#: A broker's usual port.
DEFAULT_PORT: Final = 7411

Kind: TypeAlias = Literal["tcp", "tls", "unix", "inproc"]

_FORMS: Final = "host:port, [ipv6]:port, tls://host:port, unix:/path or inproc:name"


@dataclass(frozen=True)
class Address:
    """An address of a broker. `str()` gives the text that `parse` reads.

    >>> Address.parse("tls://broker.example")
    Address(kind='tls', host='broker.example', port=7411, path='')
    >>> str(Address.parse("[::1]:7412"))
    '[::1]:7412'
    """

    kind: Kind
    #: Of `tcp` and `tls`. No host means every interface to who listens, and this machine to who
    #: connects; port 0 means any free one to who listens.
    host: str = ""
    port: int = 0
    #: The path of a Unix socket, or the name of a listener within this process.
    path: str = ""

    @classmethod
    def parse(cls, text: str | Address) -> Address:
        """The address that the text says, or `InvalidAddress`. An address is returned as it is."""
        if isinstance(text, Address):
            return text
        if not text:
            raise InvalidAddress(f"an address is missing; write {_FORMS}")
        if not text.isprintable() or (" " in text and not text.startswith("unix:")):
            raise InvalidAddress(f"{text!r} has spaces or unprintable characters; write {_FORMS}")
        if text.startswith("unix:"):
            return _unix(text)
        if text.startswith("inproc:"):
            name = text.removeprefix("inproc:")
            if not name:
                raise InvalidAddress(f"{text!r} has no name; write inproc:name")
            return cls("inproc", path=name)
        scheme, separator, rest = text.partition("://")
        if not separator:
            return _network("tcp", text, text)
        if scheme == "tls":
            return _network("tls", rest, text)
        if scheme == "tcp":
            return _network("tcp", rest, text)
        raise InvalidAddress(f"{text!r}: {scheme}:// is not supported; write {_FORMS}")

    def with_port(self, port: int) -> Address:
        """The same host at another port."""
        return replace(self, port=port)

    @property
    def is_wildcard(self) -> bool:
        """Whether it means every interface, which only who listens can mean."""
        return self.kind in ("tcp", "tls") and (not self.host or _is(self.host, "is_unspecified"))

    @property
    def is_loopback(self) -> bool:
        """Whether it means the machine itself to whoever uses it."""
        return self.kind in ("tcp", "tls") and (
            self.host.lower() == "localhost" or _is(self.host, "is_loopback")
        )

    def __str__(self) -> str:
        if self.kind in ("unix", "inproc"):
            return f"{self.kind}:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls://' if self.kind == 'tls' else ''}{host}:{self.port}"


def _is(host: str, what: str) -> bool:
    try:
        return bool(getattr(ipaddress.ip_address(host), what))
    except ValueError:  # a name
        return False


def _unix(text: str) -> Address:
    path = text.removeprefix("unix:")
    if path.startswith("//"):
        path = "/" + path.lstrip("/")
    if not path or path.endswith("/"):
        raise InvalidAddress(f"{text!r} names no socket; write unix:/path/to/socket")
    return Address("unix", path=path)


def _network(kind: Kind, rest: str, text: str) -> Address:
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket:
            raise InvalidAddress(f"{text!r}: the bracket is not closed; write [::1]:{DEFAULT_PORT}")
        if tail and not tail.startswith(":"):
            raise InvalidAddress(f"{text!r}: only :port may follow the bracket")
        _check_ipv6(host, text)
        port = tail[1:] if tail else None
    else:
        if rest.count(":") > 1:
            raise InvalidAddress(
                f"{text!r}: an IPv6 address goes into brackets, as in [::1]:{DEFAULT_PORT}"
            )
        host, colon, tail = rest.partition(":")
        _check_host(host, text)
        port = tail if colon else None
        if not host and not tail:
            raise InvalidAddress(f"{text!r} has neither host nor port; write {_FORMS}")
    return Address(kind, host, DEFAULT_PORT if port is None else _port(port, text))


def _check_ipv6(host: str, text: str) -> None:
    try:
        ipaddress.IPv6Address(host)
    except ValueError as error:
        raise InvalidAddress(f"{text!r}: {host!r} is no IPv6 address: {error}") from None


def _check_host(host: str, text: str) -> None:
    wrong = sorted(set(host) & set("/@?#[]%\\\"'<>,;"))
    if wrong:
        raise InvalidAddress(f"{text!r}: a host name has no {wrong[0]!r}; write {_FORMS}")
    if len(host) > 253 or any(len(label) > 63 for label in host.split(".")):
        raise InvalidAddress(f"{text[:40] + '...'!r}: no host name is that long")
    if host.startswith(".") or ".." in host:
        raise InvalidAddress(f"{text!r}: the host name has an empty part")


def _port(port: str, text: str) -> int:
    if not port:
        raise InvalidAddress(
            f"{text!r}: the port is missing behind the colon; "
            f"leave both out for port {DEFAULT_PORT}"
        )
    if not (port.isascii() and port.isdigit()):
        raise InvalidAddress(f"{text!r}: the port {port!r} is not a number")
    if len(port) > 5 or int(port) > 65535:
        raise InvalidAddress(f"{text!r}: the port {port} is beyond 65535")
    return int(port)
