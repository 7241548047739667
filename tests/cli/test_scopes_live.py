"""`stentor scopes` against brokers that run: the examples deployed, and changes of what stands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import stentor
import stentor.testing
from stentor.broker import Broker, Settings
from stentor.broker.settings import Grant
from stentor.cli.app import app
from stentor.errors import StentorError
from stentor.scopes.definition import Change, ScopeData

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TENANTS = """
DEFINE SCOPE tenant AS INTERFACES OUTPUT(Usage);
DEPLOY tenant AS acme ALL FROM * WHERE tenant = "acme" MAINTAIN ON CHANGE;
DEPLOY tenant AS beta ALL FROM * WHERE tenant = "beta" MAINTAIN ON CHANGE;
"""


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return run


@pytest.fixture(autouse=True)
def in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run beside the broker here, where no signals can be waited for."""
    monkeypatch.setattr("stentor.cli.running.run", lambda work: asyncio.run(work()))


class Stage:
    """A broker in this process, with clients."""

    def __init__(self, broker: Broker, clients: AsyncExitStack, tmp_path: Path) -> None:
        self.broker = broker
        self._clients = clients
        self._tmp_path = tmp_path
        self._buses: dict[str, Any] = {}
        self._inboxes: dict[str, Any] = {}
        self._ends = 0

    async def told(self, *words: str, fails: bool = False) -> str:
        """What a command of `stentor scopes` says."""
        found = await asyncio.to_thread(CliRunner().invoke, app, ["scopes", *words])
        assert bool(found.exit_code) == fails, found.output
        return found.output if not fails else str(found.exception or "") + found.output

    async def deploy(self, text: str) -> str:
        file = self._tmp_path / "graph.scopes"
        file.write_text(text)
        return await self.told("deploy", str(file), self.broker.address)

    async def change(self, *words: str, fails: bool = False) -> str:
        return await self.told(*words, self.broker.address, fails=fails)

    async def client(self, name: str, **attributes: Any) -> None:
        bus = stentor.connect(self.broker.address, name=name, attributes=attributes)
        self._buses[name] = await self._clients.enter_async_context(bus)
        self._inboxes[name] = await self._clients.enter_async_context(bus.subscribe(""))

    async def seen(self, publisher: str, type: str, **content: Any) -> dict[str, dict[str, Any]]:
        """Who but the publisher sees something that it publishes, and as what."""
        await self._buses[publisher].publish({"type": type, "x": 1, **content}, ack=True)
        found: dict[str, dict[str, Any]] = {}
        for name, inbox in self._inboxes.items():
            self._ends += 1
            await self._buses[name].publish({"x": 0, "end": self._ends, "of": name}, ack=True)
            async for n in inbox:
                if n.get("end") == self._ends and n.get("of") == name:
                    break
                if name != publisher and "end" not in n:
                    found[name] = dict(n)
        return found


@asynccontextmanager
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with (
        Broker(Settings(listen=("127.0.0.1:0",))) as broker,
        AsyncExitStack() as clients,
    ):
        yield Stage(broker, clients, tmp_path)


# -- the examples


@pytest.mark.spec("04/E10", "R-04.38")
@looped
async def test_the_stock_market_is_deployed(tmp_path: Path) -> None:
    async with stage(tmp_path) as live:
        await live.told("deploy", str(EXAMPLES / "market.scopes"), live.broker.address)
        for name in ("ME1", "DB1", "PC1", "PC2", "PC3", "newspaper", "stranger"):
            await live.client(name)
        quote = {"share": "SAP", "price": 9.5}
        assert set(await live.seen("ME1", "Quote", **quote)) == {"DB1", "PC3"}
        found = await live.seen("ME1", "Quote", **quote, executed=True)
        assert found["newspaper"] == {"type": "Trade", "share": "SAP", "price": 9.5}
        assert set(found) == {"DB1", "PC3", "newspaper"}
        assert set(await live.seen("ME1", "Accept", customer="C1")) == {"PC1"}
        assert set(await live.seen("PC3", "Order", market="M1")) == {"ME1", "DB1"}
        assert await live.seen("PC3", "Order", market="M2") == {}
        assert await live.seen("stranger", "Order", market="M1") == {}


