"""Patterns detected by live brokers: the library, its sharing, rights and durability."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

from pathlib import Path

import pytest
from scripted import looped, until
from test_live import overlay

import stentor
from stentor.broker.host import Broker
from stentor.broker.settings import Grant, Settings
from stentor.composite import Pattern, detect_local, sub_events
from stentor.errors import InvalidConfiguration, InvalidPattern, NotPermitted

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
