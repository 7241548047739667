"""What a component may try in order to see across the boundary of a scope, and sees nothing.

The tenants `acme` and `beta` share a broker. `vault` and `insider` are components of acme, `spy` of
beta; whatever spy tries, `insider` has the secret and spy has not.
"""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from overlay import Overlay

import stentor
from stentor.broker import Broker, Settings
from stentor.broker.settings import Grant
from stentor.client.direct import Direct
from stentor.composite import Pattern
from stentor.errors import (
    AccessDenied,
    InvalidNotification,
    NoReply,
    NotPermitted,
    StentorError,
)
from stentor.filters import Filter
from stentor.model import Notification, NotificationId, encode
from stentor.model.stamp import Stamp
from stentor.node.scopes import version_of
from stentor.protocol import messages as m
from stentor.scopes import Kind, MembershipRule, ScopeGraph
from stentor.scopes.definition import Change, records_of
from stentor.scopes.definition import encode as encode_change
from stentor.scopes.policies import Delay, RequirePrivilege, TopK

HIDDEN = pytest.mark.spec("R-04.13", "04/T17", "04/P16", "R-05.14")
pytestmark = HIDDEN
SECRET = {"secret": 42, "x": 1}


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a loop of its own; it may take a while on a busy machine, but not for ever."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 120))

    return run


def tenants(*names: str) -> ScopeGraph:
    graph = ScopeGraph()
    for name in names:
        graph.create_scope(name)
        graph.add_rule(MembershipRule(name, Filter(f"tenant = '{name}'")))
    return graph


async def deploy(broker: Broker, graph: ScopeGraph) -> None:
    done: asyncio.Future[StentorError | None] = asyncio.get_running_loop().create_future()
    broker.core.scoping.deploy(records_of(graph), done.set_result)
    broker.changed()
    assert await done is None


async def directly(broker: Broker, work: Callable[[Direct], Any], **options: Any) -> Any:
    """What a client does that reads journals, in a thread of its own."""

    def run() -> Any:
        with Direct(broker.address, **options) as direct:
            return work(direct)

    return await asyncio.to_thread(run)


def everything(direct: Direct, filter: str = "") -> list[bytes]:
    """All that a client can read in the journals of a broker."""
    (stream,) = direct.streams()
    found = direct.read(stream.stream, 1, stream.head, filter)
    return [item for stretch in found for item in stretch.items]


class World:
    """The broker and its three clients."""

    def __init__(self, broker: Broker, vault: Any, insider: Any, spy: Any) -> None:
        self.broker, self.vault, self.insider, self.spy = broker, vault, insider, spy

    async def leak(self, spying: Any, *, known: Any = None, **parts: Any) -> list[Notification]:
        """What spy has got when insider has the secret, and something of its own has come since."""
        known = known or self.insider.subscribe("exists secret")
        async with known:
            await self.vault.publish(SECRET, ack=not parts.get("volatile"), **parts)
            assert (await anext(known))["secret"] == 42
        return await self.seen(spying)

    def refused(self, items: list[bytes]) -> bool:
        """Whether the broker refuses what spy writes on the wire by hand."""
        core = self.broker.core
        (session,) = [s for s in core.sessions.values() if s.name == "spy"]
        before = core.counters["refused"]
        core.heard(session.id, m.Publish(1_000_000, items))
        return core.counters["refused"] == before + len(items)

    async def seen(self, spying: Any) -> list[Notification]:
        """All that comes before what spy publishes itself now."""
        await self.spy.publish({"x": 0, "secret": 0, "end": True}, ack=True)
        found = []
        async for n in spying:
            if n.get("end"):
                return found
            found.append(n)
        return found


@asynccontextmanager
async def world(settings: Settings | None = None, **options: Any) -> AsyncIterator[World]:
    async with Broker(settings or Settings(listen=("127.0.0.1:0",))) as broker:
        await deploy(broker, tenants("acme", "beta"))

        def client(name: str, tenant: str) -> Any:
            return stentor.connect(broker.address, name=name, attributes={"tenant": tenant})

        async with client("vault", "acme") as vault, client("insider", "acme") as insider:
            async with client("spy", "beta") as spy:
                yield World(broker, vault, insider, spy)


# -- filters


@pytest.mark.parametrize(
    "filter",
    ["", "exists secret", "secret = 42", "_producer = 'vault'", "secret > 0 or x < 9", "x != 99"],
)
@looped
async def test_by_a_filter_that_matches(filter: str) -> None:
    filter = f"({filter}) or exists end" if filter else ""
    async with world() as w, w.spy.subscribe(filter) as spying:
        assert await w.leak(spying) == []


