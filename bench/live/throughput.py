"""From one publisher to one subscriber, at most once, beside Mosquitto's QoS 0 and NATS.

Each repeat lets all take their turn: frames that were prepared, the client library, the others.
Ratios are of turns in the same repeat, and the median of them is what counts.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from live import mosquitto, nats
from live.brokers import BrokerProcess
from live.holding import hold
from live.mosquitto import Mosquitto
from live.nats import Nats
from live.processes import Worker, cores
from live.profiles import Profile
from live.publishing import Publishers
from live.subscribing import Subscribers
from progress import progress

#: Events of one turn, as multiples of the profile's number. Turns should take similar times.
PREPARED_TIMES = 3
#: Seconds of a tenth of a second that a broker may work which has nothing to do.
IDLE = 0.002


def measure_throughput(profile: Profile) -> list[dict[str, Any]]:
    """One row for each number of filters that others have."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        others: dict[str, Mosquitto | Nats] = {}
        if mosquitto.installed():
            others["mosquitto"] = stack.enter_context(Mosquitto(Path(folder), profile.events))
        if nats.installed():
            others["nats"] = stack.enter_context(Nats(Path(folder), profile.events))
        return [_measure(profile, filters, others) for filters in profile.filters]


def _measure(profile: Profile, filters: int, others: dict[str, Mosquitto | Nats]) -> dict[str, Any]:
    progress(f"one to one, {filters:,} filters of others")
    with (
        BrokerProcess("b1") as broker,
        Worker(Publishers, cores().load) as publishers,
        Worker(Subscribers, cores().load) as subscribers,
    ):
        publishers.ask("open", broker.address, 1, profile.events, prepared=True)
        before = broker.processor_seconds
        hold(subscribers, broker.address, filters)
        loading = broker.processor_seconds - before
        names = ("prepared", "library", "mosquitto", "nats")
        turns: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for repeat in range(profile.repeats + 1):
            found = {
                "prepared": _prepared(profile, broker, publishers, subscribers),
                "library": _library(profile, broker, publishers, subscribers),
            }
            for name, other in others.items():
                seconds, processor = other.run()
                found[name] = _turn(other.count, seconds, processor)
            if repeat:  # the first only warms up
                for name, turn in found.items():
                    turns[name].append(turn)
        return {
            "filters": filters,
            "load_us": 1e6 * loading / filters if filters else None,
            "resident_bytes": broker.resident_bytes,
            **{name: _summary(found, turns["mosquitto"]) for name, found in turns.items() if found},
        }


def _prepared(
    profile: Profile, broker: BrokerProcess, publishers: Worker, subscribers: Worker
) -> dict[str, float]:
    count = PREPARED_TIMES * profile.events
    subscribers.ask("open_counting", broker.address)
    _until_idle(broker)
    before = broker.processor_seconds
    subscribers.begin("expect_counted", count)
    began = publishers.ask("publish_prepared", PREPARED_TIMES)
    ended = subscribers.answer()
    turn = _turn(count, ended - began, broker.processor_seconds - before)
    subscribers.ask("close_counting")
    return turn


def _library(
    profile: Profile, broker: BrokerProcess, publishers: Worker, subscribers: Worker
) -> dict[str, float]:
    subscribers.ask("open", broker.address, 1, overflow="block")
    _until_idle(broker)
    before = broker.processor_seconds
    subscribers.begin("expect", profile.events)
    began = publishers.ask("publish", volatile=True)
    ended = subscribers.answer()
    turn = _turn(profile.events, ended - began, broker.processor_seconds - before)
    subscribers.ask("close")
    return turn


def _until_idle(broker: BrokerProcess) -> None:
    """Until the broker has done what a new subscription leaves to do for later."""
    before = -1.0
    while (now := broker.processor_seconds) - before > IDLE:
        before = now
        time.sleep(0.1)


def _turn(count: int, seconds: float, processor: float) -> dict[str, float]:
    return {"rate": count / seconds, "processor_us": 1e6 * processor / count}


def _summary(turns: list[dict[str, float]], others: list[dict[str, float]]) -> dict[str, float]:
    summary = {
        "rate": median(turn["rate"] for turn in turns),
        "processor_us": median(turn["processor_us"] for turn in turns),
    }
    if others and turns is not others:
        pairs = list(zip(turns, others, strict=True))
        summary["ratio"] = median(ours["rate"] / its["rate"] for ours, its in pairs)
        summary["processor_ratio"] = median(
            its["processor_us"] / ours["processor_us"] for ours, its in pairs
        )
    return summary