@pytest.mark.spec("04/E10", "R-04.63", "04/T13")
def test_the_stock_market_with_quotes_that_leave_later_is_deployed(tmp_path: Path) -> None:
    """A quarter of an hour, during which the broker is started anew."""
    with stentor.testing.broker(data=tmp_path) as broker:
        file = str(EXAMPLES / "delayed.scopes")
        found = CliRunner().invoke(app, ["scopes", "deploy", file, broker.address])
        assert not found.exit_code, found.output
        maker, desk, home = (broker.connect(name=name) for name in ("ME1", "DB1", "PC1"))
        with desk.subscribe("share = 'IBM'"), home.subscribe("share = 'IBM'", durable="mine"):
            maker.publish({"type": "Quote", "share": "IBM", "price": 9.5}, ack=True)
            broker.assert_delivered({"price": 9.5}, to="DB1")
            broker.advance("14m")
            broker.stop()
            broker.start()
            broker.assert_nothing_delivered(to="PC1")
            broker.advance("1m")
            broker.assert_delivered({"price": 9.5}, to="PC1")


@pytest.mark.spec("R-04.13", "R-04.65")
@looped
async def test_tenants_are_deployed(tmp_path: Path) -> None:
    async with stage(tmp_path) as live:
        await live.told("deploy", str(EXAMPLES / "tenants.scopes"), live.broker.address)
        for tenant in ("acme", "globex"):
            await live.client(f"{tenant}-app", tenant=tenant)
            await live.client(f"{tenant}-1")
        await live.client("acme-2")
        await live.client("billing")
        turns = [set(await live.seen("acme-app", "Job", n=n)) for n in range(3)]
        assert turns == [{"acme-1"}, {"acme-2"}, {"acme-1"}]
        assert set(await live.seen("acme-1", "Done")) == {"acme-2", "acme-app"}
        found = await live.seen("globex-1", "Usage", bytes=5)
        assert found["billing"] == {"type": "Usage", "x": 1, "bytes": 5, "tenant": "globex"}
        assert not {"acme-app", "acme-1", "acme-2"} & set(found)
        found = await live.seen("billing", "Announcement", text="hello", secret=1)
        assert found["acme-app"] == {"type": "Announcement", "text": "hello"}


@looped
async def test_a_building_is_deployed(tmp_path: Path) -> None:
    async with stage(tmp_path) as live:
        await live.told("deploy", str(EXAMPLES / "building.scopes"), live.broker.address)
        for name in ("dashboard", "boiler", "gauge"):
            await live.client(name)
        await live.client("thermometer", sensor=True)
        found = await live.seen("thermometer", "Reading", celsius=27, room="attic")
        assert found["dashboard"]["storey"] == 2
        assert await live.seen("thermometer", "Reading", celsius=20, room="attic") == {}
        found = await live.seen("dashboard", "SetPoint", celsius=20)
        assert (found["boiler"]["fahrenheit"], "celsius" in found["boiler"]) == (68, False)
        assert found["thermometer"] == {"type": "SetPoint", "celsius": 20}
        assert (await live.seen("gauge", "Reading", fahrenheit=71))["dashboard"]["celsius"] == 22


# -- policies


@pytest.mark.spec("R-04.62", "R-04.67")
@looped
async def test_members_by_rule_are_asked_for_a_privilege(tmp_path: Path) -> None:
    async with stage(tmp_path) as live:
        members = 'ALL FROM * WHERE tenant = "acme" MAINTAIN ON CHANGE'
        await live.deploy(
            f"DEFINE SCOPE acme AS {members} POLICY INTERNAL require_privilege(2);DEPLOY acme"
        )
        await live.client("sayer", tenant="acme")
        await live.client("low", tenant="acme", privilege=1)
        await live.client("high", tenant="acme", privilege=3)
        await live.client("other", tenant="beta", privilege=3)
        assert set(await live.seen("sayer", "Note")) == {"high"}
        await live.change("alter", "ALTER SCOPE acme POLICY INTERNAL require_privilege(1)")
        assert set(await live.seen("sayer", "Note")) == {"low", "high"}
        await live.change("alter", "ALTER SCOPE acme DEL POLICY INTERNAL require_privilege(1)")
        assert set(await live.seen("high", "Note")) == {"low", "sayer"}
        await live.change("alter", "ALTER SCOPE acme POLICY INTERNAL require_privilege(9)")
        assert await live.seen("sayer", "Note") == {}


# -- what brokers do not do


