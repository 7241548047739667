"""The supervisor with real processes: small scripts in the place of brokers."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stentor.broker.config import load
from stentor.broker.overlay import OverlaySettings, read_overlay
from stentor.broker.supervisor import STATE_FILE, Restarts, Supervisor, default_command
from stentor.errors import DataInUse

QUICK = Restarts(first=0.01, most=0.02, stable=30.0, loop=3)

#: What the children do, in Python; `name` is whose part it plays.
WAIT = "import signal; print('listening', flush=True); signal.pause()"
GRACEFUL = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print('listening', flush=True)
while True: signal.pause()
"""
STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('listening', flush=True)
while True: signal.pause()
"""


class Recorder:
    """Hears everything, and lets tests wait for it."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.events: list[tuple[str | None, str]] = []
        self._news = asyncio.Event()

    def line(self, broker: str, text: str) -> None:
        self.lines.append((broker, text))
        self._news.set()

    def event(self, broker: str | None, text: str, *, bad: bool = False) -> None:
        self.events.append((broker, text))
        self._news.set()

    async def until(self, holds: Callable[[], Any]) -> None:
        while not holds():
            await self._news.wait()
            self._news.clear()

    def said(self, text: str) -> bool:
        return any(text in said for _, said in self.events)


def overlay_of(tmp_path: Path, *names: str) -> OverlaySettings:
    file = tmp_path / "overlay.toml"
    file.write_text(
        "[overlay]\nbase_port = 0\nlimits.shutdown = '1s'\n"
        + "".join(f"[[broker]]\nname = '{name}'\n" for name in names)
    )
    return read_overlay(file, environment={})


def supervise(
    overlay: OverlaySettings,
    script: str,
    body: Callable[[Supervisor, Recorder], Awaitable[None]],
    restarts: Restarts = QUICK,
) -> bool:
    """Run the overlay with this script in place of a broker, and the body beside it."""

    def command(config: Path) -> list[str]:
        return [sys.executable, "-S", "-c", f"name = {config.stem!r}\n{textwrap.dedent(script)}"]

    async def run() -> bool:
        recorder = Recorder()
        supervisor = Supervisor(overlay, recorder, restarts=restarts, command=command)
        async with asyncio.timeout(30):
            running = asyncio.create_task(supervisor.run())
            await body(supervisor, recorder)
            supervisor.stop()
            return await running

    return asyncio.run(run())


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:  # one that has ended but was not yet waited for
        return file.read().rpartition(")")[2].split()[0] != "Z"


