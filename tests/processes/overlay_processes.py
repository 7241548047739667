"""An overlay of broker processes on the loopback interface, to be hurt in every way.

    with Overlay(tmp_path, nursery) as overlay:
        overlay.line(3)
        await overlay.linked()
        overlay["b2"].kill()
        overlay["b2"].start()

Each broker has its own port, directory and log, and keeps them when it is started again. When the
overlay is closed, it looks at the logs: a fault in a broker is a failed test, even if nobody
noticed anything else of it.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from nursery import Child, Nursery

from stentor.broker.config import to_toml
from stentor.broker.settings import Limits, Settings
from stentor.cli.operator import Operator
from stentor.cli.options import Connecting
from stentor.errors import StentorError

#: Seconds after which something that should happen soon is taken not to happen at all. It has
#: nothing to do with how fast the product is; a test machine may be busy with other things.
PATIENCE: Final = 60.0

#: Silence is noticed soon, so that tests need not wait for it.
LIMITS: Final = Limits(timeout=2.0, shutdown=5.0)


async def until(
    condition: Callable[[], Any],
    what: str | Callable[[], str],
    seconds: float = PATIENCE,
    *,
    every: float = 0.02,
) -> Any:
    """Wait for a condition, plain or async, and return what it gave."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline:
            said = what if isinstance(what, str) else what()
            raise AssertionError(f"this did not happen within {seconds:g} seconds: {said}")
        await asyncio.sleep(every)


#: Those that were found: the next that is found may be the same, as long as nobody listens there.
_found: set[int] = set()


def free_port() -> int:
    """A port of the loopback interface on which nobody listens, and another one each time."""
    while True:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = int(found.getsockname()[1])
        if port not in _found:
            _found.add(port)
            return port