@pytest.mark.parametrize(
    ("clause", "place", "reason"),
    [
        ("UPDATE ON join(*, *) DO CREATE NOW", "2:5", "UPDATE ON pub and con"),
        ("MAINTAIN EVERY 5", "2:5", "MAINTAIN ON CHANGE"),
        (
            'ALL FROM * WHERE tenant = "x" MAINTAIN ON CHANGE\n    POLICY DELIVERY only(bob)',
            "3:5",
            "name it in the graph",
        ),
    ],
)
def test_what_brokers_do_not_do_is_told_with_its_place(tmp_path, clause, place, reason) -> None:
    file = tmp_path / "graph.scopes"
    file.write_text(f"DEFINE SCOPE a AS\n    {clause};\nDEPLOY a;\n")
    found = CliRunner().invoke(app, ["scopes", "deploy", str(file), "127.0.0.1:1"])
    assert found.exit_code
    words = str(found.exception or "") + found.output
    assert f"{file}:{place}: " in words
    assert reason in words


# -- scopes that change themselves


@pytest.mark.spec("R-05.38")
@looped
async def test_a_session_begins_and_grows_while_events_flow(tmp_path: Path) -> None:
    async with stage(tmp_path) as live:
        await live.deploy("""
            DEFINE SCOPE floor AS ALL FROM * WHERE room = "floor" MAINTAIN ON CHANGE; DEPLOY floor;
            DEFINE SCOPE session AS SUPERSCOPE ALL FROM floor POLICY PUBLISHING none
                UPDATE ON pub(n: Start) DO CREATE NOW INCLUDE COMPONENT
                UPDATE ON con(n: 1) IF n.x < 3 DO (ALTER SCOPE SELF ADD ALL FROM TRIGGER)""")
        for name in ("ann", "bob"):
            await live.client(name, room="floor")
        await live.client("eve", room="cellar")
        shown = json.loads(await live.change("show", "--json"))
        assert [each["scope"] for each in shown["scopes"]] == ["floor"]
        assert set(await live.seen("ann", "Start")) == {"bob"}

        async def members() -> list[str]:
            while True:
                shown = json.loads(await live.change("show", "--json"))
                for each in shown["scopes"]:
                    if each["scope"] == "session" and len(each["members"]) > 1:
                        return list(each["members"])

        assert await members() == ["ann", "bob"]
        assert "rules of session\n  DEFINE SCOPE session AS\n" in await live.change("show")
        # Rules stay with brokers, whatever else is changed.
        await live.change("alter", "DROP SCOPE session")
        await live.seen("bob", "Start")
        assert await members() == ["ann", "bob"]
        await live.change("alter", "DROP SCOPE session; DROP SCOPE definitions::session")
        await live.seen("bob", "Start")
        assert "session" not in await live.change("show")
        told = await live.change("alter", "DROP SCOPE definitions::session", fails=True)
        assert "no rules" in told
        # They can be given to a graph that stands as well.
        await live.change(
            "alter",
            "DEFINE SCOPE session AS SUPERSCOPE ALL FROM floor "
            "UPDATE ON pub(n: Start) DO CREATE NOW INCLUDE COMPONENT "
            "UPDATE ON con(n: 1) DO (ALTER SCOPE SELF ADD ALL FROM TRIGGER)",
        )
        await live.seen("bob", "Start")
        assert await members() == ["ann", "bob"]


# -- changes of what stands


@pytest.mark.spec("R-05.40", "05/P9")
@looped
async def test_members_come_and_go_by_command(tmp_path: Path) -> None:
    async with stage(tmp_path) as live:
        await live.deploy(TENANTS)
        await live.client("ann", tenant="acme")
        await live.client("bob", tenant="acme")
        await live.client("eve", tenant="beta")
        await live.client("auditor")
        assert set(await live.seen("ann", "Note")) == {"bob"}
        told = await live.change("join", "auditor", "acme")
        assert "epoch" in told
        assert "the graph now names 'auditor'" in told
        assert set(await live.seen("ann", "Note")) == {"bob", "auditor"}
        assert "already" in await live.change("join", "auditor", "acme", fails=True)
        left = json.loads(await live.change("leave", "auditor", "acme", "--json"))
        assert (left["broker"], left["named"]) == (live.broker.name, [])
        assert set(await live.seen("ann", "Note")) == {"bob"}
        assert "not a member" in await live.change("leave", "auditor", "acme", fails=True)
        assert "nowhere" in await live.change("join", "auditor", "nowhere", fails=True)
        # Scopes as well, and what goes out then is what the interface says.
        await live.change("alter", "DEFINE SCOPE all AS ALL FROM auditor; DEPLOY all")
        await live.change("join", "acme", "all")
        assert set(await live.seen("ann", "Note")) == {"bob"}
        assert set(await live.seen("ann", "Usage")) == {"bob", "auditor"}
        assert "cycles" in await live.change("join", "all", "acme", fails=True)


