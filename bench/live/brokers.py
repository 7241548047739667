"""Broker processes: the product's own command, as anybody would run it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from live.processes import cores, descriptors, processor_seconds, resident_bytes
from live.wire import ask


class BrokerProcess:
    """A broker on the brokers' core."""

    def __init__(
        self, name: str, *, data: Path | None = None, neighbors: Sequence[str] = ()
    ) -> None:
        command = [sys.executable, "-m", "stentor", "broker", "--name", name]
        command += ["--listen", "127.0.0.1:0", "--log-level", "warning"]
        command += ["--limits-subscriptions-per-client", "1000000"]
        if data is not None:
            command += ["--data", str(data)]
        for neighbor in neighbors:
            command += ["--neighbor", neighbor]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        os.sched_setaffinity(self._process.pid, {cores().broker})
        try:
            self.address = self._where()
        except BaseException:
            self._process.kill()
            raise

    def _where(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "listening":
                return rest.split()[0].rstrip(",")
        raise RuntimeError(f"the broker did not start; it ended with {self._process.wait()}")

    @property
    def processor_seconds(self) -> float:
        return processor_seconds(self._process.pid)

    @property
    def resident_bytes(self) -> int:
        return resident_bytes(self._process.pid)

    @property
    def descriptors(self) -> int:
        return descriptors(self._process.pid)

    def status(self) -> dict[str, Any]:
        """What the broker says about itself."""
        found: dict[str, Any] = asyncio.run(ask(self.address, "status"))
        return found

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def line(count: int) -> Iterator[list[BrokerProcess]]:
    """Brokers of which each but the first is linked with the one before it."""
    with ExitStack() as stack:
        brokers: list[BrokerProcess] = []
        for i in range(count):
            neighbors = [brokers[-1].address] if brokers else []
            brokers.append(stack.enter_context(BrokerProcess(f"b{i + 1}", neighbors=neighbors)))
        while len(brokers[0].status()["brokers"]) < count - 1:
            pass  # each question takes long enough to let the brokers get on
        yield brokers
