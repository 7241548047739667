"""Patterns detected by live brokers: the library, its sharing, rights and durability."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from msgspec import structs
from rich.console import Console
from scripted import looped, until
from test_live import overlay

import stentor
from stentor.broker import report
from stentor.broker.host import Broker
from stentor.broker.settings import Grant, Settings
from stentor.cli.status_view import status_view
from stentor.composite import Pattern, detect_local, sub_events
from stentor.errors import (
    FilterSyntaxError,
    InvalidConfiguration,
    InvalidPattern,
    NameTaken,
    NotPermitted,
)
from stentor.filters import Filter
from stentor.node.parts.detectors import Detectors
from stentor.node.session import Session
from stentor.protocol.messages import Subscribe
from stentor.scopes import MembershipRule, ScopeGraph
from stentor.scopes.definition import records_of

LOCKOUT = Pattern(
    "(F+ ; L) within 60s partition by account",
    events={"F": "type = 'login_failed'", "L": "type = 'lockout'"},
)


@looped
async def test_a_pattern_over_events_of_two_brokers() -> None:
    async with overlay() as (b1, b2):
        async with stentor.connect(b1.address) as bus, stentor.connect(b2.address) as other:
            async with bus.detect(LOCKOUT) as alarms:
                for account in ("ann", "bob", "ann"):
                    await other.publish({"type": "login_failed", "account": account}, ack=True)
                await bus.publish({"type": "lockout", "account": "ann"}, ack=True)
                found = await alarms.get(60)
                assert found["account"] == "ann"
                assert found["F.count"] == 2
                assert found["composite.pattern"] == str(LOCKOUT)
                assert [each["type"] for each in sub_events(found)] == [
                    *["login_failed"] * 2,
                    "lockout",
                ]
            await until(lambda: not b1.core.detectors.held)
            assert not [s for s in b1.core.sessions if s < 0], "nothing is left of it"


@looped
async def test_equal_patterns_share_a_detector_and_detections_are_notifications() -> None:
    async with overlay(1) as (broker,):
        async with stentor.connect(broker.address) as bus, stentor.connect(broker.address) as two:
            twice = Pattern("X ; X", events={"X": LOCKOUT})
            async with bus.detect(LOCKOUT) as mine, two.detect(LOCKOUT) as theirs:
                assert len(broker.core.detectors.held) == 1
                async with two.subscribe("isa composite and account = 'ann'") as plain:
                    async with bus.detect(twice) as higher:
                        for _ in range(2):
                            await bus.publish({"type": "login_failed", "account": "ann"}, ack=True)
                            await bus.publish({"type": "lockout", "account": "ann"}, ack=True)
                        for each in (mine, theirs, plain):
                            first, second = await each.get(60), await each.get(60)
                            assert first["composite.end"] < second["composite.end"]
                        found = await higher.get(60)
                        assert len(sub_events(found)) == 2
                        assert {sub_events(e) != () for e in sub_events(found)} == {True}
            await until(lambda: not broker.core.detectors.held)


@looped
async def test_what_makes_no_sense_is_refused_with_reasons() -> None:
    async with overlay(1) as (broker,):
        async with stentor.connect(broker.address) as bus:
            with pytest.raises(InvalidConfiguration, match=r"takes a stentor\.composite\.Pattern"):
                bus.detect("A ; B")  # type: ignore[arg-type]
            wrong = bus.detect(LOCKOUT)
            assert wrong._terms.detect is not None
            wrong._terms.detect.pattern = '{"pattern": "A ; ;", "events": {}}'
            with pytest.raises(InvalidPattern):
                await wrong.open()
            assert not broker.core.detectors.held


@looped
async def test_a_broker_that_does_not_know_detection_refuses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subscribe = Detectors.subscribe

    def unknowing(self: Detectors, session: Session, message: Subscribe) -> object:
        return subscribe(self, session, structs.replace(message, detect=None))

    monkeypatch.setattr(Detectors, "subscribe", unknowing)
    async with overlay(1) as (broker,), stentor.connect(broker.address) as bus:
        with pytest.raises(FilterSyntaxError, match="detect"):
            await bus.detect(LOCKOUT).open()


@looped
async def test_nobody_detects_or_publishes_what_a_grant_forbids() -> None:
    grants = (
        Grant("all", token="a"),
        Grant("reader", token="r", subscribe=("",), publish=()),
        Grant("half", token="h", subscribe=("type = 'login_failed'", "isa composite")),
        Grant("desk", token="d", publish=("isa composite",)),
    )
    broker = Broker(Settings(listen=("127.0.0.1:0",), name="b", grants=grants))
    await broker.start()
    try:
        for token, match in (("r", "may not publish"), ("h", "may not subscribe to")):
            async with stentor.connect(broker.address, token=token) as bus:
                with pytest.raises(NotPermitted, match=match):
                    await bus.detect(LOCKOUT).open()
        assert not broker.core.detectors.held
        async with stentor.connect(broker.address, token="a") as source:
            async with stentor.connect(broker.address, token="d") as desk:
                async with desk.detect(LOCKOUT) as alarms, source.detect(LOCKOUT) as others:
                    assert len(broker.core.detectors.held) == 2, "each by its own rights"
                    await source.publish({"type": "login_failed", "account": "ann"}, ack=True)
                    await source.publish({"type": "lockout", "account": "ann"}, ack=True)
                    assert (await alarms.get(60))["account"] == "ann"
                    assert (await others.get(60))["account"] == "ann"
    finally:
        await broker.stop()


@looped
async def test_a_durable_detector_goes_on_while_nobody_is_connected(tmp_path: Path) -> None:
    settings = Settings(listen=("127.0.0.1:0",), name="b", data=tmp_path)
    broker = Broker(settings)
    await broker.start()
    try:
        async with stentor.connect(broker.address) as bus:
            async with bus.detect(LOCKOUT, durable="locks", lateness=0.2):
                history = [{"type": "login_failed", "account": "ann"}]
                await bus.publish(history[0], ack=True)
        await broker.stop()
        broker = Broker(settings)
        await broker.start()
        assert len(broker.core.detectors.held) == 1, "it began again by itself"
        async with stentor.connect(broker.address) as bus:
            await bus.publish({"type": "lockout", "account": "ann"}, ack=True)
            await until(lambda: broker.core.detectors.counters["detected"] == 1)
            async with bus.detect(LOCKOUT, durable="locks", lateness=0.2) as alarms:
                found = await alarms.get(60)
                assert [e["type"] for e in sub_events(found)] == ["login_failed", "lockout"]
                with pytest.raises(InvalidConfiguration, match="use the same, or another name"):
                    await bus.detect(LOCKOUT, durable="locks", lateness=0.3).open()
                await alarms.close(forget=True)
            await until(lambda: not broker.core.detectors.held)
            assert not broker.core.durables
            assert (
                detect_local(LOCKOUT, sub_events(found))[0].interval.end == found["composite.end"]
            )
    finally:
        await broker.stop()


@looped
async def test_guaranteed_detection_across_brokers_waits_for_idle_ones() -> None:
    absence = Pattern("A not followed by B within 300ms", events={"A": "x = 1", "B": "x = 2"})
    async with overlay(3) as brokers:
        async with stentor.connect(brokers[0].address) as bus:
            async with stentor.connect(brokers[2].address) as other:
                options = {"policy": "guaranteed", "lateness": 0.2}
                async with bus.detect(absence, **options) as alarms:  # type: ignore[arg-type]
                    await other.publish({"x": 1, "n": 1}, ack=True)
                    assert (await alarms.get(60))["A.n"] == 1
                    # What happened earlier is consumed earlier, whichever way it comes.
                    await other.publish({"x": 1, "n": 2}, ack=True)
                    await bus.publish({"x": 2}, ack=True)
                    await other.publish({"x": 1, "n": 3}, ack=True)
                    assert (await alarms.get(60))["A.n"] == 3


@looped
async def test_nobody_waits_for_a_stream_that_is_over() -> None:
    def without_journal(*neighbors: str) -> Broker:
        settings = Settings(listen=("127.0.0.1:0",), name="b", neighbors=neighbors)
        return Broker(settings)

    pair = Pattern("A ; B", events={"A": "x = 1", "B": "x = 2"})
    async with overlay(1) as (first,), stentor.connect(first.address) as bus:
        second = without_journal(first.address)
        await second.start()
        await until(lambda: bool(first.core.directory.others))
        try:
            async with bus.detect(pair, policy="guaranteed", lateness=0.2) as alarms:
                await bus.publish_many([{"x": 1}, {"x": 2}], ack=True)
                assert (await alarms.get(60))["composite.events"] == 2
                [before] = first.core.directory.others
                await second.stop()
                second = without_journal(first.address)
                await second.start()
                await until(lambda: first.core.directory.others not in ([], [before]))
                await bus.publish_many([{"x": 1}, {"x": 2}], ack=True)
                assert (await alarms.get(60))["composite.events"] == 2
        finally:
            await second.stop()


ROW = Pattern("A ; B ; C", events={"A": "x = 1", "B": "x = 2", "C": "x = 3"})


def fed(broker: Broker) -> int:
    return sum(hosted.fed for hosted in broker.core.detectors.held.values())


@looped
async def test_a_pattern_is_detected_in_parts_by_several_brokers() -> None:
    async with overlay(3) as brokers:
        async with stentor.connect(brokers[0].address) as bus:
            async with stentor.connect(brokers[2].address) as other:
                async with bus.detect(ROW, placement="minimum_load") as alarms:
                    status = report.status(brokers[0])
                    [placed] = status["placements"]
                    assert [part["broker"] for part in placed["parts"]] == ["b0", "b1"]
                    assert [d["tenants"] for d in report.status(brokers[1])["detectors"]] == [
                        ["b0"]
                    ]
                    shown = StringIO()
                    Console(width=200, file=shown).print(status_view(status))
                    assert "minimum_load" in shown.getvalue()
                    assert "C1 ; C" in shown.getvalue()
                    for x in (1, 2):
                        await other.publish({"x": x, "n": x}, ack=True)
                    await until(lambda: fed(brokers[1]) == 1)  # by what the part has found
                    await other.publish({"x": 3, "n": 3}, ack=True)
                    found = await alarms.get(60)
                    assert (found["A.n"], found["B.n"], found["C.n"]) == (1, 2, 3)
                    assert found.type == ROW.type
                    assert [event["x"] for event in sub_events(found)] == [1, 2, 3]
                await until(lambda: not any(b.core.detectors.held for b in brokers))


@looped
async def test_a_host_that_stops_is_replaced_by_one_that_knows_the_grant() -> None:
    grants = (Grant("desk", token="d", broker=True),)
    async with overlay(2, grants=grants, token="d") as (b0, b1):
        guest = Broker(
            Settings(
                listen=("127.0.0.1:0",),
                name="guest",
                neighbors=(b1.address,),
                token="d",
                grants=(Grant("others", token="o"),),
            )
        )
        await guest.start()
        try:
            await until(lambda: len(b0.core.directory.others) == 2)
            async with stentor.connect(b0.address, token="d") as bus:
                async with bus.detect(ROW, placement="minimum_load") as alarms:
                    [placed] = report.status(b0)["placements"]
                    assert {part["broker"] for part in placed["parts"]} == {"b0", "b1"}
                    assert not guest.core.detectors.held, "it knows no such grant"
                    await b1.stop()
                    await until(lambda: len(b0.core.detectors.held) == 2)
                    for x in (1, 2, 3):
                        parts = b0.core.counters["detected"]
                        await bus.publish({"x": x}, ack=True)
                        await until(lambda: x != 2 or b0.core.counters["detected"] > parts)  # noqa: B023
                    assert (await alarms.get(60))["composite.events"] == 3
        finally:
            await guest.stop()


@looped
async def test_grants_that_change_while_something_is_detected() -> None:
    grants = (Grant("desk", token="d"), Grant("source", token="s"))
    settings = Settings(listen=("127.0.0.1:0",), name="b", grants=grants)
    broker = Broker(settings)
    await broker.start()
    try:
        async with stentor.connect(broker.address, token="d") as desk:
            async with stentor.connect(broker.address, token="s") as source:
                async with desk.detect(LOCKOUT) as alarms:
                    await source.publish({"type": "login_failed", "account": "ann"}, ack=True)
                    more = Grant("another", token="a")
                    await broker.reload(replace(settings, grants=(*grants, more)))
                    await source.publish({"type": "lockout", "account": "ann"}, ack=True)
                    assert (await alarms.get(60))["F.count"] == 1, "it has gone on"
                    less = Grant("desk", token="d", publish=("type = 'note'",))
                    await broker.reload(replace(settings, grants=(less, grants[1])))
                    for kind in ("login_failed", "lockout"):
                        await source.publish({"type": kind, "account": "bob"}, ack=True)
                    with pytest.raises(NotPermitted, match="may not publish what was detected"):
                        await alarms.get(60)
                    assert not broker.core.detectors.held
    finally:
        await broker.stop()


@looped
async def test_detectors_see_what_their_subscribers_see() -> None:
    graph = ScopeGraph()
    for name in ("acme", "beta"):
        graph.create_scope(name)
        graph.add_rule(MembershipRule(name, Filter(f"tenant = '{name}'")))
    async with overlay(2) as brokers:
        done = asyncio.get_running_loop().create_future()
        brokers[0].core.scoping.deploy(records_of(graph), done.set_result)
        brokers[0].changed()
        assert await done is None
        await until(lambda: all(b.core.scopes.active for b in brokers))

        def connect(tenant: str, broker: Broker) -> stentor.Bus:
            return stentor.connect(broker.address, attributes={"tenant": tenant})

        async with connect("acme", brokers[0]) as acme, connect("acme", brokers[1]) as inside:
            async with connect("beta", brokers[1]) as outside:
                async with outside.subscribe("isa composite") as spy:
                    for placement in ("minimum_latency", "maximum_reliability"):
                        async with acme.detect(LOCKOUT, placement=placement) as alarms:  # type: ignore[arg-type]
                            for bus, account in ((outside, "eve"), (inside, "ann")):
                                for kind in ("login_failed", "lockout"):
                                    event = {"type": kind, "account": account}
                                    await bus.publish(event, ack=True)
                            assert (await alarms.get(60))["account"] == "ann"
                        await until(lambda: not any(b.core.detectors.held for b in brokers))
                    await outside.publish({}, type="composite.end", ack=True)
                    assert (await spy.get(60)).type == "composite.end", "it saw no detection"


@looped
async def test_a_detector_is_taken_over_with_its_broker(tmp_path: Path) -> None:
    def made(name: str, *neighbors: str) -> Broker:
        return Broker(
            Settings(
                listen=("127.0.0.1:0",),
                name=name,
                data=tmp_path / name,
                neighbors=neighbors,
                routing="covering",
            )
        )

    heir = made("heir")
    await heir.start()
    left = made("left", heir.address)
    await left.start()
    await until(lambda: left.links and heir.core.directory.others)
    try:
        async with stentor.connect(left.address) as bus:
            async with bus.detect(LOCKOUT, durable="locks", lateness=0.2):
                await bus.publish({"type": "login_failed", "account": "ann"}, ack=True)
        await left.drain()
        await left.wait_closed()
        await until(lambda: heir.core.detectors.held)
        async with stentor.connect(heir.address) as bus:
            await bus.publish({"type": "lockout", "account": "ann"}, ack=True)
            async with bus.detect(LOCKOUT, durable="locks", lateness=0.2) as alarms:
                found = await alarms.get(60)
                assert [e["type"] for e in sub_events(found)] == ["login_failed", "lockout"]
    finally:
        await left.stop()
        await heir.stop()


@looped
async def test_a_name_is_for_a_detector_or_for_a_subscription() -> None:
    async with overlay() as (a, b):
        async with stentor.connect(a.address) as bus, stentor.connect(b.address) as other:
            await bus.detect(LOCKOUT, durable="locks").open()
            await bus.subscribe("x = 1", durable="plain").open()
            await bus.subscribe("x = 1", durable="shared", group="workers").open()
            await until(lambda: len(b.core.homes.registry) == 4)
            for client in (bus, other):
                for group in (None, "workers"):
                    with pytest.raises(NameTaken, match="'locks' is a detector; go on with"):
                        await client.subscribe("x = 1", durable="locks", group=group).open()
                with pytest.raises(InvalidConfiguration, match="does not end with"):
                    await client.subscribe("x = 1", durable="locks (detector)").open()
                for name in ("plain", "shared"):
                    with pytest.raises(NameTaken, match=f"'{name}' subscribes to 'x = 1' and dete"):
                        await client.detect(LOCKOUT, durable=name).open()
            assert len(a.core.detectors.held) == 1
            assert not b.core.detectors.held


@looped
async def test_the_name_of_a_detector_that_cannot_go_on_is_free_when_it_is_deleted() -> None:
    async with overlay(1) as (broker,):
        async with stentor.connect(broker.address) as bus:
            async with bus.detect(LOCKOUT, durable="locks"):
                pass
            [hosted] = broker.core.detectors.held.values()
            broker.core.detectors._fail(hosted, InvalidConfiguration("it cannot go on"))
            broker.core.homes.remove(broker.core.durables["locks"], lambda error: None)
            assert not broker.core.durables
            await bus.subscribe("x = 1", durable="locks").open()