@pytest.mark.spec("R-05.40", "05/P9")
@looped
async def test_scopes_are_altered_by_statements(tmp_path: Path) -> None:
    async with stage(tmp_path) as live:
        await live.deploy(TENANTS + "DEFINE SCOPE all AS ALL FROM auditor, acme; DEPLOY all")
        await live.client("ann", tenant="acme")
        await live.client("eve", tenant="beta")
        await live.client("auditor")

        async def alter(text: str, *, fails: bool = False) -> str:
            return await live.change("alter", text, fails=fails)

        assert await live.seen("ann", "Note") == {}
        await alter("ALTER SCOPE acme ADD INTERFACES OUTPUT(Note)")
        assert set(await live.seen("ann", "Note")) == {"auditor"}
        assert set(await live.seen("ann", "Usage")) == {"auditor"}
        await alter("ALTER SCOPE acme DEL INTERFACES OUTPUT(Usage)")
        assert await live.seen("ann", "Usage") == {}
        told = await alter("ALTER SCOPE acme DEL INTERFACES OUTPUT(Usage)", fails=True)
        assert "does not have" in told
        await alter('ALTER SCOPE beta ADD ALL FROM * WHERE tenant = "acme"')
        assert set(await live.seen("ann", "Draft")) == {"eve"}
        await alter('ALTER SCOPE beta DEL ALL FROM * WHERE tenant = "acme"')
        assert await live.seen("ann", "Draft") == {}
        await alter("ALTER SCOPE acme MAP OUTWARD { DROP x } MAP INWARD { DROP x }")
        assert await live.seen("ann", "Note") == {"auditor": {"type": "Note"}}
        before = live.broker.core.scopes.entry.epoch
        # Nothing of what fails is carried out.
        told = await alter("DROP SCOPE beta; ALTER SCOPE nobody INTERFACES OUTPUT(1)", fails=True)
        assert "line 1" in told
        assert "nobody" in told
        told = await alter("ALTER SCOPE acme UPDATE ON pub(n: 1) DO CREATE NOW", fails=True)
        assert "line 1" in told
        assert live.broker.core.scopes.entry.epoch == before
        await alter("DROP SCOPE acme")
        shown = await live.change("show")
        assert "\nacme" not in shown
        assert "\nbeta\n" in shown


@looped
async def test_a_change_for_an_older_graph_is_refused(tmp_path: Path) -> None:
    async with stage(tmp_path) as live:
        await live.deploy(TENANTS)
        scoping, entry = live.broker.core.scoping, live.broker.core.scopes.entry
        epoch = entry.epoch
        answers: list[StentorError | None] = []
        for name in ("one", "two"):  # both have looked at the same graph
            scoping.deploy(None, answers.append, change=Change([ScopeData(name)]), after=epoch)
        live.broker.changed()
        await live.change("join", "ann", "acme")
        assert answers[0] is None
        assert "has changed since" in str(answers[1])
        assert ("scope one" in entry.records, "scope two" in entry.records) == (True, False)


@pytest.mark.spec("R-05.14")
@looped
async def test_who_may_not_deploy_may_not_change_anything(tmp_path: Path) -> None:
    grants = (Grant("admin", token="a", scopes=True), Grant("operator", token="o", operate=True))
    async with Broker(Settings(listen=("127.0.0.1:0",), grants=grants)) as broker:
        file = tmp_path / "graph.scopes"
        file.write_text(TENANTS)

        async def told(*words: str, token: str) -> tuple[int, str]:
            line = ["scopes", *words, broker.address, "--token", token]
            found = await asyncio.to_thread(CliRunner().invoke, app, line)
            return found.exit_code, str(found.exception or "") + found.output

        assert (await told("deploy", str(file), token="a"))[0] == 0
        before = broker.core.scopes.entry.epoch
        for words in (
            ("join", "spy", "acme"),
            ("leave", "spy", "acme"),
            ("alter", "DROP SCOPE acme"),
        ):
            code, said = await told(*words, token="o")
            assert code
            assert "may not change" in said or words[0] == "leave"
        assert broker.core.scopes.entry.epoch == before
        assert (await told("join", "spy", "acme", token="a"))[0] == 0
