"""`connect`: a bus from addresses and options."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Iterable, Mapping
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from stentor.client.backoff import FIRST, LONGEST, Backoff
from stentor.client.bus import Bus
from stentor.client.local_broker import LocalBroker
from stentor.client.outbox import LIMIT, LIMIT_BYTES, Outbox
from stentor.client.sequencer import Sequencer
from stentor.client.trust import Trust
from stentor.client.waiting import checked_seconds
from stentor.errors import InvalidAddress, InvalidConfiguration
from stentor.transport import DEFAULT_PORT, Address, client_context

if TYPE_CHECKING:
    from stentor.client.recorder import Recorder, Recording

#: A TLS context, or the PEM files for one: `ca`, `certificate`, `key`; and `verify_name`.
Tls: TypeAlias = ssl.SSLContext | Mapping[str, str | PathLike[str] | bool]

#: Seconds for the first connection, and for the last publications when the bus is closed.
CONNECTING: Final = 10.0
CLOSING: Final = 10.0
_TLS_FILES: Final = {"ca", "certificate", "key", "verify_name"}


def connect(
    *brokers: Any,
    name: str | None = None,
    token: str | None = None,
    tls: Tls | None = None,
    timeout: float = CONNECTING,
    close_timeout: float = CLOSING,
    buffer: int = LIMIT,
    buffer_bytes: int = LIMIT_BYTES,
    delays: tuple[float, float] = (FIRST, LONGEST),
    trust: Iterable[str] = (),
    sequencer: str | None = None,
    record: Recorder | str | PathLike[str] | None = None,
    attributes: Mapping[str, str | int | float | bool] | None = None,
) -> Bus:
    """A bus, to be opened by `async with` (or `await`).

    >>> connect("127.0.0.1:7411", "127.0.0.1:7412", name="desk-7")
    <Bus 'desk-7', connecting>

    brokers        addresses, or objects with an `address`; several serve equally well and are tried
                   in order, now and whenever the connection is lost
    name           who this is, unique among all clients; if not given, something random
    token          shown to the broker, if it asks who may connect
    tls            for `tls://` addresses: an `ssl.SSLContext`, or the files {"ca": ..,
                   "certificate": .., "key": ..}
    timeout        seconds for the first connection; `Unreachable` then says why there is none
    close_timeout  seconds for publications to be acknowledged when the bus is closed
    buffer         publications that may wait to be acknowledged until `publish` has to wait, and
                   their bytes (`buffer_bytes`)
    delays         seconds between attempts to connect again: the first time, and at most
    trust          hosts ("b2.example", "*.example"), or addresses, to which a broker may send this
                   client on, besides the hosts of the brokers and those that the authority in `tls`
                   has signed for
    sequencer      the name of the one broker that is to serve this client: everything that is
                   published at the same broker has the same order for all who get it. The brokers
                   given are asked where it is
    record         a file (or a `Recorder`) for all that this client does and is given, which
                   `stentor check` holds against the specification
    attributes     what this client says of itself, such as {"tenant": "acme"}, by which rules of an
                   administrator make it a member of scopes; with grants, what the grant allows
    """
    if buffer < 1 or buffer_bytes < 1:
        raise InvalidConfiguration(f"a buffer of {buffer} publications takes none; give at least 1")
    if not 0 < delays[0] <= delays[1]:
        raise InvalidConfiguration(
            f"delays={delays} are not delays; give (first, longest), both > 0"
        )
    addresses = list(_addresses(brokers)) or [Address("tcp", "127.0.0.1", DEFAULT_PORT)]
    name = _random_name() if name is None else name
    trusted = Trust(
        addresses,
        token=token is not None,
        own_authority=_has_own_authority(tls),
        trust=trust,
    )
    checked_seconds(timeout)
    client = partial(
        LocalBroker,
        addresses,
        token=token,
        tls=tls_context(tls),
        trust=trusted,
        backoff=lambda: Backoff(*delays),
        attributes=attributes,
    )

    def guide() -> LocalBroker:
        return client(name=_random_name(), outbox=Outbox())

    local = client(
        name=name,
        outbox=Outbox(buffer, buffer_bytes),
        sequencer=None if sequencer is None else Sequencer(sequencer, guide, trusted),
        recording=None if record is None else _recording(record, name),
    )
    return Bus(local, timeout=timeout, close_timeout=close_timeout)


def _random_name() -> str:
    return f"c-{secrets.token_hex(8)}"


def _recording(record: Recorder | str | PathLike[str], name: str) -> Recording:
    from stentor.client.recorder import Recording  # not needed by most, and a lot to load

    return Recording.to(record, name)


def _addresses(brokers: Iterable[Any]) -> Iterable[Address]:
    for broker in brokers:
        if isinstance(broker, str | Address):
            yield Address.parse(broker)
        elif isinstance(broker, list | tuple):
            yield from _addresses(broker)
        elif hasattr(broker, "address"):
            yield Address.parse(broker.address)
        else:
            raise InvalidAddress(
                f"{broker!r} is not a broker; give an address such as '127.0.0.1:7411', or an "
                "object with an `address`"
            )


def _has_own_authority(tls: Tls | None) -> bool:
    """Whether names are verified against an authority that the application gave.

    Of an `ssl.SSLContext` nobody can tell which authorities it holds.
    """
    return (
        isinstance(tls, Mapping)
        and tls.get("ca") is not None
        and tls.get("verify_name", True) is not False
    )


def tls_context(tls: Tls | None) -> ssl.SSLContext | None:
    """The context that an application gave, or one from its files."""
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    unknown = set(tls) - _TLS_FILES
    if unknown:
        raise InvalidConfiguration(
            f"tls has no {', '.join(sorted(map(repr, unknown)))}; "
            f"give an ssl.SSLContext, or a mapping with {', '.join(sorted(_TLS_FILES))}"
        )
    return client_context(**tls)  # type: ignore[arg-type]
