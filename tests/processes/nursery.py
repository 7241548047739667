"""Processes that start at once: brokers and clients, forked from one that has loaded everything.

Loading the product takes a second or two of a core; a test that kills brokers all the time would
do little else. So one *nursery* process loads it once and forks a child for each order, which comes
as a line of JSON. A child is a process like any other: it has its own files, limits, memory, and
dies alone by a signal. What it runs is what the command line runs.

Nothing is left behind, whatever happens to the tests: the kernel kills the nursery when the thread
that started it ends, and the children with the nursery.

    nursery = Nursery()
    broker = nursery.start("broker", log=tmp / "b1.log", config_file=str(tmp / "b1.toml"))
    broker.kill()
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1
_CLONE_NEWNET: Final = 0x40000000
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Child:
    """A process, watched through a descriptor that cannot come to mean another one."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self.log = log
        self._watch: int | None = None
        with suppress(ProcessLookupError):  # it has ended already
            self._watch = os.pidfd_open(pid)

    @property
    def running(self) -> bool:
        return self._watch is not None and not self._ended(0.0)

    def _ended(self, seconds: float) -> bool:
        if self._watch is None:
            return True
        poll = select.poll()
        poll.register(self._watch, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return False
        os.close(self._watch)
        self._watch = None
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send it, unless the process has ended."""
        if self._watch is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watch, number)

    def kill(self) -> None:
        """End it in the middle of whatever it does; it is gone when this returns."""
        self.signal(signal.SIGKILL)
        if not self.wait(30.0):
            raise TimeoutError(f"process {self.pid} survived SIGKILL")

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def wait(self, seconds: float) -> bool:
        """Whether it ends in time."""
        return self._ended(seconds)

    # -- what the kernel knows of it

    @property
    def rss(self) -> int:
        """Bytes of memory that it occupies."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * mmap.PAGESIZE

    @property
    def private_bytes(self) -> int:
        """Bytes of memory that no other process shares: what it has written itself."""
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_Dirty:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the kernel does not say")

    @property
    def descriptors(self) -> int:
        """Files, sockets and the like that it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @property
    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def limit(self, which: int, soft: int) -> None:
        """Change a limit of the running process; the hard one stays."""
        _, hard = resource.prlimit(self.pid, which)
        resource.prlimit(self.pid, which, (soft, hard))


class Nursery:
    """The process that children are forked from."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        if self._answer() != {"ready": True}:
            raise AssertionError("the nursery did not start")

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError("the nursery has died")
        return json.loads(line)  # type: ignore[no-any-return]

    def start(
        self,
        what: str,
        *,
        log: Path,
        limits: dict[int, int] | None = None,
        clock: Path | None = None,
        namespace: Path | None = None,
        **arguments: Any,
    ) -> Child:
        """Fork a child.

        limits     soft limits of the process, by their numbers in `resource`
        clock      a file with one double: seconds that are added to the time of day
        namespace  the file of a network namespace to live in
        """
        assert self._process.stdin is not None
        order = {
            "what": what,
            "log": str(log),
            "limits": limits or {},
            "clock": None if clock is None else str(clock),
            "namespace": None if namespace is None else str(namespace),
            "arguments": arguments,
        }
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return Child(self._answer()["pid"], log)

    def close(self) -> None:
        """End the nursery, and with it all children."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


# -- in the nursery


def _main() -> None:
    _die_with_parent(int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the dead
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _load()
    out = os.dup(1)
    os.dup2(2, 1)
    os.write(out, b'{"ready": true}\n')
    nursery = os.getpid()
    for line in sys.stdin.buffer:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _die_with_parent(nursery)
            os.close(out)
            _child(order)
        os.write(out, json.dumps({"pid": pid}).encode() + b"\n")


def _load() -> None:
    """Everything that children need, kernels included: they must not compile at the same time."""
    import stentor.broker.host
    import stentor.broker.logs
    import stentor.cli.app
    import stentor.cli.broker
    import stentor.client.bus  # noqa: F401
    from stentor.matching.index.preparing import prepare

    prepare()


def _child(order: dict[str, Any]) -> None:
    """Become what was ordered; never returns."""
    status = 1
    try:
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.close(log)
        os.close(null)
        for which, soft in order["limits"].items():
            _, hard = resource.getrlimit(int(which))
            enough = hard in (resource.RLIM_INFINITY, max(soft, hard))
            resource.setrlimit(int(which), (soft, hard if enough else soft))
        if order["namespace"] is not None:
            _enter(order["namespace"])
        if order["clock"] is not None:
            _shift(order["clock"])
        status = _run(order["what"], order["arguments"])
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _run(what: str, arguments: dict[str, Any]) -> int:
    if what == "broker":
        from broker_main import run_broker

        return run_broker(**arguments)
    from client_main import run_client

    return run_client(what, **arguments)


def _die_with_parent(parent: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was faster
        os._exit(1)


def _enter(namespace: str) -> None:
    with open(namespace, "rb") as file:
        if _libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


def _shift(clock: str) -> None:
    """Add what a file says to the time of day; the monotonic clock goes on as it is."""
    with open(clock, "r+b") as file:
        offset = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    true_time = time.time

    def shifted() -> float:
        return true_time() + float(struct.unpack_from("d", offset)[0])

    time.time = shifted
    time.time_ns = lambda: int(shifted() * 1e9)
    from stentor.broker.storage import journal, writer

    for function in (journal.Journal.open.__func__, writer.Writer.__init__):  # type: ignore[attr-defined]
        replace_clock(function, true_time, shifted)


def replace_clock(function: Any, old: Any, new: Any) -> None:
    """Defaults of parameters were bound to the true clock when their module was loaded."""
    if function.__defaults__:
        function.__defaults__ = tuple(new if d is old else d for d in function.__defaults__)
    if function.__kwdefaults__:
        defaults = function.__kwdefaults__
        function.__kwdefaults__ = {k: new if v is old else v for k, v in defaults.items()}


if __name__ == "__main__":
    _main()