@pytest.mark.parametrize(
    "filter",
    [
        "_scopes has '4:acme rule'",
        "exists secret and not exists _scopes",
        "exists secret or _scope_epoch > 0",
    ],
)
@looped
async def test_by_a_filter_on_what_is_for_brokers(filter: str) -> None:
    async with world() as w:
        with pytest.raises(NotPermitted, match="for brokers alone"):
            async with w.spy.subscribe(filter):
                pass
        async with w.spy.inbox("exists secret") as inbox:
            with pytest.raises(NotPermitted, match="for brokers alone"):
                await inbox.subscribe(filter)


@looped
async def test_by_an_inbox_that_grows() -> None:
    async with world() as w, w.spy.inbox("x = 77") as spying:
        await spying.subscribe("exists secret")
        await spying.subscribe("exists end")
        assert await w.leak(spying) == []


@looped
async def test_by_type_subject_and_channel() -> None:
    async with world() as w, w.spy.subscribe("isa Secret or exists end") as spying:
        assert await w.leak(spying, type="Secret", subject="a/b", channel="c") == []


# -- what is published


@looped
async def test_by_attributes_of_a_notification() -> None:
    """What an event says of tenants and scopes means nothing."""
    async with world() as w, w.insider.subscribe("exists tenant") as listening:
        await w.spy.publish({"tenant": "acme", "scope": "acme", "x": 1}, ack=True)
        await w.vault.publish({"tenant": "mine"}, ack=True)
        assert dict(await anext(listening)) == {"tenant": "mine"}


@looped
async def test_by_reserved_names() -> None:
    with pytest.raises(InvalidNotification):
        Notification({"_scopes": ("4:acme rule",)})
    async with world() as w:
        with pytest.raises(InvalidNotification):
            await w.spy.publish({"_scope_epoch": 1, "x": 1})


@looped
async def test_by_a_stamp_of_its_own() -> None:
    """Into another scope, and for whoever reads stamps."""
    async with world() as w, w.insider.subscribe("x = 5 or x = 6") as listening:
        n = Notification({"x": 5}, id=NotificationId("spy", 1, 1))
        stamp = Stamp(w.broker.core.scopes.entry.epoch, "vault", ("4:acme rule", "@insider"))
        assert w.refused([stamp.prefix + encode(n)])
        await w.vault.publish({"x": 6}, ack=True)
        assert (await anext(listening))["x"] == 6


@pytest.mark.parametrize("producer", ["vault", "vault@1@", "spy@1@"])
@looped
async def test_by_ids_of_somebody_else(producer: str) -> None:
    """Nobody's publication can be made to look like a repeat."""
    async with world() as w:
        n = Notification({"x": 5}, id=NotificationId(producer, 1, 1))
        assert w.refused([encode(n)])


# -- the past


@looped
async def test_by_history() -> None:
    async with world() as w:
        await w.vault.publish(SECRET, ack=True)
        async with w.spy.subscribe("", since="earliest") as spying:
            assert await w.seen(spying) == []
        async with w.insider.subscribe("", since="earliest") as reading:
            assert (await anext(reading))["secret"] == 42


@looped
async def test_by_history_from_before_it_was_a_member() -> None:
    """Who joins later sees what is published from then on, also when it asks for the past."""
    async with world() as w:
        await w.vault.publish(SECRET, ack=True)
        graph = tenants("acme", "beta")
        graph.add_rule(MembershipRule("acme", Filter("tenant = 'beta'"), "guests"))
        await deploy(w.broker, graph)
        async with w.spy.subscribe("", since="earliest") as spying:
            await w.vault.publish({"x": 2}, ack=True)
            assert dict(await anext(spying)) == {"x": 2}


@looped
async def test_by_history_from_when_it_was_a_member_no_longer() -> None:
    async with world() as w:
        await w.vault.publish({"x": 1}, ack=True)
        await deploy(w.broker, tenants("beta"))
        await deploy(w.broker, tenants("acme", "beta"))
        await deploy(w.broker, tenants("beta"))
        await w.vault.publish(SECRET, ack=True)  # vault is in no scope, and insider neither
        async with w.spy.subscribe("", since="earliest") as spying:
            assert await w.seen(spying) == []
        async with w.insider.subscribe("", since="earliest") as reading:
            assert [(await anext(reading))["x"] for _ in range(2)] == [1, 1]


