"""How long a broker is occupied at a time: its event loop, with the clock around each step.

The broker runs in a thread of this process, and each callback of its loop is measured in processor
time of that thread, so that neither other processes nor the attacker count. While one runs, nobody
else is served: the longest is how long a client can hold the others up.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from extremes import Attack

from stentor.broker import Broker, Settings
from stentor.broker.settings import Grant
from stentor.cli.serving import _collect_rarely
from stentor.model import Notification, NotificationId, encode
from stentor.protocol import messages as m
from stentor.protocol.frames import FrameReader, frame

#: Seconds until an attack that is not answered is over, and in which a broker must have started: it
#: may have to compile something first.
PATIENCE = 60.0
STARTING = 300.0


class Step(NamedTuple):
    """What a broker was occupied with at a time."""

    #: Of processor time, and of real time, in which others may have had the processor.
    seconds: float = 0.0
    real: float = 0.0
    where: str = ""

    def __str__(self) -> str:
        return f"{1000 * self.seconds:8.1f} ms ({1000 * self.real:.0f} of real time)"


class Faults(logging.Handler):
    """Exceptions that a broker has not foreseen: that it logs, or that its loop gets."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._note(record.exc_info[1])

    def unforeseen(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What `asyncio` calls."""
        if isinstance(context.get("exception"), Exception):
            self._note(context["exception"])

    def _note(self, error: BaseException) -> None:
        where = traceback.extract_tb(error.__traceback__)[-3:]
        places = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(where))
        self.found[f"{type(error).__name__}: {error} ({places})"] = None


class MeasuredBroker:
    """A broker in a thread; use it by `with`."""

    def __init__(
        self, grants: tuple[Grant, ...] = (), token: str | None = None, **settings: Any
    ) -> None:
        """With other `settings` than the default, if need be."""
        self._token = token
        self._settings = Settings(listen=("127.0.0.1:0",), name="b1", grants=grants, **settings)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self.loop: asyncio.AbstractEventLoop
        self.broker: Broker
        #: The longest step since it was asked for last.
        self._longest = Step()
        self._faults = Faults()

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(self._faults.unforeseen)
        self._over = asyncio.Event()
        async with Broker(self._settings) as self.broker:
            self._ready.set()
            await self._over.wait()

    def __enter__(self) -> MeasuredBroker:
        self._run: Callable[[Any], None] = asyncio.Handle._run
        owner, run, clock, real = self._thread, self._run, time.thread_time, time.perf_counter

        def measured(handle: Any) -> None:
            if threading.current_thread() is not owner:
                run(handle)
                return
            shown = repr(handle._callback)
            start, begun = clock(), real()
            run(handle)
            taken = clock() - start
            if taken > self._longest.seconds:
                self._longest = Step(taken, real() - begun, shown)

        asyncio.Handle._run = measured  # type: ignore[method-assign]
        _collect_rarely()
        self._thread.start()
        assert self._ready.wait(STARTING), "the broker does not start"
        logging.getLogger("stentor").addHandler(self._faults)
        self.suffer(_usual())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        logging.getLogger("stentor").removeHandler(self._faults)
        self.loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE)
        asyncio.Handle._run = self._run  # type: ignore[method-assign]

    @property
    def faults(self) -> list[str]:
        """Where the broker has failed by a fault of its own."""
        return list(self._faults.found)

    @property
    def _terms(self) -> str:
        """What neighbors have to agree to."""
        plain = self._settings.overlay == "tree" and self._settings.advertisements == "none"
        return "" if plain else self.broker.core.routing.terms

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.broker.address.rpartition(":")
        return host, int(port)

    @property
    def stream(self) -> str:
        return self.broker.stream

    def suffer(self, attack: Attack) -> Step:
        """The longest step that the attack has caused."""
        self._longest = Step()
        strike(self.address, attack, self._token, self._terms)
        deadline = time.monotonic() + PATIENCE
        while self._has_work and time.monotonic() < deadline:
            time.sleep(0.01)
        return self._longest

    @property
    def _has_work(self) -> bool:
        try:
            return self.broker.core.has_work
        except RuntimeError:  # its parts have just taken turns
            return True


class WitnessedBroker:
    """A broker in a process of its own, and a client that pings it all the time; by `with`.

    The broker's processor time between a ping and its answer is what somebody else had to wait for:
    the rest of one round of its loop, the next, in which the ping is read, and of the one after
    that as much as comes before the answer is sent. What other processes do does not count.
    """

    def __enter__(self) -> WitnessedBroker:
        command = [sys.executable, "-m", "stentor", "broker", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen([*command, "--name", "b1"], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        listening = next(line for line in self.process.stdout if b"listening" in line)
        host, _, port = listening.decode().split()[-1].rpartition(":")
        self.address = host, int(port)
        self._longest = Step()
        self._over = threading.Event()
        self._sock = _entered(self.address, Attack("", "client", [], "pinger"), None)
        self._thread = threading.Thread(target=self._ping)
        self._thread.start()
        self.suffer(_usual())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(PATIENCE)
        self._sock.close()
        self.process.terminate()
        self.process.wait(PATIENCE)

    @property
    def faults(self) -> list[str]:
        """Unknown: nobody looks at what it logs."""
        return []

    @property
    def stream(self) -> str:
        with socket.create_connection(self.address) as sock:
            sock.sendall(frame(m.Hello(list(m.VERSIONS), "client", "asker")))
            return str(_first(sock).stream)

    @property
    def resident(self) -> int:
        """Bytes of memory that the broker occupies."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def _spent(self) -> float:
        """Seconds of processor time of the thread that serves everybody."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9

    def _ping(self) -> None:
        while not self._over.is_set():
            before, begun = self._spent(), time.perf_counter()
            self._sock.sendall(frame(m.Ping()))
            assert isinstance(_first(self._sock), m.Pong)
            taken, real = self._spent() - before, time.perf_counter() - begun
            self._longest = max(self._longest, Step(taken, real, "between a ping and its answer"))

    def suffer(self, attack: Attack) -> Step:
        """For how long somebody else had to wait, at most."""
        self._longest = Step()
        strike(self.address, attack)
        assert self.process.poll() is None, "the broker has ended"
        assert self._thread.is_alive(), "the broker serves nobody else"
        return self._longest


def _usual() -> Attack:
    """None: what is loaded, compiled and laid out once by the first who comes does not count."""
    items = [encode(Notification({"x": 1}, id=NotificationId("evil", 1, i))) for i in range(9)]
    usual = [m.Subscribe(1, "x > 0", 9), m.Publish(2, items), m.Advertise(3, "x > 1")]
    return Attack("the usual", "client", [frame(message) for message in usual])


def strike(
    address: tuple[str, int], attack: Attack, token: str | None = None, terms: str = ""
) -> None:
    """Carry the attack out, and wait until the broker has dealt with it."""
    with ExitStack() as standing:
        for each in attack.before:
            sock = standing.enter_context(_entered(address, each, token, terms))
            threading.Thread(target=_drain, args=(sock,), daemon=True).start()
            _send(sock, each.data)
        with _entered(address, attack, token, terms) as sock:
            reading = threading.Thread(target=_drain, args=(sock,), daemon=True)
            reading.start()
            _send(sock, [*attack.data, frame(m.Goodbye())], last=True)
            reading.join(PATIENCE)
    # What it has left behind is dealt with when somebody else has been served.
    with _entered(address, Attack("", "client", [], "witness"), token):
        pass


def _entered(
    address: tuple[str, int], attack: Attack, token: str | None, terms: str = ""
) -> socket.socket:
    """A connection that was let in, as far as it wants to be."""
    sock = socket.create_connection(address)
    sock.settimeout(PATIENCE)
    if attack.role != "stranger":
        stream = f"{attack.name}#s"
        hello = m.Hello(
            list(m.VERSIONS), attack.role, attack.name, token, stream=stream, terms=terms
        )
        sock.sendall(frame(hello))
        answer = _first(sock)
        # Who is not let in attacks nothing. A link may still be there from the last time.
        assert isinstance(answer, m.Welcome) or attack.role == "broker", answer
    return sock


def _send(sock: socket.socket, data: list[bytes], *, last: bool = False) -> None:
    try:
        for piece in data:
            sock.sendall(piece)
        if last:
            sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the broker has had enough


def _first(sock: socket.socket) -> Any:
    reader = FrameReader()
    while data := sock.recv(2**20):
        found = reader.feed(data)
        if found:
            return found[0]
    return None


def _drain(sock: socket.socket) -> None:
    try:
        while sock.recv(2**20):
            pass
    except OSError:
        pass
