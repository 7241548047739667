"""The demo tells the truth: it works from end to end, and its report would show what is wrong."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stentor.filters import Filter
from stentor.model import Notification, NotificationId

ROOT = Path(__file__).resolve().parent.parent
TOUR = [sys.executable, "-u", str(ROOT / "demo" / "tour.py"), "--quick"]


@pytest.fixture(autouse=True)
def _demo_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "demo")


def test_scopes_are_shown_alone(capsys: pytest.CaptureFixture[str]) -> None:
    import scopes

    scopes.main()
    shown = " ".join(capsys.readouterr().out.split())
    assert "[Private1] out: executed = true and type = 'Quote'" in shown
    assert "(Trade)" in shown


def test_alarms_are_raised_live(capsys: pytest.CaptureFixture[str]) -> None:
    import alarms

    assert alarms.main(spark=False) == 0
    assert re.search(r"609 events, [1-9]\d* alarms", capsys.readouterr().out)


@pytest.mark.slow
def test_spark_finds_the_alarms_that_were_raised() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "demo" / "tour.py"), "--composite"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert "the same alarms, one by one" in done.stdout


@pytest.fixture
def plot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the picture goes."""
    return tmp_path_factory.mktemp("plot") / "bars.png"


@pytest.fixture
def tour(tmp_path: Path, plot: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo as a process whose temporary files are in `tmp_path`."""
    process = subprocess.Popen(
        [*TOUR, "--plot", str(plot)],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def left_behind(directory: Path) -> list[str]:
    """Files in a directory, and processes that were started with something in it."""
    found = [str(path) for path in directory.iterdir()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue  # it has just ended
        if any(argument.startswith(str(directory)) for argument in command):
            found.append(" ".join(command))
    return found


class TestTheLiveDemo:
    def test_it_runs_to_its_end_and_everything_adds_up(
        self, tour: subprocess.Popen[str], tmp_path: Path, plot: Path
    ) -> None:
        output, errors = tour.communicate()
        assert (tour.returncode, errors) == (0, ""), output
        rows = re.findall(r"^(\w[\w ]*?)  +([\d,]+)  ", output, re.MULTILINE)
        figures = {name: int(number.replace(",", "")) for name, number in rows}
        assert figures["published"] == figures["acknowledged"] > 0
        assert figures["delivered"] == figures["expected"] > 0
        wrong = ("missing", "twice", "out of order", "otherwise wrong")
        assert [figures[name] for name in wrong] == [0, 0, 0, 0]
        assert 0 < figures["before the kill"] < figures["delivered"]
        on_spark = re.findall(
            r"^(archived|matches|bars) +([\d,]+) +([\d,]+)  ", output, re.MULTILINE
        )
        assert {name: found for name, found, _ in on_spark} == {
            name: expected for name, _, expected in on_spark
        }
        assert len(on_spark) == 3
        assert figures["archived"] == figures["published"]
        assert plot.read_bytes().startswith(b"\x89PNG")
        told = [
            "killed lisbon",
            "iberia has moved from lisbon to london",
            "lisbon is back",
            "everybody has caught up",
            "blocks is back",
            "audit joins",
            "conforms",
        ]
        assert [words for words in told if words not in output] == []
        assert left_behind(tmp_path) == []

    @pytest.mark.slow
    def test_interrupted_while_a_broker_is_dead_it_leaves_nothing_behind(
        self, tour: subprocess.Popen[str], tmp_path: Path
    ) -> None:
        assert tour.stdout is not None
        assert any("killed lisbon" in line for line in tour.stdout)
        assert len(left_behind(tmp_path)) > 1
        tour.send_signal(signal.SIGINT)
        _, errors = tour.communicate()
        assert tour.returncode == 130
        assert "Traceback" not in errors
        assert left_behind(tmp_path) == []

    def test_the_commands_to_try_next_are_those_of_the_readme(self) -> None:
        from market.report import COMMANDS

        readme = (ROOT / "README.md").read_text("utf-8")
        assert [command for command in COMMANDS if f"    {command}\n" not in readme] == []


def trade(number: int, price: float = 200.0) -> Notification:
    return Notification({"price": price}, id=NotificationId("NYSE", 0, number))


class TestTheAccount:
    """`desk` wants prices above 100, and three such trades are published."""

    @pytest.fixture
    def account(self) -> Any:
        from market.account import Account

        ticks = iter(range(1000))
        account = Account(lambda: float(next(ticks)))
        account.subscribed("desk", Filter("price > 100")).present = True
        account.settled()
        for number in range(3):
            account.published("NYSE", trade(number))
        account.published("NYSE", trade(3, price=99.0))
        return account

    def verdict(self, account: Any, *delivered: Notification) -> Any:
        for notification in delivered:
            account.delivered("desk", notification)
        account.settled()
        return account.verdict()

    def test_all_is_well(self, account: Any) -> None:
        verdict = self.verdict(account, trade(0), trade(1), trade(2))
        assert verdict.ok
        assert (verdict.published, verdict.expected, verdict.delivered) == (4, 3, 3)

    def test_what_is_missing_is_counted(self, account: Any) -> None:
        verdict = self.verdict(account, trade(0), trade(2))
        assert (verdict.ok, verdict.expected, verdict.missing) == (False, 3, 1)

    def test_what_comes_twice_is_counted(self, account: Any) -> None:
        verdict = self.verdict(account, trade(0), trade(1), trade(2), trade(1))
        assert (verdict.ok, verdict.delivered, verdict.twice) == (False, 4, 1)

    def test_what_comes_out_of_order_is_counted(self, account: Any) -> None:
        verdict = self.verdict(account, trade(0), trade(2), trade(1))
        assert (verdict.ok, verdict.out_of_order) == (False, 1)

    def test_what_was_not_asked_for_or_is_altered_is_counted(self, account: Any) -> None:
        altered = trade(1, price=201.0)
        verdict = self.verdict(account, trade(0), altered, trade(2), trade(3, price=99.0))
        assert (verdict.ok, verdict.wrong) == (False, 2)

    def test_what_was_not_acknowledged_is_not_owed_but_not_well_either(self, account: Any) -> None:
        for number in (0, 1):
            account.delivered("desk", trade(number))
        account.settled()
        verdict = account.verdict([trade(2).id, trade(3).id])
        assert (verdict.missing, verdict.expected, verdict.acknowledged) == (0, 2, 2)
        assert not verdict.ok

    def test_a_run_in_which_nothing_was_owed_proves_nothing(self) -> None:
        from market.account import Account

        account = Account(lambda: 0.0)
        account.settled()
        assert not account.verdict().ok

    def test_latencies_leave_out_what_happened_while_a_consumer_was_away(
        self, account: Any
    ) -> None:
        desk = account.consumers["desk"]
        account.delivered("desk", trade(0))
        desk.left()
        for number in (1, 2):
            account.delivered("desk", trade(number))
        assert len(account.latencies()) == 1
        assert account.later() == 2
        assert account.caught_up(float("inf"))


class TestLinks:
    def test_flooding_uses_the_links_that_can_be_reached(self) -> None:
        from market.brokers import links_within

        down = frozenset(["lisbon"])
        assert links_within("newyork") == 4
        assert links_within("newyork", down) == 2
        assert links_within("madrid", down) == 0
        assert links_within("lisbon", down) == 0

    def test_what_links_carried_is_counted_at_one_end_of_each(self, tmp_path: Path) -> None:
        import asyncio

        from market.brokers import LINKS, NAMES, Brokers

        async def carried() -> int:
            brokers = Brokers(tmp_path, dead_for=1.0)
            for name in NAMES:
                ends = sum(name in link for link in LINKS)
                counters = {"forwarded": 10 * ends, "received": 10 * ends, "off_path": 0}
                brokers.looks[name].status = {"counters": counters}
            return brokers.carried("lisbon")

        # Each link carries ten each way, and both ends have counted both.
        assert asyncio.run(carried()) == 20 * len(LINKS)