@looped
async def test_by_reading_journals() -> None:
    async with world() as w:
        await w.vault.publish(SECRET, ack=True)
        assert await directly(w.broker, everything) == []
        assert await directly(w.broker, lambda d: everything(d, "exists secret")) == []
        with pytest.raises(NotPermitted):
            await directly(w.broker, lambda d: everything(d, "exists _scopes"))


@looped
async def test_by_the_name_of_a_durable_subscription() -> None:
    async with world() as w:
        async with w.insider.subscribe("exists secret", durable="box") as own:
            await w.vault.publish(SECRET, ack=True)
            assert (await anext(own))["secret"] == 42
        async with w.spy.subscribe("exists secret", durable="box", since="earliest") as spying:
            assert await w.leak(spying) == []


@looped
async def test_by_positions() -> None:
    """A client that claims to have read nothing yet, or anything."""
    async with world() as w:
        await w.vault.publish(SECRET, ack=True)
        stream = w.broker.stream
        (session,) = [s for s in w.broker.core.sessions.values() if s.name == "spy"]
        for number, position in ((900, 0), (901, 10**9)):
            ask = m.Subscribe(number, "", 100, positions={stream: position})
            w.broker.core.heard(session.id, ask)
            w.broker.changed()
        await asyncio.sleep(0)
        feeds = [w.broker.core.subscriptions[f"spy@{session.id}/{n}"].feed for n in (900, 901)]
        while not all(feed.settled for feed in feeds):
            await asyncio.sleep(0.01)
        assert [feed.delivered + len(feed) for feed in feeds] == [0, 0]


# -- what is shared


@looped
async def test_by_the_name_of_a_group() -> None:
    async with world() as w:
        async with w.insider.subscribe("exists secret", group="workers") as own:
            async with w.spy.subscribe("exists secret", group="workers") as spying:
                for _ in range(4):
                    await w.vault.publish(SECRET, ack=True)
                for _ in range(4):
                    assert (await anext(own))["secret"] == 42
                assert await w.seen(spying) == []


@looped
async def test_by_a_durable_group() -> None:
    async with world() as w:
        async with w.insider.subscribe("exists secret", group="g", durable="gd") as own:
            await w.vault.publish(SECRET, ack=True)
            assert (await anext(own))["secret"] == 42
            with pytest.raises(StentorError):
                async with w.spy.subscribe("exists secret", group="g", durable="gd"):
                    pass


@looped
async def test_by_last_values() -> None:
    """Neither are they seen, nor can those of others be replaced."""
    async with world() as w:
        await w.vault.publish(SECRET, ack=True, retain="key")
        async with w.spy.subscribe("", retained=True) as spying:
            assert await w.seen(spying) == []
        await w.spy.publish({"x": 9}, ack=True, retain="key")
        async with w.insider.subscribe("", retained=True) as reading:
            assert (await anext(reading))["secret"] == 42


@looped
async def test_by_offers_and_demand() -> None:
    async with world() as w:
        async with w.vault.advertise("exists secret"):
            with pytest.raises(NotPermitted, match="what others offer"):
                await w.spy.offers()
            told: list[Any] = []
            async with w.spy.advertise("", demand=lambda offer: told.append(offer.filters)):
                async with w.insider.subscribe("secret = 1"):
                    await w.spy.publish({"x": 1}, ack=True)
            assert told == []


@looped
async def test_by_demand_that_was_asked_for_before() -> None:
    async with Broker(Settings(listen=("127.0.0.1:0",))) as broker:
        async with stentor.connect(broker.address, name="spy") as spy:
            told: list[Any] = []
            async with spy.advertise("", demand=lambda offer: told.append(offer.filters)):
                await deploy(broker, tenants("acme"))
                told.clear()
                async with stentor.connect(broker.address, attributes={"tenant": "acme"}) as bus:
                    async with bus.subscribe("secret = 1"):
                        await spy.publish({"x": 1}, ack=True)
                assert told == []


# -- other ways


@looped
async def test_by_a_request() -> None:
    async with world() as w:

        @w.insider.reply("exists question")
        async def answer(event: Any) -> dict[str, int]:
            return {"secret": 42}

        await w.insider.ready()
        reply = await w.vault.request({"question": 1})
        assert reply["secret"] == 42
        with pytest.raises(NoReply):
            await w.spy.request({"question": 1}, timeout=0.3)


@looped
async def test_by_volatile_traffic() -> None:
    async with world() as w, w.spy.subscribe("exists secret", volatile=True) as spying:
        assert await w.leak(spying, volatile=True) == []


