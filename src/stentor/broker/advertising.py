"""Where others are told to connect: neighbors, and clients that are sent to another broker.

A broker that listens at every interface (`0.0.0.0`, `[::]`) has no address that would mean anything
to others, and one behind a proxy or in a container has another than they use. So `advertise` says
what to tell. Without it, an address that is bound to one interface is told as it is, and one that
is bound to all of them is told with a name or address of this machine:

- with TLS, the machine's host name, since certificates are made for names;
- else the address of the interface that has the default route, or of the first that is no loopback;
- the host name again where the kernel does not tell (only Linux does, in `/proc/net`).

Those that say most come first: TLS before plain TCP, loopback and Unix sockets last, since they
mean something on this machine only.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from stentor.errors import InvalidConfiguration
from stentor.transport.address import Address

#: Addresses of one broker that others are told.
MOST: Final = 8

_ROUTES: Final = Path("/proc/net/route")
_ADDRESSES_6: Final = Path("/proc/net/if_inet6")
_SIOCGIFADDR: Final = 0x8915


def advertised(wanted: Sequence[str], listening: Sequence[Address]) -> list[str]:
    """What to tell others, given the setting and where the broker listens.

    >>> advertised((), [Address.parse("127.0.0.1:7411"), Address.parse("tls://b1.example:7412")])
    ['tls://b1.example:7412', '127.0.0.1:7411']
    >>> advertised(["b1.example:0"], [Address.parse("0.0.0.0:7499")])
    ['b1.example:7499']
    """
    if wanted:
        return [str(_completed(Address.parse(text), listening)) for text in wanted]
    found = [replace(each, host=_host(each)) if each.is_wildcard else each for each in listening]
    return [str(each) for each in sorted(dict.fromkeys(found), key=_rank)][:MOST]


def problem(text: str, listening: Sequence[Address]) -> str | None:
    """What is wrong with an address that others are to be told."""
    address = Address.parse(text)
    if address.is_wildcard:
        return f"{text} means every interface to a listener, and nothing to whoever connects"
    kinds = {each.kind for each in listening}
    if address.kind in ("tcp", "tls") and not address.port and address.kind not in kinds:
        return f"{text}: port 0 is the port of a listener, and there is none of this kind"
    return None


def _completed(address: Address, listening: Sequence[Address]) -> Address:
    """With the port that the broker has, if none was given."""
    if address.kind not in ("tcp", "tls") or address.port:
        return address
    ports = [each.port for each in listening if each.kind == address.kind]
    if not ports:
        raise InvalidConfiguration(f"advertise: {problem(str(address), listening)}")
    return address.with_port(ports[0])


def _rank(address: Address) -> tuple[bool, bool, bool]:
    return address.kind not in ("tcp", "tls"), address.is_loopback, address.kind != "tls"


def _host(address: Address) -> str:
    """A host that stands for every interface of this machine."""
    if address.kind == "tls":
        return socket.gethostname()
    found = _ipv6() if address.host == "::" else _ipv4()
    return next(found, None) or socket.gethostname()


def _ipv4() -> Iterator[str]:
    """The addresses of this machine, beginning with that of the default route."""
    try:
        routes = [line.split() for line in _ROUTES.read_text().splitlines()[1:]]
    except OSError:
        return
    default = sorted((int(r[6]), r[0]) for r in routes if r[1] == r[7] == "00000000")
    names = [name for _, name in default] + [name for _, name in socket.if_nameindex()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for name in dict.fromkeys(names):
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(sock, _SIOCGIFADDR, request)
            except OSError:
                continue  # it has no such address
            text = socket.inet_ntoa(answer[20:24])
            if not ipaddress.ip_address(text).is_loopback:
                yield text


def _ipv6() -> Iterator[str]:
    try:
        rows = [line.split() for line in _ADDRESSES_6.read_text().splitlines()]
    except OSError:
        return
    for digits, _, _, scope, *_ in rows:
        if scope == "00":  # neither of the link nor of the machine only
            yield str(ipaddress.IPv6Address(int(digits, 16)))