class TestLife:
    def test_starts_all_says_where_and_ends_all(self, tmp_path: Path) -> None:
        overlay = overlay_of(tmp_path, "a", "b")
        pids: list[int] = []

        async def body(supervisor: Supervisor, recorder: Recorder) -> None:
            await recorder.until(lambda: len(recorder.lines) == 2)
            assert sorted(recorder.lines) == [("a", "listening"), ("b", "listening")]
            state = json.loads((overlay.run / STATE_FILE).read_text())
            assert state["pid"] == os.getpid()
            assert [broker["name"] for broker in state["brokers"]] == ["a", "b"]
            assert {broker["state"] for broker in state["brokers"]} == {"up"}
            for broker in state["brokers"]:
                pids.append(broker["pid"])
                assert is_running(broker["pid"])
                own = load(overlay.run / f"{broker['name']}.toml", environment={}).settings
                assert own.listen == (broker["address"],)
            assert (overlay.run / STATE_FILE).stat().st_mode & 0o777 == 0o600
            assert (overlay.run / "a.toml").stat().st_mode & 0o777 == 0o600

        assert supervise(overlay, GRACEFUL, body)
        assert not any(is_running(pid) for pid in pids)
        assert not (overlay.run / STATE_FILE).exists()

    def test_one_that_is_killed_is_started_again(self, tmp_path: Path) -> None:
        async def body(supervisor: Supervisor, recorder: Recorder) -> None:
            child = supervisor.children["a"]
            await recorder.until(lambda: child.state == "up")
            first = child.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await recorder.until(lambda: len(recorder.lines) == 2)
            assert child.pid not in (None, first)
            assert (child.restarts, child.last_exit) == (1, -signal.SIGKILL)
            assert recorder.said("was ended by SIGKILL; it is started again in 0.01 s")

        assert supervise(overlay_of(tmp_path, "a"), WAIT, body)

    def test_a_crash_loop_is_reported_with_the_last_words(self, tmp_path: Path) -> None:
        script = "import sys\nprint('cannot', file=sys.stderr)\nprint('go on', file=sys.stderr)\n"
        script += "sys.exit(1)"

        async def body(supervisor: Supervisor, recorder: Recorder) -> None:
            await recorder.until(lambda: recorder.said("crash loop"))
            assert recorder.said("it ended with exit code 1, and died 3 times in a row")
            assert recorder.said("its last words: cannot | go on")
            child = supervisor.children["a"]
            await recorder.until(lambda: child.restarts >= 4)
            assert sum("crash loop" in text for _, text in recorder.events) == 1

        supervise(overlay_of(tmp_path, "a"), script, body)

    def test_one_that_stayed_up_is_forgiven(self, tmp_path: Path) -> None:
        forgiving = Restarts(first=0.01, most=10.0, stable=0.0, loop=3)

        async def body(supervisor: Supervisor, recorder: Recorder) -> None:
            await recorder.until(lambda: supervisor.children["a"].restarts >= 5)
            assert not recorder.said("crash loop")

        supervise(overlay_of(tmp_path, "a"), "raise SystemExit(1)", body, forgiving)

    def test_delays_grow_and_are_bounded(self) -> None:
        delays = [Restarts(first=0.5, most=8.0).delay(deaths) for deaths in range(1, 9)]
        assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0]

    def test_one_that_does_not_accept_its_configuration_is_given_up(self, tmp_path: Path) -> None:
        async def body(supervisor: Supervisor, recorder: Recorder) -> None:
            await recorder.until(lambda: recorder.said("does not accept its configuration"))
            assert supervisor.children["a"].state == "failed"
            assert supervisor.children["a"].restarts == 0

        assert not supervise(overlay_of(tmp_path, "a"), "raise SystemExit(2)", body)

    def test_one_that_ends_in_good_order_stays_down(self, tmp_path: Path) -> None:
        script = f"if name == 'a': raise SystemExit(0)\n{WAIT}"

        async def body(supervisor: Supervisor, recorder: Recorder) -> None:
            await recorder.until(lambda: recorder.said("has ended in good order; it stays down"))
            await recorder.until(lambda: supervisor.children["b"].state == "up")
            assert supervisor.children["a"].restarts == 0

        assert supervise(overlay_of(tmp_path, "a", "b"), script, body)

    def test_it_ends_when_nobody_is_left(self, tmp_path: Path) -> None:
        async def run() -> bool:
            supervisor = Supervisor(
                overlay_of(tmp_path, "a", "b"),
                Recorder(),
                command=lambda _: [sys.executable, "-S", "-c", "raise SystemExit(2)"],
            )
            async with asyncio.timeout(30):
                return await supervisor.run()

        assert not asyncio.run(run())

    def test_a_command_that_cannot_be_started_is_a_death_like_any_other(
        self, tmp_path: Path
    ) -> None:
        async def run() -> None:
            recorder = Recorder()
            supervisor = Supervisor(
                overlay_of(tmp_path, "a"),
                recorder,
                restarts=QUICK,
                command=lambda _: ["/nowhere/to/be/found"],
            )
            async with asyncio.timeout(30):
                running = asyncio.create_task(supervisor.run())
                await recorder.until(lambda: recorder.said("crash loop"))
                supervisor.stop()
                await running
            assert recorder.said("cannot be started: No such file or directory")

        asyncio.run(run())


