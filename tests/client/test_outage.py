"""A program that waits for a broker which is gone says so in its log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from scripted import looped, until

import stentor
from stentor.broker import Broker, Settings
from stentor.client import outage
from stentor.client.outage import LOG, NOTICE, REPEAT, Outage
from stentor.errors import Unreachable

GONE = Unreachable("nobody is there")


@pytest.fixture(autouse=True)
def _listening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOG, "disabled", False)  # a command in this process may have hushed it


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    here = [record for record in caplog.records if record.name == LOG.name]
    assert all(record.levelno == logging.WARNING for record in here)
    return [record.getMessage() for record in here]


def test_a_moment_is_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    it = Outage()
    it.begin(10.0, anew=True)
    it.goes_on(10.0 + NOTICE / 2, GONE)
    it.connected("b1")
    assert told(caplog) == []


def test_long_outages_are_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    it = Outage()
    it.begin(10.0, anew=True)
    for second in range(round(NOTICE + REPEAT) + 1):
        it.goes_on(10.0 + second, GONE)
    it.connected("b1")
    it.connected("b1")
    assert told(caplog) == [
        f"no connection for {NOTICE:.0f} s, still trying: nobody is there",
        f"no connection for {NOTICE + REPEAT:.0f} s, still trying: nobody is there",
        "connected again, to b1",
    ]


def test_connections_that_do_not_last_do_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    it = Outage()
    for second in range(20):
        it.begin(float(second), anew=second == 0)
        it.goes_on(float(second), GONE)
        it.connected("b1")
    assert told(caplog) == [
        f"no connection for {NOTICE:.0f} s, still trying: nobody is there",
        "connected again, to b1",
    ]


@looped
async def test_whoever_waits_for_an_acknowledgement_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(outage, "NOTICE", 0.0)
    caplog.clear()
    place = f"unix:{tmp_path / 'b1'}"
    async with Broker(Settings(name="b1", listen=(place,))):
        bus = stentor.connect(place, delays=(0.01, 0.02))
        await bus.open()
    await until(lambda: any("still trying" in text for text in told(caplog)))
    async with Broker(Settings(name="b1", listen=(place,))):
        await until(lambda: told(caplog)[-1] == f"connected again, to {place}")
        await bus.close()
