"""A standalone Spark cluster of real processes on the loopback interface.

    with Cluster(tmp_path) as cluster:
        cluster.worker("w1")
        cluster.worker("w2")
        cluster.await_workers(2)
        driver = cluster.driver("job.py", "argument")
        cluster.kill("w2")
        driver.wait(...)

Master and workers are started from the installed `pyspark` package, as an operator would. Every
process leads a session of its own, so that a worker can be killed together with its executors, as
when a machine is lost.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

import pyspark

HOME: Final = Path(pyspark.__file__).parent
#: Seconds after which something that should happen soon is taken not to happen at all.
PATIENCE: Final = 300.0


class Node:
    """A process with a log."""

    def __init__(self, name: str, command: list[str], log: Path, env: dict[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
            )

    def logged(self) -> str:
        return self.log.read_text(errors="replace")

    def await_log(self, pattern: str, count: int = 1) -> list[str]:
        """Until the pattern was logged so many times; what was found."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = re.findall(pattern, self.logged())
            if len(found) >= count:
                return found
            assert self.process.poll() is None, f"{self.name} has ended:\n{self.logged()[-4000:]}"
            assert time.monotonic() < deadline, f"{self.name}: no {pattern!r}\n{self.logged()}"
            time.sleep(0.05)

    def kill(self) -> None:
        """End it and all that it has started, at whatever instruction they are."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait(self, seconds: float = 2 * PATIENCE) -> int:
        return self.process.wait(seconds)


class Cluster:
    """A master, workers and drivers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.env = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "PYSPARK_PYTHON": sys.executable,
        }
        self._nodes: dict[str, Node] = {}
        self.master = self._start("master", "org.apache.spark.deploy.master.Master")
        (self.url,) = self.master.await_log(r"Starting Spark master at (spark://\S+)")

    def _start(self, name: str, main: str, *arguments: str) -> Node:
        command = [
            str(HOME / "bin" / "spark-class"),
            main,
            *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            *arguments,
        ]
        node = Node(name, command, self.directory / f"{name}.log", self.env)
        self._nodes[name] = node
        return node

    def worker(self, name: str, cores: int = 1, memory: str = "1g") -> Node:
        """Start a worker, with a core of the cluster."""
        return self._start(
            name,
            "org.apache.spark.deploy.worker.Worker",
            *("--cores", str(cores), "--memory", memory),
            *("--work-dir", str(self.directory / name)),
            self.url,
        )

    def await_workers(self, count: int) -> None:
        self.master.await_log("Registering worker", count)

    def driver(self, script: Path, *arguments: str) -> Node:
        """Run a Python program on the cluster, by spark-submit."""
        command = [
            str(HOME / "bin" / "spark-submit"),
            *("--master", self.url, "--driver-memory", "1g", "--executor-memory", "700m"),
            *("--conf", "spark.ui.enabled=false"),
            str(script),
            *arguments,
        ]
        node = Node("driver", command, self.directory / "driver.log", self.env)
        self._nodes["driver"] = node
        return node

    def kill(self, name: str) -> None:
        self._nodes.pop(name).kill()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self._nodes.values():
            node.kill()