@looped
async def test_by_a_transaction() -> None:
    async with world() as w, w.spy.subscribe("exists secret") as spying:
        async with w.insider.subscribe("exists secret") as own:
            async with w.vault.transaction() as transaction:
                await transaction.publish(SECRET)
            assert (await anext(own))["secret"] == 42
        assert await w.seen(spying) == []


@looped
async def test_by_what_is_delivered_later() -> None:
    async with world() as w, w.spy.subscribe("exists secret") as spying:
        assert await w.leak(spying, deliver_at=0.2) == []


@pytest.mark.parametrize("volatile", [False, True])
@looped
async def test_by_what_waits_at_a_scope(volatile: bool) -> None:
    graph = tenants("acme", "beta")
    graph.set_policy("acme", Kind.INTERNAL, Delay(0.2))
    async with world() as w, w.spy.subscribe("") as spying:
        await deploy(w.broker, graph)
        assert await w.leak(spying, volatile=volatile) == []


@looped
async def test_by_cancelling_what_waits_at_a_scope() -> None:
    graph = tenants("acme", "beta")
    graph.set_policy("acme", Kind.INTERNAL, Delay(1.0))
    async with world() as w, w.insider.subscribe("exists secret") as known:
        await deploy(w.broker, graph)
        id = await w.vault.publish(SECRET, ack=True)
        for each in (id, version_of(id, 1)):
            with suppress(StentorError):
                assert not await w.spy.cancel(each)
        assert (await anext(known))["secret"] == 42


@looped
async def test_by_history_without_the_privilege() -> None:
    graph = tenants("acme", "beta")
    graph.set_policy("acme", Kind.INTERNAL, RequirePrivilege(2))
    async with world() as w:
        await deploy(w.broker, graph)
        address, acme = w.broker.address, {"tenant": "acme"}
        async with (
            stentor.connect(address, name="boss", attributes={**acme, "privilege": 2}) as boss,
            stentor.connect(address, name="clerk", attributes={**acme, "privilege": 1}) as clerk,
            boss.subscribe("exists secret") as known,
            clerk.subscribe("", since="earliest") as spying,
        ):
            await w.vault.publish(SECRET, ack=True)
            assert (await anext(known))["secret"] == 42
            async with clerk.subscribe("exists secret", since="earliest") as again:
                await clerk.publish({"end": True, "secret": 0}, ack=True)
                assert (await anext(again))["secret"] == 0
            assert (await anext(spying))["secret"] == 0


@looped
async def test_by_dead_letters() -> None:
    async with world() as w, w.spy.subscribe("isa DeadLetter or exists end") as spying:
        async with w.insider.subscribe("isa DeadLetter") as letters:
            terms: Any = {"settle": True, "retry": stentor.Retry(attempts=1), "dead_letter": True}
            async with w.insider.subscribe("exists secret", durable="box", **terms) as box:
                await w.vault.publish(SECRET, ack=True)
                await (await anext(box)).nack()
                assert (await anext(letters))["event.secret"] == 42
        assert await w.seen(spying) == []


@looped
async def test_by_a_detector() -> None:
    """Equal patterns of clients in different scopes are not detected together."""
    pattern = Pattern("A", events={"A": "exists secret"})
    async with world() as w, w.insider.detect(pattern) as own, w.spy.detect(pattern) as spying:
        await w.vault.publish(SECRET, ack=True)
        found = await anext(own)
        assert found["A.secret"] == 42, "it has seen what it is about"
        await w.spy.publish({"secret": 0}, ack=True)
        seen = await anext(spying)
        assert seen["A.secret"] == 0
        assert seen.id != found.id


@looped
async def test_by_a_pattern_over_what_others_detect() -> None:
    pattern = Pattern("A", events={"A": "exists secret"})
    async with world() as w, w.insider.detect(pattern) as own:
        async with w.spy.subscribe("isa composite or exists end") as spying:
            await w.vault.publish(SECRET, ack=True)
            await anext(own)
            assert await w.seen(spying) == []


def choosing() -> ScopeGraph:
    """A graph in which one member of acme is chosen, by name."""
    graph = tenants("acme", "beta")
    graph.set_policy("acme", Kind.INTERNAL, TopK("rank", 1))
    return graph


