"""`stentor record`: subscribe, and write down for the checker what came."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stentor.cli.options import (
    AddressArgument,
    ConnectTimeoutOption,
    NameOption,
    TlsCaOption,
    TlsCertificateOption,
    TlsKeyOption,
    TokenOption,
    TrustOption,
    connecting,
)

if TYPE_CHECKING:
    from stentor.client import Bus


def record(
    address: AddressArgument,
    filters: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILTER]...",
            help="What to subscribe to, each in the subscription language. None means everything.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The recording, which ends with .jsonl. If it exists, it is gone on with.",
        ),
    ] = Path("recording.jsonl"),
    durable: Annotated[
        str | None,
        typer.Option(
            "--durable",
            metavar="NAME",
            help="Let the broker keep the position under this name, for one filter.",
        ),
    ] = None,
    name: NameOption = None,
    token: TokenOption = None,
    tls_ca: TlsCaOption = None,
    tls_certificate: TlsCertificateOption = None,
    tls_key: TlsKeyOption = None,
    trust: TrustOption = None,
    connect_timeout: ConnectTimeoutOption = "10s",
) -> None:
    """Subscribe, and record what came for `stentor check`, until Ctrl-C.

    Each line of the file is an action: a subscription, a notification, the end of one. Record
    publishers by `stentor publish --record` and programs by `stentor.connect(..., record=FILE)`;
    the files of all of them together are what `stentor check` judges.

    \b
    Examples:
      stentor record 127.0.0.1:7411 "symbol = 'IBM'" --name desk-7 --out desk-7.jsonl
      stentor record 127.0.0.1:7411 "price > 100" "volume > 500" -o both.jsonl
    """
    from stentor.cli.running import run
    from stentor.client import connect
    from stentor.errors import InvalidConfiguration
    from stentor.filters import Filter

    how = connecting(address, token, tls_ca, tls_certificate, tls_key, connect_timeout, trust)
    wanted = [Filter(text) for text in filters or [""]]
    if durable is not None and len(wanted) > 1:
        raise InvalidConfiguration("a durable subscription has one filter; record the others apart")

    async def main() -> None:
        bus = connect(
            *how.addresses,
            name=name,
            token=how.token,
            tls=how.tls,
            timeout=how.timeout,
            trust=how.trust,
            record=out,
        )
        async with bus:
            await _record(bus, wanted, durable=durable)

    run(main)


async def _record(bus: Bus, filters: list[Any], **options: Any) -> None:
    """Take everything until it is cancelled; the client writes it down."""
    import asyncio
    from contextlib import AsyncExitStack

    from stentor.cli.exits import complain
    from stentor.notation.counts import counted

    count = 0

    async def take(subscription: Any) -> None:
        nonlocal count
        async for batch in subscription.batches():
            count += len(batch)

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        for filter in filters:
            subscription = bus.subscribe(filter, **options)
            tasks.create_task(take(await stack.enter_async_context(subscription)))
        complain(f"stentor: recording at {bus.broker}")
        stack.callback(lambda: complain(f"stentor: {counted(count, 'notification')} recorded"))
