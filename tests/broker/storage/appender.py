"""A process that appends to a journal and says what was acknowledged, until somebody kills it.

It first writes how many entries it found, then `FIRST LAST` after each acknowledged batch. Entry n
is made from n alone, so whoever reads the journal can tell what belongs where.
"""

import asyncio
import os
import random
import signal
from pathlib import Path

from stentor.broker.settings import Retention
from stentor.broker.storage import Journal, JournalBatch


def entry(offset: int) -> bytes:
    return b"%d." % offset * random.Random(offset).choice([1, 3, 20, 2000])


async def append(directory: Path, seed: int, out: int) -> None:
    chance = random.Random(seed)
    journal = Journal.open(directory, name="b1", retention=Retention(None, None))
    loop = asyncio.get_running_loop()
    os.write(out, b"%d\n" % journal.head)
    wake = asyncio.Event()

    def committed(done: list[tuple[JournalBatch, int]]) -> None:
        for batch, first in done:
            assert batch.error is None
            assert first == batch.context, "offsets are not what the appender counted"
            os.write(out, b"%d %d\n" % (first, first + len(batch) - 1))
        wake.set()

    journal.start(loop.call_soon_threadsafe, committed)
    following = journal.head + 1
    while True:
        for _ in range(chance.randint(1, 4)):
            count = chance.choice([1, 1, 5, 60])
            items = [entry(offset) for offset in range(following, following + count)]
            last = following + count - 1
            journal.append(
                JournalBatch(
                    items,
                    producers={"ann": (0, last)},
                    retain=[("newest", count - 1)],
                    durables={"desk": b"%d" % last},
                    context=following,
                )
            )
            following += count
        wake.clear()
        await wake.wait()


class Appender:
    """The process, as the one who kills it sees it."""

    def __init__(self, directory: Path, seed: int) -> None:
        source, out = os.pipe()
        # A copy of this process: a new one would spend its time on imports.
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(source)
                signal.alarm(120)  # no process is left behind, whatever happens to the test
                asyncio.run(append(directory, seed, out))
            finally:
                os._exit(1)
        os.close(out)
        self.lines = os.fdopen(source, "rb")

    def kill(self) -> list[bytes]:
        """Kill it; what it said before it died. It must not have ended by itself."""
        os.kill(self.pid, signal.SIGKILL)
        with self.lines:
            rest = [line for line in self.lines if line.endswith(b"\n")]
        _, status = os.waitpid(self.pid, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "the appender failed"
        return rest
