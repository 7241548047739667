"""The examples do what they say: each runs as its own process, as a person would start it."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from stentor.testing import TestBroker

FOLDER = Path(__file__).resolve().parents[2] / "examples"


@contextmanager
def program(*words: str, says: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """An example that runs, and has said that it is ready."""
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=FOLDER,
        env={**os.environ, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert says in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_orders_are_billed_once_or_set_aside(stentor_broker: TestBroker) -> None:
    bus = stentor_broker.connect()
    good = {"type": "Order", "order": 1, "lines": [{"sku": "A-17", "quantity": 2}]}
    bad = {"type": "Order", "order": 2, "lines": [{"sku": "unknown", "quantity": 1}]}
    with bus.subscribe("type in ('Bill', 'DeadLetter')") as seen:
        with program("order_service.py", stentor_broker.address, says="billing"):
            bus.publish(good, ack=True)
            assert seen.get(30)["total"] == 25.0
            bus.publish(bad, ack=True)
            letter = seen.get(30)
            assert (letter["attempts"], letter["event.order"]) == (3, 2)
            assert "unknown" in letter["cause"]
        # It was killed. What is ordered meanwhile is billed by the next one, and nothing again.
        bus.publish({**good, "order": 3}, ack=True)
        # It may bill what waited before it says that it bills.
        with program("order_service.py", stentor_broker.address, says="order"):
            assert seen.get(30)["order"] == 3
        stentor_broker.settle()
        bills = [n["order"] for n in stentor_broker.published if n.get("type") == "Bill"]
        assert bills == [1, 3]


def test_the_bot_tells_whom_it_concerns(stentor_broker: TestBroker) -> None:
    bus = stentor_broker.connect()
    with (
        program("alerting_bot.py", stentor_broker.address, says="watching"),
        bus.subscribe("exists told") as told,
    ):
        bus.publish({"watch": "temperature > 30", "who": "ann"})
        assert told.get(30)["text"] == "watching temperature > 30"
        bus.publish({"watch": "temperature >", "who": "bob"})
        assert "expected" in told.get(30)["text"]
        bus.publish_many([{"room": 6, "temperature": 29}, {"room": 7, "temperature": 31}])
        n = told.get(30)
        assert (n["told"], "'room': 7" in n["text"]) == ("ann", True)
        bus.publish_many([{"unwatch": "ann"}, {"room": 8, "temperature": 32}], ack=True)
        stentor_broker.settle()
        stentor_broker.assert_nothing_delivered("exists told and text contains '''room'': 8'")


def test_workers_share_and_go_on_for_each_other(stentor_broker: TestBroker) -> None:
    bus = stentor_broker.connect()
    address = stentor_broker.address
    with bus.subscribe("exists done") as done:
        with (
            program("work_queue.py", address, says="waiting"),
            program("work_queue.py", address, says="waiting"),
        ):
            bus.publish_many({"job": "resize", "file": f"{i}.png"} for i in range(20))
            seen = [done.get(30) for _ in range(20)]
            assert sorted(n["done"] for n in seen) == sorted(f"{i}.png" for i in range(20))
            assert len({n["worker"] for n in seen}) == 2
        bus.publish({"job": "resize", "file": "later.png"}, ack=True)
        with program("work_queue.py", address, says="waiting"):
            # Jobs wait when nobody works; what workers that are killed have not confirmed comes
            # again.
            while done.get(30)["done"] != "later.png":
                pass


def test_prices_are_asked_for(stentor_broker: TestBroker) -> None:
    address = f"--broker={stentor_broker.address}"

    def asked(symbol: str) -> str:
        command = [sys.executable, "price_service.py", symbol, address]
        return subprocess.run(
            command, cwd=FOLDER, stdout=subprocess.PIPE, text=True, timeout=60, check=True
        ).stdout.strip()

    assert "nobody serves prices" in asked("IBM")
    with program("price_service.py", address, says="serving"):
        assert asked("IBM") == "120.5"
        assert asked("XYZ") == "the service failed: KeyError: 'XYZ'"


def test_a_browser_sees_what_it_asked_for(stentor_broker: TestBroker) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "web_app:app", "--port", str(port)],
        cwd=FOLDER,
        env={**os.environ, "BROKER": stentor_broker.address},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert any("Uvicorn running" in line for line in process.stderr)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as web:
            refused = web.get("/events", params={"filter": "total >"})
            assert (refused.status_code, "column" in refused.text) == (400, True)
            never = web.get("/events", params={"filter": "total > 5 and total < 3"})
            assert (never.status_code, "contradicts" in never.text) == (400, True)
            with web.stream("GET", "/events", params={"filter": "total > 100"}) as stream:
                lines = stream.iter_lines()
                assert next(lines) == ": subscribed"
                ids = [
                    web.post("/orders", json={"customer": "C-4", "total": total}).json()["id"]
                    for total in (99, 120)
                ]
                data = [line for line in (next(lines) for _ in range(3)) if line]
                assert data[0] == f"id: {ids[1]}"
                assert json.loads(data[1].removeprefix("data: "))["total"] == 120.0
            assert web.post("/orders", json={"customer": "C-4"}).status_code == 422
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_the_notebook_runs(stentor_broker: TestBroker) -> None:
    path = FOLDER / "first_look.ipynb"
    notebook = json.loads(path.read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "notebook"}
    shown: list[Any] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []  # what it showed somebody once is not of the source
        text = "".join(cell["source"]).replace("127.0.0.1:7411", stentor_broker.address)
        code = ast.parse(text)
        last = code.body.pop() if isinstance(code.body[-1], ast.Expr) else None
        exec(compile(code, str(path), "exec", dont_inherit=True), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), str(path), "eval"), names)
            html = getattr(value, "_repr_html_", None)
            shown.append(value if html is None else html())
    assert shown[1:3] == [80, [126, 127, 128, 129]]
    assert "connecting" in shown[0]
    assert "or <code>" in shown[3]
    assert shown[4] == (False, True)
    assert (shown[5].room, "closed" in shown[6]) == (7, True)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_each_is_in_the_list_and_short(path: Path) -> None:
    assert f"[{path.name}]({path.name})" in (FOLDER / "README.md").read_text("utf-8")
    assert len(path.read_text("utf-8").splitlines()) <= 65
