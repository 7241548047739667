"""A small network of network namespaces, of which hosts can be cut off.

Every host is a namespace with one interface; all of them hang on a bridge, in a namespace of its
own. A host that is taken off the bridge notices nothing: its interface is up, its routes are there,
and every packet vanishes. The machine's own network is not touched, and all of it is gone as soon
as the processes that hold the namespaces are.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType


def may_make_namespaces() -> bool:
    """Whether this process may, and the tools for it are there."""
    try:
        with Network(1):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


class Network:
    """Hosts 0, 1, ... with addresses of their own."""

    def __init__(self, hosts: int) -> None:
        self._count = hosts
        self._holders: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Network:
        try:
            for _ in range(self._count + 1):
                self._hold()
            self._run(0, "link add bridge type bridge", "link set bridge up")
            for host in range(self._count):
                pid = self._holders[host + 1].pid
                self._run(
                    0,
                    f"link add port{host} type veth peer name net netns {pid}",
                    f"link set port{host} up",
                )
                self.join(host)
                self._run(
                    host + 1,
                    "link set lo up",
                    f"address add {self.address(host)}/24 dev net",
                    "link set net up",
                )
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for holder in self._holders:
            holder.kill()
            holder.communicate()

    def _hold(self) -> None:
        """A process that does nothing but live in a new namespace."""
        # unshare replaces itself by cat, so the holder ends when its standard input does.
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._holders.append(holder)
        assert holder.stdout is not None
        if not holder.stdout.readline():
            raise OSError("no namespace could be made")

    def _run(self, holder: int, *commands: str) -> None:
        pid = self._holders[holder].pid
        script = "\n".join(commands)
        subprocess.run(
            ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-"],
            input=script.encode(),
            check=True,
            capture_output=True,
        )

    def address(self, host: int) -> str:
        return f"10.7.41.{host + 1}"

    def file(self, host: int) -> Path:
        """For `Nursery.start`."""
        return Path(f"/proc/{self._holders[host + 1].pid}/ns/net")

    def cut_off(self, host: int) -> None:
        """Packets from and to this host vanish."""
        self._run(0, f"link set port{host} nomaster")

    def join(self, host: int) -> None:
        """They no longer do."""
        self._run(0, f"link set port{host} master bridge")
