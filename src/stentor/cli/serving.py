"""The life of a broker process: start, say so, run until a signal comes, stop in good order."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from stentor.broker.config import Configuration
from stentor.broker.host import Broker
from stentor.broker.logs import LogHandler, configure, reconfigure
from stentor.broker.settings import Settings
from stentor.cli.exits import FAILURE, OK, note, report
from stentor.cli.json_forms import print_line
from stentor.errors import InvalidAddress, StentorError
from stentor.notation.counts import counted
from stentor.transport.address import Address
from stentor.transport.event_loop import new_event_loop

_log: Final = logging.getLogger("stentor.broker")


def serve(
    read: Callable[[], Configuration], *, reloads: bool, supervised: bool, json: bool = False
) -> int:
    """Run the broker that is configured; the exit code.

    `read` reads the configuration, now and when it is to be reloaded, which SIGHUP asks for if it
    `reloads`: there is a file that may have changed. If not, SIGHUP ends the broker.
    """
    configuration = read()
    handler = configure(configuration.settings)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            life = _Life(read, handler, reloads=reloads, json=json)
            return runner.run(life.live(configuration, supervised=supervised))
    except InvalidAddress as error:
        # The address is well formed, or it would not have come this far: somebody else has it. That
        # may pass, so it is a failure and no misuse, and a supervisor will try again.
        report(error)
        return FAILURE
    finally:
        handler.close()


class _Life:
    """One broker from its start to its end."""

    def __init__(
        self, read: Callable[[], Configuration], handler: LogHandler, *, reloads: bool, json: bool
    ) -> None:
        self._read = read
        self._handler = handler
        self._reloads = reloads
        self._json = json
        self._asked = asyncio.Event()
        self._reload: asyncio.Task[None] | None = None

    async def live(self, configuration: Configuration, *, supervised: bool) -> int:
        """Start, say so, and run until a signal or an operator ends it; the exit code."""
        settings = configuration.settings
        _warn(configuration)
        broker = Broker(settings, source=self._settings)
        broker.reloading.at_reload = lambda new: reconfigure(self._handler, new)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        if self._reloads:
            loop.add_signal_handler(signal.SIGHUP, self._hung_up, broker)
        else:
            loop.add_signal_handler(signal.SIGHUP, self._stop, signal.SIGHUP)
        if supervised:
            _watch_parent(settings.limits.shutdown + 5.0)
        await broker.start()
        _collect_rarely()
        self._handler.name_broker(broker.name)
        try:
            if self._json:
                print_line(readiness(broker))
            else:
                print(banner(broker), flush=True)
            stopping = asyncio.ensure_future(self._asked.wait())
            closed = asyncio.ensure_future(broker.wait_closed())
            await asyncio.wait([stopping, closed], return_when=asyncio.FIRST_COMPLETED)
            for future in (stopping, closed):
                future.cancel()
        finally:
            await broker.stop()
        return OK

    def _stop(self, number: signal.Signals) -> None:
        if self._asked.is_set():
            note(f"{number.name} a second time; ending at once")
            os._exit(FAILURE)
        self._asked.set()
        _log.info("%s: shutting down", number.name, extra={"event": "stopping"})

    def _settings(self) -> Settings:
        """What is configured now."""
        configuration = self._read()
        _warn(configuration)
        return configuration.settings

    def _hung_up(self, broker: Broker) -> None:
        if self._reload is None or self._reload.done():
            self._reload = asyncio.ensure_future(self._reloaded(broker))

    async def _reloaded(self, broker: Broker) -> None:
        with suppress(StentorError):  # it is in the log
            await broker.reload()


def _warn(configuration: Configuration) -> None:
    for warning in (*configuration.warnings, *open_doors(configuration.settings)):
        _log.warning("%s", warning, extra={"event": "configuration"})


def _collect_rarely() -> None:
    """Let the garbage collector look at everything only seldom.

    It would look again and again at what lives as long as the process: the program itself, and the
    filters of clients, which may be very many. Garbage goes without it, by counting references:
    what is over must not refer to itself. What is new is looked at soon, while it is little, so
    that it never takes long.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 1, 250_000)


def open_doors(settings: Settings) -> list[str]:
    """Warnings about addresses at which strangers may do everything."""
    if settings.grants:
        return []
    mutual = settings.tls is not None and settings.tls.ca is not None
    exposed = ("tcp",) if mutual else ("tcp", "tls")
    return [
        f"everybody who can reach {text} may publish, subscribe and operate this broker; "
        "add grants, or listen on 127.0.0.1"
        for text in settings.listen
        if (address := Address.parse(text)).kind in exposed and not address.is_loopback
    ]


def readiness(broker: Broker) -> dict[str, Any]:
    """The same as `banner`, for machines."""
    settings = broker.settings
    return {
        "broker": broker.name,
        "listening": broker.addresses,
        "announced": broker.advertised,
        "data": settings.data,
        "overlay": settings.overlay,
        "neighbors": [] if settings.parent else settings.neighbors,
        "parent": settings.parent,
        "routing": settings.routing,
        "advertisements": settings.advertisements,
        "grants": len(settings.grants),
        "monitor": broker.monitor_address,
    }


def banner(broker: Broker) -> str:
    """Where it listens and what it serves."""
    settings = broker.settings
    journal = broker.journal.status()
    kept = journal["head"] - journal["low"] + 1
    rows = [("listening", ", ".join(broker.addresses))]
    if set(broker.advertised) != set(broker.addresses):
        rows.append(("announced", ", ".join(broker.advertised)))
    if settings.data is None:
        rows.append(("data", "in memory: lost with the broker; --data DIRECTORY keeps it"))
    else:
        rows.append(("data", f"{settings.data}, {counted(kept, 'notification')}"))
    if settings.overlay != "tree":
        rows.append(("overlay", settings.overlay))
    if settings.parent is not None:
        rows.append(("parent", settings.parent))
    else:
        rows.append(("neighbors", ", ".join(settings.neighbors) or "none"))
    steered = settings.advertisements != "none"
    by = f", steered by advertisements ({settings.advertisements})" if steered else ""
    rows.append(("routing", settings.routing + by))
    if settings.grants:
        rows.append(("access", counted(len(settings.grants), "grant")))
    else:
        rows.append(("access", "everybody"))
    if broker.monitor_address is not None:
        rows.append(("monitor", f"http://{broker.monitor_address}/metrics"))
    lines = [f"broker {broker.name}", *(f"  {name:<10} {value}" for name, value in rows)]
    return "\n".join(lines)


def _watch_parent(patience: float) -> None:
    """End when standard input does: the supervisor holds the other end of it.

    A thread waits for that, so that not even a stalled event loop survives its supervisor.
    """

    def watch() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(patience)
        os._exit(FAILURE)

    threading.Thread(target=watch, name="stentor-parent", daemon=True).start()