@looped
async def test_by_the_place_of_whoever_is_chosen() -> None:
    """Another member of the scope sees nothing of it, whatever it is called."""
    async with world() as w:
        await deploy(w.broker, choosing())
        address, acme = w.broker.address, {"tenant": "acme"}
        async with (
            stentor.connect(address, name="best", attributes={**acme, "rank": 9}) as best,
            stentor.connect(address, name="rule=best", attributes=acme) as spy,
            best.subscribe("exists secret") as known,
            spy.subscribe("exists secret") as spying,
        ):
            await w.vault.publish(SECRET, ack=True)
            assert (await anext(known))["secret"] == 42
            await spy.publish({"secret": 0}, ack=True)
            assert (await anext(spying))["secret"] == 0
            async with spy.subscribe("exists secret", since="earliest") as again:
                assert (await anext(again))["secret"] == 0


@looped
async def test_by_the_last_value_that_was_for_whoever_was_chosen() -> None:
    async with world() as w:
        await deploy(w.broker, choosing())
        address, attributes = w.broker.address, {"tenant": "acme", "rank": 9}
        async with stentor.connect(address, name="best", attributes=attributes) as best:
            async with best.subscribe("exists secret") as known:
                await w.vault.publish(SECRET, ack=True, retain="key")
                assert (await anext(known))["secret"] == 42
        await deploy(w.broker, tenants("acme", "beta"))
        async with w.insider.subscribe("", retained=True) as spying:
            await w.insider.publish({"x": 1}, ack=True)
            assert dict(await anext(spying)) == {"x": 1}


@looped
async def test_by_history_of_what_others_were_chosen_for() -> None:
    """Once nobody chooses any more, what was published before is still for whom it was for."""
    async with world() as w:
        await deploy(w.broker, choosing())
        address, attributes = w.broker.address, {"tenant": "acme", "rank": 9}
        async with stentor.connect(address, name="best", attributes=attributes) as best:
            async with best.subscribe("exists secret") as known:
                await w.vault.publish(SECRET, ack=True)
                assert (await anext(known))["secret"] == 42
            await deploy(w.broker, tenants("acme", "beta"))
            await w.vault.publish({"secret": 1}, ack=True)
            async with w.insider.subscribe("", since="earliest") as spying:
                assert (await anext(spying))["secret"] == 1
            async with best.subscribe("exists secret", since="earliest") as again:
                assert [(await anext(again))["secret"] for _ in range(2)] == [42, 1]


@looped
async def test_by_recording(tmp_path: Path) -> None:
    async with world() as w:
        file = tmp_path / "spy.jsonl"
        options: Any = {"attributes": {"tenant": "beta"}, "record": str(file)}
        async with stentor.connect(w.broker.address, name="spy2", **options) as spy:
            async with spy.subscribe("exists secret") as spying:
                assert await w.leak(spying) == []
        recorded = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert recorded.count(b'"op":"notify"') <= 1  # what spy has published at the end


@looped
async def test_what_is_given_says_nothing_of_scopes() -> None:
    async with world() as w, w.insider.subscribe("exists secret") as own:
        await w.vault.publish(SECRET, ack=True)
        n = await anext(own)
        assert {"_scopes", "_scope_epoch"}.isdisjoint(n.facts)
        assert str(n.id).startswith("vault:")


# -- who one is


def grants(*more: Grant) -> Settings:
    desk = Grant(
        "desk", token="d", attributes=("tenant=acme",), names=("vault",), claims=("floor",)
    )
    return Settings(listen=("127.0.0.1:0",), grants=(desk, *more))


@looped
async def test_by_attributes_that_no_grant_allows() -> None:
    async with Broker(grants()) as broker:
        for claim in ({"tenant": "beta"}, {"rank": 9}, {"name": "vault"}, {"roles": "boss"}):
            with pytest.raises(AccessDenied):
                async with stentor.connect(broker.address, token="d", attributes=claim):
                    pass
        attributes = {"tenant": "acme", "floor": 3}
        async with stentor.connect(broker.address, name="a", token="d", attributes=attributes):
            (component,) = broker.core.scopes.components.values()
            assert component.attributes == attributes


@pytest.mark.parametrize("name", ["boss", "boss~0123abcd", "boss*"])
@looped
async def test_by_a_name_that_no_grant_allows(name: str) -> None:
    graph = ScopeGraph()
    graph.create_scope("board")
    graph.add_component("boss")
    graph.add_component("vault")
    graph.join("boss", "board")
    graph.join("vault", "board")
    async with Broker(grants(Grant("spies", token="s"))) as broker:
        await deploy(broker, graph)
        async with stentor.connect(broker.address, name="vault", token="d") as vault:
            async with stentor.connect(broker.address, name=name, token="s") as spy:
                async with spy.subscribe("exists secret", since="earliest") as spying:
                    await vault.publish(SECRET, ack=True)
                    await spy.publish({"secret": 0}, ack=True)
                    assert (await anext(spying))["secret"] == 0


