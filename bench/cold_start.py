"""What it costs to begin: processor time of fresh processes, beside what they cannot do without.

    python bench/cold_start.py

A client and a command are started often and live briefly, so what they load is what they cost. Each
line is the least of several runs.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Final

from stentor.broker import Broker, Settings

RUNS: Final = 9
EVENT: Final = '{"symbol": "IBM", "price": 120.5}'


def cost(*arguments: str) -> float:
    """Milliseconds of processor time that a Python process with these arguments takes."""
    return 1000 * min(_once(arguments) for _ in range(RUNS))


def _once(arguments: tuple[str, ...]) -> float:
    child = subprocess.Popen([sys.executable, *arguments], stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{arguments} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


async def main() -> None:
    async with Broker(Settings(listen=("127.0.0.1:0",))) as broker:
        publish = ("-m", "stentor", "publish", broker.address, EVENT)
        base, loop, library, published = await asyncio.to_thread(
            lambda: (
                cost("-c", "import asyncio, msgspec"),
                cost("-c", "import asyncio"),
                cost("-c", "import stentor"),
                cost(*publish),
            )
        )
    print(f"import asyncio, msgspec   {base:6.0f} ms")
    print(f"import stentor            {library:6.0f} ms   {library / base:.2f} times that")
    print(f"import asyncio            {loop:6.0f} ms")
    print(f"stentor publish           {published:6.0f} ms   {published - loop:.0f} ms more")


if __name__ == "__main__":
    asyncio.run(main())
