"""`stentor subscribe`: print what a filter matches, one JSON object per line."""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stentor.cli.exits import FAILURE, OK, complain
from stentor.cli.options import (
    AddressArgument,
    Connecting,
    ConnectTimeoutOption,
    NameOption,
    TlsCaOption,
    TlsCertificateOption,
    TlsKeyOption,
    TokenOption,
    connecting,
)

if TYPE_CHECKING:
    from stentor.client.subscription import Subscription
    from stentor.model import Notification


def subscribe(
    address: AddressArgument,
    filter: Annotated[
        str,
        typer.Argument(
            metavar="[FILTER]",
            help="What you want, in the subscription language. Nothing means everything.",
            show_default=False,
        ),
    ] = "",
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=0, help="End after N; 0 is never.")
    ] = 0,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout",
            metavar="DURATION",
            help="End when nothing came for so long, such as 500ms, 30s or 5m. That is a failure "
            "if --count asked for more.",
        ),
    ] = None,
    meta: Annotated[
        bool,
        typer.Option(
            "--meta",
            metavar="",
            help="Add _id, _time, _type, _subject, _channel, _content_type and _payload, as far as "
            "there are any.",
        ),
    ] = False,
    durable: Annotated[
        str | None,
        typer.Option(
            "--durable",
            metavar="NAME",
            help="Let the broker keep the position under this name. The next time you go on there, "
            "whatever was published meanwhile.",
        ),
    ] = None,
    forget: Annotated[
        bool,
        typer.Option("--forget", metavar="", help="Delete the durable subscription at the end."),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="History first, then what is new: from 2026-01-01T00:00:00Z on, or 2h for the "
            "last two hours, or earliest for all there is.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="NAME",
            help="Share the notifications with the other members: each goes to one of them.",
        ),
    ] = None,
    choice: Annotated[
        str,
        typer.Option(
            "--choice",
            metavar="WORD",
            help="How a group chooses: round_robin, least_loaded or key:ATTRIBUTE, which keeps "
            "equal values with one member.",
        ),
    ] = "round_robin",
    retained: Annotated[
        bool,
        typer.Option(
            "--retained", metavar="", help="Begin with the last value of every key there is."
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            metavar="",
            help="Say on stderr when the subscription is in force, and when the connection is lost "
            "and made again.",
        ),
    ] = False,
    name: NameOption = None,
    token: TokenOption = None,
    tls_ca: TlsCaOption = None,
    tls_certificate: TlsCertificateOption = None,
    tls_key: TlsKeyOption = None,
    connect_timeout: ConnectTimeoutOption = "10s",
) -> None:
    """Print what a filter matches, one JSON object per line.

    Each line is complete when it appears. It ends at Ctrl-C, or when its output is closed. A lost
    connection is made again, and nothing is missed or printed twice.

    Values that JSON lacks are objects with one member: {"$time": "2026-01-01T12:00:00Z"},
    {"$bytes": "00ff"} in hexadecimal, {"$set": \\["a", "b"]}, {"$number": "inf"}. Nested records
    have dotted names. `stentor publish` reads all of it back.

    \b
    Examples:
      stentor subscribe 127.0.0.1:7411 "symbol = 'IBM' and price > 100"
      stentor subscribe 127.0.0.1:7411 --meta --since 1h | jq ._time
      stentor subscribe 127.0.0.1:7411 "price > 100" --durable desk-7
      stentor subscribe tls://b1.example:7411 "isa job" --group workers --token @token
      stentor subscribe 127.0.0.1:7411 "temperature > 30" --count 1 --timeout 5m
    """
    from stentor.cli.running import run
    from stentor.filters import Filter

    how = connecting(address, token, tls_ca, tls_certificate, tls_key, connect_timeout)
    wanted = Filter(filter)
    options = {
        "durable": durable,
        "since": None if since is None else _since(since),
        "group": group,
        "choice": choice,
        "retained": retained,
    }
    patience = None if timeout is None else _duration("--timeout", timeout)
    printer = _Printer(count, patience, meta=meta)

    async def main() -> int:
        return await _print(how, name, wanted, options, printer, verbose=verbose, forget=forget)

    raise typer.Exit(run(main))


async def _print(
    how: Connecting,
    name: str | None,
    filter: Any,
    options: dict[str, Any],
    printer: _Printer,
    *,
    verbose: bool,
    forget: bool,
) -> int:
    from stentor.client import connect

    bus = connect(*how.addresses, name=name, token=how.token, tls=how.tls, timeout=how.timeout)
    if verbose:
        bus.on_state(lambda state: complain(f"stentor: {state}"))
    async with bus:
        subscription = bus.subscribe(filter, **options)
        async with subscription:
            if verbose:
                complain(f"stentor: subscribed at {bus.broker}")
            code = await printer.run(subscription)
            if forget:
                await subscription.close(forget=True)
    return code


class _Printer:
    """Writes notifications to stdout until there were enough, or nobody reads them."""

    def __init__(self, count: int, patience: float | None, *, meta: bool) -> None:
        self._left = count or None
        self._patience = patience
        self._meta = meta
        #: Whether nobody reads any more.
        self._gone = False

    async def run(self, subscription: Subscription[Notification]) -> int:
        """Print; the exit code says whether there were as many as asked for."""
        from stentor.cli.streams import Worker, watch_reader
        from stentor.errors import NoReply

        task = asyncio.current_task()
        assert task is not None

        def gone() -> None:
            self._gone = True
            task.cancel()

        watch_reader(sys.stdout.fileno(), gone)
        worker = Worker()
        try:
            await self._pump(subscription, worker)
        except NoReply:
            return OK if self._left is None else FAILURE
        except BrokenPipeError:
            return OK
        except asyncio.CancelledError:
            if not self._gone:
                raise
            task.uncancel()
        return OK

    async def _pump(self, subscription: Subscription[Notification], worker: Any) -> None:
        from stentor.cli.json_forms import to_json
        from stentor.cli.streams import write_all

        out = sys.stdout.fileno()
        if self._left is None and self._patience is None:
            async for batch in subscription.batches():
                lines = [to_json(notification, meta=self._meta) for notification in batch]
                await worker.do(write_all, out, b"\n".join([*lines, b""]))
            return
        while True:
            notification = await subscription.get(self._patience)
            line = to_json(notification, meta=self._meta)
            await worker.do(write_all, out, line + b"\n")
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    return


def _since(text: str) -> str | timedelta:
    """As the client takes it; a duration is so long ago."""
    if re.fullmatch(r"(\s*[\d.]+\s*(ms|[wdhms]))+\s*", text, re.IGNORECASE):
        return timedelta(seconds=_duration("--since", text))
    return text


def _duration(option: str, text: str) -> float:
    from stentor.broker.units import parse_duration
    from stentor.errors import InvalidConfiguration

    try:
        return parse_duration(text)
    except InvalidConfiguration as error:
        raise InvalidConfiguration(f"{option}: {error}") from None