class BrokerProcess:
    """A broker, whether it runs or not."""

    def __init__(self, overlay: Overlay, settings: Settings, **options: Any) -> None:
        assert settings.name is not None
        self.overlay = overlay
        self.name = settings.name
        self.settings = settings
        self.log = overlay.directory / f"{self.name}.log"
        #: How its process is started: limits, clock, namespace.
        self.options = options
        self.child: Child | None = None
        self.starts = 0

    @property
    def address(self) -> str:
        return self.settings.listen[0]

    @property
    def data(self) -> Path:
        assert self.settings.data is not None
        return self.settings.data

    @property
    def process(self) -> Child:
        assert self.child is not None, f"{self.name} was never started"
        return self.child

    @property
    def running(self) -> bool:
        return self.child is not None and self.child.running

    def start(self) -> None:
        """Start it, or start it again."""
        assert not self.running, f"{self.name} is running"
        self.configure()
        self.starts += 1
        self.child = self.overlay.nursery.start(
            "broker", log=self.log, config_file=str(self.file), **self.options
        )

    @property
    def file(self) -> Path:
        """Its configuration."""
        return self.overlay.directory / f"{self.name}.toml"

    def configure(self, **changes: Any) -> None:
        """Write its configuration, with these changes from now on."""
        self.settings = replace(self.settings, **changes)
        self.file.write_text(to_toml(self.settings, secrets=True))
        self.file.chmod(0o600)

    def kill(self) -> None:
        """The process ends at whatever instruction it is."""
        self.process.kill()

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    async def terminate(self) -> None:
        """Ask it to shut down in good order."""
        import signal

        self.process.signal(signal.SIGTERM)
        await until(lambda: not self.running, f"{self.name} shuts down")

    def logged(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    # -- what it says of itself

    async def ask(self, what: str, timeout: float = 5.0, **arguments: Any) -> Any:
        """Put a question to the broker as an operator."""
        options = {"token": None, "tls": None} | self.overlay.operator_options
        connecting = Connecting((self.address,), timeout=timeout, **options)
        async with Operator(connecting) as operator:
            return await operator.ask(what, timeout, **arguments)

    async def status(self) -> dict[str, Any]:
        return await self.ask("status")  # type: ignore[no-any-return]

    async def reachable(self) -> bool:
        """Whether it answers."""
        with suppress(StentorError):
            return bool(await self.status())
        return False

    async def sees(self, names: Iterable[str]) -> bool:
        """Whether it has a way to exactly these other brokers."""
        with suppress(StentorError):
            status = await self.status()
            return {other["broker"] for other in status["brokers"]} == set(names)
        return False


class Overlay:
    """Brokers by name."""

    def __init__(self, directory: Path, nursery: Nursery, **defaults: Any) -> None:
        """`defaults` are settings that all brokers have."""
        self.directory = directory
        self.nursery = nursery
        self.brokers: dict[str, BrokerProcess] = {}
        #: How operators connect: a token, TLS.
        self.operator_options: dict[str, Any] = {}
        self._defaults = {"limits": LIMITS} | defaults

    def __getitem__(self, name: str) -> BrokerProcess:
        return self.brokers[name]

    # -- making it

    def broker(
        self,
        name: str,
        neighbors: Sequence[str] = (),
        *,
        options: dict[str, Any] | None = None,
        **settings: Any,
    ) -> BrokerProcess:
        """Another broker, not yet started; neighbors are names or addresses."""
        dialed = [self[n].address if n in self.brokers else n for n in neighbors]
        chosen: dict[str, Any] = {
            "listen": (f"127.0.0.1:{free_port()}",),
            "name": name,
            "data": self.directory / name,
            "neighbors": tuple(dialed),
            **self._defaults,
            **settings,
        }
        self.brokers[name] = BrokerProcess(self, Settings(**chosen), **(options or {}))
        return self.brokers[name]

    def graph(self, dialed: Sequence[Sequence[int]], **settings: Any) -> list[str]:
        """Start b1, b2, ...; each dials the brokers with these indexes."""
        names = [f"b{i + 1}" for i in range(len(dialed))]
        for name in names:
            self.broker(name, **settings)
        for name, others in zip(names, dialed, strict=True):
            for other in others:
                self.link(name, self[names[other]].address)
            self[name].start()
        return names

    def tree(self, parents: Sequence[int], **settings: Any) -> list[str]:
        """Start b1, b2, ...; the number at index i says whom broker i + 2 dials."""
        return self.graph([[], *([parent] for parent in parents)], **settings)

    def line(self, count: int, **settings: Any) -> list[str]:
        return self.tree(list(range(count - 1)), **settings)

    def star(self, count: int, **settings: Any) -> list[str]:
        return self.tree([0] * (count - 1), **settings)

    def start_all(self) -> None:
        for broker in self.brokers.values():
            broker.start()

    def link(self, name: str, address: str) -> None:
        """Have a broker that is not yet started dial one more address."""
        broker = self[name]
        broker.settings = replace(broker.settings, neighbors=(*broker.settings.neighbors, address))

    # -- waiting for it

    @property
    def running(self) -> list[BrokerProcess]:
        return [broker for broker in self.brokers.values() if broker.running]

    async def linked(self, seconds: float = PATIENCE) -> None:
        """Until every broker that runs can reach every other one."""
        running = self.running
        names = {broker.name for broker in running}
        for broker in running:
            await until(
                lambda broker=broker: broker.sees(names - {broker.name}),  # type: ignore[misc]
                lambda broker=broker: f"{broker.name} reaches all others\n{self.tail()}",  # type: ignore[misc]
                seconds,
            )

    # -- the end

    def __enter__(self) -> Overlay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if error is None:
            self.check_logs()

    def close(self) -> None:
        for broker in self.brokers.values():
            if broker.running:
                broker.kill()

    def check_logs(self) -> None:
        """No broker had a fault of its own."""
        for broker in self.brokers.values():
            logged = broker.logged()
            assert "Traceback" not in logged, f"{broker.name}:\n{logged[-8000:]}"
            assert "a fault" not in logged, f"{broker.name}:\n{logged[-8000:]}"

    def tail(self, lines: int = 12) -> str:
        """The last that the brokers logged, for a failed test."""
        return "\n".join(
            f"-- {name}\n" + "\n".join(broker.logged().splitlines()[-lines:])
            for name, broker in self.brokers.items()
        )
