"""What people see: the status as tables, where nothing can play tricks, and warnings."""

import asyncio
import io
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import stentor
from stentor.broker.host import Broker
from stentor.broker.settings import Grant, Settings, TlsFiles
from stentor.cli.serving import open_doors
from stentor.cli.status import ROWS
from stentor.cli.status_view import plain, rates_table, status_view


def drawn(renderable: Any, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, force_terminal=False)
    console.print(renderable)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


@pytest.fixture(scope="module")
def status() -> dict[str, Any]:
    """That of a broker with clients whose names are no better than they should be."""

    async def run() -> dict[str, Any]:
        async with (
            Broker(Settings(listen=("inproc:view",), name="b1")) as broker,
            stentor.connect("inproc:view", name="[bold]loud[/bold]") as loud,
        ):
            await loud.publish({"x": 1}, ack=True)
            async with loud.subscribe("x > 1", durable="desk-7"):
                return broker.status()

    return asyncio.run(run())


class TestView:
    def test_everything_is_there(self, status: dict[str, Any]) -> None:
        text = drawn(status_view(status))
        for part in (
            "b1  inproc:view",
            "Links\nnone",
            "Clients (1)",
            "Subscriptions (1)",
            "x > 1",
            "Durable subscriptions (1)",
            "desk-7",
            "published",
            "routing table",
            "1 notification, offsets 1 to 1",
            "in memory",
        ):
            assert part in text, part

    def test_names_are_text_and_not_markup(self, status: dict[str, Any]) -> None:
        assert "[bold]loud[/bold]" in drawn(status_view(status))

    def test_control_characters_are_shown_and_not_sent(self, status: dict[str, Any]) -> None:
        client = status["clients"][0] | {"name": "a\x1b]0;owned\x07b\u202e"}
        text = drawn(status_view(status | {"clients": [client]}))
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "a\\x1b]0;owned\\x07b\\x202e" in text

    def test_many_rows_are_cut_unless_all_are_asked_for(self, status: dict[str, Any]) -> None:
        clients = [status["clients"][0] | {"name": f"client-{n:03}"} for n in range(50)]
        text = drawn(status_view(status | {"clients": clients}, limit=ROWS))
        assert "Clients (50)" in text
        assert text.count("client-0") == 20
        assert "30 more; --all shows them" in text
        assert drawn(status_view(status | {"clients": clients}, limit=None)).count("client-0") == 50

    def test_rates_are_those_since_the_last_look(self, status: dict[str, Any]) -> None:
        now = status | {"counters": {"published": 1500, "delivered": 0}}
        before = status | {"counters": {"published": 500, "delivered": 0}}
        text = drawn(rates_table(now, before, 2.0))
        assert "per second, now" in text
        assert text.splitlines()[-1].split() == ["published", "1,500", "500"]

    def test_or_since_the_start(self, status: dict[str, Any]) -> None:
        text = drawn(
            rates_table(status | {"counters": {"published": 30}, "uptime": 20.0}, None, None)
        )
        assert text.splitlines()[-1].split() == ["published", "30", "1.5"]

    def test_how_long_commits_take_now(self, status: dict[str, Any]) -> None:
        now = status["journal"] | {"commits": 150, "commit_seconds": 3.0}
        before = status["journal"] | {"commits": 50, "commit_seconds": 2.0}
        shown = status_view(status | {"journal": now}, status | {"journal": before}, 1.0)
        assert "150, 0 failed; 10.0 ms each now" in drawn(shown)

    def test_a_link_that_is_down_says_why(self, status: dict[str, Any]) -> None:
        down = {"broker": None, "address": "b9:7411", "state": "down", "reason": "refused"}
        assert "down: refused" in drawn(status_view(status | {"links": [down]}))

    def test_it_fits_a_narrow_terminal(self, status: dict[str, Any]) -> None:
        assert max(map(len, drawn(status_view(status), width=60).splitlines())) <= 60


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (True, "yes"), (False, ""), (12345, "12,345"), ("é", "é"), ("a\nb", "a\\x0ab")],
)
def test_plain(value: object, text: str) -> None:
    assert plain(value) == text


def test_no_number_is_lost_on_the_way() -> None:
    assert plain(math.inf) == "inf"


class TestOpenDoors:
    @pytest.mark.parametrize("listen", ["127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/x"])
    def test_at_home_everybody_is_welcome(self, listen: str) -> None:
        assert open_doors(Settings(listen=(listen,))) == []

    @pytest.mark.parametrize("listen", ["0.0.0.0:1", ":1", "[::]:1", "b1.example:1", "10.0.0.1:1"])
    def test_elsewhere_that_is_worth_a_warning(self, listen: str) -> None:
        (warning,) = open_doors(Settings(listen=("127.0.0.1:2", listen)))
        assert listen in warning

    def test_unless_somebody_looks_who_comes(self) -> None:
        settings = Settings(listen=("0.0.0.0:1",), grants=(Grant("a", token="t"),))
        assert open_doors(settings) == []

    def test_certificates_guard_only_the_doors_where_they_are_asked_for(self) -> None:
        files = TlsFiles(Path("c"), Path("k"), Path("ca"))
        settings = Settings(listen=("tls://0.0.0.0:1", "0.0.0.0:2"), tls=files)
        (warning,) = open_doors(settings)
        assert "0.0.0.0:2" in warning
        assert len(open_doors(Settings(listen=("tls://0.0.0.0:1",)))) == 1
