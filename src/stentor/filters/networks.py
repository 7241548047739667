"""Blocks of IP addresses, as an operator: `ip in_network '2001:db8::/32'`.

An address is a string, and an IPv6 address has many spellings (`2001:DB8::1`, `2001:db8:0::0:1`),
so a block is no range of texts: the text is read, and the number it stands for compared. Blocks
either nest or are disjoint, which makes covering and overlap exact; the halves of a block merge to
it. What is no address, or one of the other family, is in no block. Leading zeros in IPv4 are
refused, because some programs read them as octal; a zone (`fe80::1%eth0`) says where an address
is valid, and the address with it is no plain one.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from stentor.errors import FilterTypeError
from stentor.filters.custom import Constants, Operator

#: No address is written with more characters.
_LONGEST = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")


@lru_cache(maxsize=4_096)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text, strict=False)


@lru_cache(maxsize=4_096)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _holds(value: str, block: str) -> bool:
    if len(value) > _LONGEST or "%" in value:
        return False
    address = _address(value)
    return address is not None and address in _network(block)


def network(*constants: object) -> tuple[str]:
    """The one spelling of a block, or `FilterTypeError`.

    >>> network("10.1.2.3/8")
    ('10.0.0.0/8',)
    """
    if len(constants) == 1 and isinstance(constants[0], str) and "%" not in constants[0]:
        try:
            return (str(ip_network(constants[0], strict=False)),)
        except ValueError:
            pass
    shown = ", ".join(map(repr, constants))
    raise FilterTypeError(
        f"{shown} is not a block of addresses; write one such as '10.0.0.0/24' or '2001:db8::/32'"
    )


def _covers(mine: Constants, theirs: Constants) -> bool:
    a, b = _network(mine[0]), _network(theirs[0])
    return a.version == b.version and b.subnet_of(a)  # type: ignore[arg-type]


def _overlaps(mine: Constants, theirs: Constants) -> bool:
    a, b = _network(mine[0]), _network(theirs[0])
    return a.version == b.version and a.overlaps(b)


def _merge(mine: Constants, theirs: Constants) -> Constants | None:
    a, b = _network(mine[0]), _network(theirs[0])
    if a == b or a.version != b.version or a.prefixlen != b.prefixlen:
        return None
    around = a.supernet()
    return (str(around),) if around == b.supernet() else None


IN_NETWORK = Operator("in_network", "string", _holds, _covers, _overlaps, _merge, network)