@looped
async def test_by_administration_without_the_right() -> None:
    change = encode_change(Change(list(records_of(tenants("mine")).values())))
    admin = Grant("admin", token="a", scopes=True)
    operator = Grant("operator", token="o", operate=True)
    async with Broker(grants(admin, operator)) as broker:
        await deploy(broker, tenants("acme"))
        before = broker.core.scopes.entry.epoch
        for token in ("d", "o"):
            with pytest.raises(NotPermitted):
                await directly(broker, lambda d: d._ask("scopes", deploy=change), token=token)
            assert broker.core.scopes.entry.epoch == before
        for what in ("why", "scopes", "status"):
            with pytest.raises(NotPermitted):
                await directly(broker, lambda d, what=what: d._ask(what), token="d")
        found = await directly(broker, lambda d: d._ask("scopes", deploy=change), token="a")
        assert found["epoch"] > before


@looped
async def test_an_auditor_reads_journals_as_they_were_written() -> None:
    async with Broker(grants(Grant("audit", token="a", scopes=True))) as broker:
        await deploy(broker, tenants("acme"))
        async with stentor.connect(broker.address, name="vault", token="d") as vault:
            await vault.publish(SECRET, ack=True)
        (item,) = await directly(broker, everything, token="a")
        assert item[0] == 1  # without a stamp


# -- where one is


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("ahead", range(0, 12, 2))
def test_by_being_elsewhere_before_the_news_is_there(ahead: int, durable: bool) -> None:
    """Spy leaves the broker that expels it, for one that has not heard of that yet."""
    sim = Overlay([("a", "b"), ("b", "c")])
    vault, insider, spy = (sim.client(id=id) for id in ("vault", "insider", "spy"))
    for client, at in ((vault, "a"), (insider, "c"), (spy, "a")):
        client.attributes = {"tenant": "acme"}
        client.connect(sim.hosts[at])
    options: dict[str, Any] = {"durable": "mine"} if durable else {}
    spying = spy.open("exists secret", **options)
    known = insider.open("exists secret")
    sim.settle()
    answers: list[StentorError | None] = []

    def changed(graph: ScopeGraph) -> None:
        sim.hosts["a"].core.scoping.deploy(records_of(graph), answers.append)
        sim.carry_out(sim.hosts["a"])

    changed(tenants("acme"))
    sim.settle()
    graph = ScopeGraph()
    graph.create_scope("acme")
    graph.add_rule(MembershipRule("acme", Filter("tenant = 'acme' and not name = 'spy'")))
    changed(graph)
    spy.disconnect()
    spy.connect(sim.hosts["c"])
    while len(answers) < 2:  # until then the graph is what it was
        sim.advance(1)
    sim.advance(ahead)
    vault.send([SECRET])
    sim.advance(ahead)
    vault.send([SECRET])
    sim.settle()
    sim.tick(30)
    sim.settle()
    assert answers == [None, None]
    assert (len(known.given), spying.given) == (2, [])


def test_by_a_copy_of_a_broker_from_before() -> None:
    """Spy was in acme when the copy was made, and connects to the broker that it becomes."""
    sim = Overlay([("a", "b")])
    vault, spy = (sim.client(id=id) for id in ("vault", "spy"))
    for client, at in ((vault, "a"), (spy, "b")):
        client.attributes = {"tenant": "acme"}
        client.connect(sim.hosts[at])
    spying = spy.open("exists secret", durable="mine")
    answers: list[StentorError | None] = []
    for where in ("tenant = 'acme'", "tenant = 'acme' and not name = 'spy'"):
        sim.settle()
        copy = dict(sim.hosts["b"].durables)
        graph = ScopeGraph()
        graph.create_scope("acme")
        graph.add_rule(MembershipRule("acme", Filter(where)))
        sim.hosts["a"].core.scoping.deploy(records_of(graph), answers.append)
        sim.carry_out(sim.hosts["a"])
    sim.settle()
    sim.crash("b")
    sim.hosts["b"].durables.clear()
    sim.hosts["b"].durables.update(copy)
    sim.restart("b")
    spy.connect(sim.hosts["b"])
    vault.send([SECRET])
    sim.heal()
    sim.settle()
    sim.tick(30)
    sim.settle()
    assert (answers, spying.given) == ([None, None], [])