class TestEnding:
    def test_who_does_not_end_in_time_is_killed(self, tmp_path: Path) -> None:
        async def body(supervisor: Supervisor, recorder: Recorder) -> None:
            child = supervisor.children["a"]
            child.patience = 0.05
            await recorder.until(lambda: child.state == "up")
            supervisor.stop()
            await recorder.until(lambda: recorder.said("is killed: it did not end in time"))

        supervise(overlay_of(tmp_path, "a"), STUBBORN, body)

    def test_a_second_stop_does_not_wait(self, tmp_path: Path) -> None:
        async def body(supervisor: Supervisor, recorder: Recorder) -> None:
            child = supervisor.children["a"]
            child.patience = 1000.0
            await recorder.until(lambda: child.state == "up")
            supervisor.stop()

        supervise(overlay_of(tmp_path, "a"), STUBBORN, body)

    def test_one_that_waits_to_be_started_again_is_not_waited_for(self, tmp_path: Path) -> None:
        slow = Restarts(first=1000.0, most=1000.0)

        async def body(supervisor: Supervisor, recorder: Recorder) -> None:
            await recorder.until(lambda: recorder.said("it is started again in 1000 s"))

        assert supervise(overlay_of(tmp_path, "a"), "raise SystemExit(1)", body, slow)

    def test_children_end_when_the_supervisor_is_killed(self, tmp_path: Path) -> None:
        """The real command for a child, and a supervisor that has no chance to tidy up."""
        overlay_of(tmp_path, "a", "b")
        program = (
            "import asyncio, sys\n"
            "from pathlib import Path\n"
            "from stentor.broker.overlay import read_overlay\n"
            "from stentor.broker.supervisor import Supervisor\n"
            "class Observer:\n"
            "    def line(self, broker, text): pass\n"
            "    def event(self, broker, text, bad=False): pass\n"
            "script = 'import os; print(os.getpid(), flush=True); os.read(0, 1)'\n"
            "command = lambda _: [sys.executable, '-S', '-c', script]\n"
            "overlay = read_overlay(Path(sys.argv[1]), environment={})\n"
            "async def main():\n"
            "    supervisor = Supervisor(overlay, Observer(), command=command)\n"
            "    running = asyncio.create_task(supervisor.run())\n"
            "    async for _ in supervisor.changed():\n"
            "        if all(c.state == 'up' for c in supervisor.children.values()):\n"
            "            print(*[c.pid for c in supervisor.children.values()], flush=True)\n"
            "    await running\n"
            "asyncio.run(main())\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "overlay.toml")],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            pids = [int(pid) for pid in process.stdout.readline().split()]
            assert len(pids) == 2
            watched = [os.pidfd_open(pid) for pid in pids]
            process.kill()
        for descriptor in watched:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            assert poll.poll(20_000), "a child has outlived its supervisor"
            os.close(descriptor)


class TestSurroundings:
    def test_an_overlay_runs_once(self, tmp_path: Path) -> None:
        overlay = overlay_of(tmp_path, "a")

        async def body(supervisor: Supervisor, recorder: Recorder) -> None:
            await recorder.until(lambda: recorder.lines)
            with pytest.raises(DataInUse, match="in use by another process"):
                await Supervisor(overlay, recorder).run()

        assert supervise(overlay, WAIT, body)

    def test_children_do_not_see_the_variables_that_the_overlay_has_dealt_with(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STENTOR_LISTEN", "127.0.0.1:1")
        script = "import os; print([k for k in os.environ if k.startswith('STENTOR_')], flush=True)"

        async def body(supervisor: Supervisor, recorder: Recorder) -> None:
            await recorder.until(lambda: recorder.lines)
            assert recorder.lines[0] == ("a", "[]")

        supervise(overlay_of(tmp_path, "a"), script + f"\n{WAIT}", body)

    def test_output_of_any_kind_is_passed_on_in_lines(self, tmp_path: Path) -> None:
        script = r"""
        import sys
        sys.stdout.buffer.write(b"\xff\xfe odd\n" + b"x" * 300_000 + b"\nlast, without an end")
        sys.stdout.flush()
        raise SystemExit(0)
        """

        async def body(supervisor: Supervisor, recorder: Recorder) -> None:
            await recorder.until(lambda: recorder.said("ended in good order"))
            texts = [text for _, text in recorder.lines]
            assert texts[0] == "�� odd"
            assert set(texts[1]) == {"x"}
            assert len(texts[1]) <= 64 * 1024
            assert texts[-1] == "last, without an end"

        supervise(overlay_of(tmp_path, "a"), script, body)

    def test_the_command_is_this_interpreter_and_this_package(self, tmp_path: Path) -> None:
        command = default_command(tmp_path / "a.toml")
        assert command[0] == sys.executable
        assert command[2:5] == ["-m", "stentor", "broker"]
        assert str(tmp_path / "a.toml") in command
