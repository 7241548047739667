"""A scope graph in brokers that are processes: deployed, under traffic, through SIGKILL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from overlay_processes import Overlay, until

import stentor

GRAPH = """
DEFINE SCOPE acme AS ALL FROM * WHERE tenant = "acme" MAINTAIN ON CHANGE;
DEFINE SCOPE beta AS ALL FROM * WHERE tenant = "beta" MAINTAIN ON CHANGE;
DEPLOY acme;
DEPLOY beta;
"""


def command(*arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "stentor", "scopes", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.slow
@pytest.mark.spec("R-05.02", "R-05.14", "R-05.18")
def test_a_graph_survives_what_kills_its_brokers(overlay: Overlay, tmp_path: Path) -> None:
    asyncio.run(_survives(overlay, tmp_path))


async def _survives(overlay: Overlay, tmp_path: Path) -> None:
    names = overlay.line(3)
    await overlay.linked()
    first, middle, last = (overlay[name] for name in names)
    file = tmp_path / "tenants.scopes"
    file.write_text(GRAPH)
    told = await asyncio.to_thread(command, "deploy", str(file), first.address)
    assert names[0] in told

    async def same() -> bool:
        epochs = {(await broker.ask("scopes"))["epoch"] for broker in (first, middle, last)}
        return len(epochs) == 1 and epochs != {0}

    await until(same, "the same graph everywhere")

    def client(name: str, at: Any, tenant: str) -> Any:
        return stentor.connect(at.address, name=name, attributes={"tenant": tenant})

    async with (
        client("vault", first, "acme") as vault,
        client("insider", last, "acme") as insider,
        client("spy", middle, "beta") as spy,
        insider.subscribe("exists n") as own,
        spy.subscribe("exists n") as spying,
    ):
        for n in range(20):
            await vault.publish({"n": n}, ack=True)
        middle.kill()
        first.kill()
        middle.restart()
        first.restart()
        await overlay.linked()
        for n in range(20, 40):
            await vault.publish({"n": n}, ack=True)
        assert sorted([(await anext(own))["n"] for _ in range(40)]) == list(range(40))
        await until(same, "the same graph everywhere")
        # By another broker than the one that orders changes, under traffic.
        file.write_text(GRAPH.replace('tenant = "beta"', 'tenant = "beta" OR tenant = "acme"'))
        publishing = asyncio.create_task(
            vault.publish_many(({"n": n} for n in range(40, 60)), True)
        )
        told = await asyncio.to_thread(command, "deploy", str(file), last.address)
        assert names[0] in told
        await publishing
        for n in range(60, 70):
            await vault.publish({"n": n}, ack=True)
        assert sorted([(await anext(own))["n"] for _ in range(30)]) == list(range(40, 70))
        await spy.publish({"n": -1}, ack=True)
        shown = await asyncio.to_thread(command, "show", middle.address)
        assert "insider" in shown
        assert "spy" in shown
        seen = []
        while (n := (await anext(spying))["n"]) != -1:
            seen.append(n)
        # Since the change, what acme publishes goes to beta as well, and nothing from before does.
        assert seen == sorted(seen)
        assert set(range(60, 70)) <= set(seen) <= set(range(40, 70))
