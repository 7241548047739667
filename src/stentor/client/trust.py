"""Whether a client goes where a broker sends it.

A broker that is shut down names others to turn to, and a group of consumers that lives elsewhere is
joined there. So addresses come over the network, from whoever is a broker or a neighbor of one, and
a client that connects there shows its token and publishes there. Three rules decide. An address
that the application gave, in its list of brokers or by `trust`, is always followed. Any other

1. must mean something here: no wildcard, no port 0, and no loopback address or Unix socket that was
   named by a broker on another machine;
2. must not be protected less than what the application gave: plain TCP is followed only by a client
   that was given nothing but plain TCP; a broker within this process only by one of its kind;
3. must belong to somebody whom there is reason to trust: the same host as one that the application
   gave (for a Unix socket, the same directory), a host that `trust` names, or with TLS one whose
   certificate was signed, for that name, by the authority (`ca`) that the application gave. The
   authorities that a machine trusts by default sign for everybody, so they are no reason.

A client that shows no token and was given nothing but plain TCP has asked for no protection, and
the third rule is not for it. TLS verifies each connection in the same way as the first.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Final

from stentor.errors import InvalidConfiguration, RedirectRefused, StentorError
from stentor.transport import Address

#: Addresses that are looked at when a broker names some.
MOST_NAMED: Final = 16


class Trust:
    """What one application has said of whom it trusts.

    >>> trust = Trust([Address.parse("tls://b1.example")], token=True, own_authority=True)
    >>> trust.check(Address.parse("tls://b2.example"), Address.parse("tls://b1.example"))
    >>> trust.check(Address.parse("b2.example:7411"), Address.parse("tls://b1.example"))
    Traceback (most recent call last):
    ...
    stentor.errors.RedirectRefused: a broker names b2.example:7411, which is plain TCP, and \
this client was given something better; have the broker advertise an address with tls://, or give \
this address to `trust`
    """

    def __init__(
        self,
        given: Sequence[Address],
        *,
        token: bool = False,
        own_authority: bool = False,
        trust: Iterable[str] = (),
    ) -> None:
        """`own_authority`: whether TLS verifies names, against an authority of the application."""
        patterns = [trust] if isinstance(trust, str) else list(trust)
        named = [_entry(text) for text in patterns]
        self._given = [*given, *(each for each in named if isinstance(each, Address))]
        self._patterns = [each for each in named if isinstance(each, str)]
        self._hosts = {_plain(each.host) for each in given if each.kind in ("tcp", "tls")}
        self._directories = {PurePath(each.path).parent for each in given if each.kind == "unix"}
        self._own_authority = own_authority
        self._only_plain = all(each.kind == "tcp" for each in given)
        self._unguarded = self._only_plain and not token

    def followed(self, texts: Iterable[str], via: Address) -> tuple[list[Address], str]:
        """Of the addresses that a broker has named those to follow, and why not the others."""
        good: list[Address] = []
        reasons: list[str] = []
        for text in list(texts)[:MOST_NAMED]:
            try:
                address = Address.parse(text)
                self.check(address, via)
                good.append(address)
            except StentorError as error:
                reasons.append(str(error))
        return list(dict.fromkeys(good)), "; ".join(reasons)

    def check(self, address: Address, via: Address) -> None:
        """Raise if an address is not to be followed that a broker named which is reached `via`."""
        if address in self._given:
            return
        reason = self._meaningless(address, via) or self._weaker(address) or self._unknown(address)
        if reason is not None:
            raise RedirectRefused(f"a broker names {address}, {reason}")

    def _meaningless(self, address: Address, via: Address) -> str | None:
        if address.kind == "inproc":
            return None if via.kind == "inproc" else "which is in another process"
        here = via.kind in ("unix", "inproc") or via.is_loopback or via.is_wildcard
        if address.kind == "unix":
            return None if here else "which is a socket on another machine"
        if address.is_wildcard or not address.port:
            return (
                "at which nobody can be reached; have the broker advertise a better one "
                "(its setting `advertise`)"
            )
        if address.is_loopback and not here:
            return (
                "which means this machine here and another one there; have the broker advertise "
                "a better one (its setting `advertise`)"
            )
        return None

    def _weaker(self, address: Address) -> str | None:
        if address.kind != "tcp" or self._only_plain:
            return None
        return (
            "which is plain TCP, and this client was given something better; have the broker "
            "advertise an address with tls://, or give this address to `trust`"
        )

    def _unknown(self, address: Address) -> str | None:
        if self._unguarded or address.kind == "inproc":
            return None
        if address.kind == "unix":
            if PurePath(address.path).parent in self._directories:
                return None
            return "which is in none of the directories of the sockets that this client was given"
        host = _plain(address.host)
        if host in self._hosts or any(fnmatchcase(host, each) for each in self._patterns):
            return None
        if address.kind == "tls" and self._own_authority:
            return None  # its certificate will tell
        return (
            "a host that this client has no reason to trust; name it to `trust`, or connect with "
            "tls:// and the authority (`ca`) that signs your brokers"
        )


def _plain(host: str) -> str:
    """One spelling of a host."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower().rstrip(".")


def _entry(text: object) -> Address | str:
    """An address, or a host or pattern of hosts."""
    if not isinstance(text, str) or not text or not text.isprintable() or " " in text:
        raise InvalidConfiguration(
            f"trust: {text!r} is neither a host such as 'b2.example' or '*.example', nor an address"
        )
    if text.count(":") == 1 or "/" in text or "]:" in text:
        return Address.parse(text)
    return _plain(text.strip("[]") if text.startswith("[") else text)
