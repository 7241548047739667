"""Publications that are on disk before they are acknowledged, beside inserts into SQLite.

A broker commits what has arrived while the last commit was written; how much that is depends on the
load. SQLite is given the same number of rows to a commit, on the same disk and core, in turns with
the broker. At the end the way to a subscriber is measured as well: journaled, then delivered.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any, Final

from live.brokers import BrokerProcess
from live.processes import Worker, cores
from live.profiles import Profile
from live.publishing import Publishers
from live.scratch import scratch
from live.sqlite_inserts import Inserts
from live.subscribing import Subscribers
from progress import progress

#: Ways to publish: the name of the method, what it is, and by how much less is enough.
WAYS: Final = (
    ("publish_durably", "publish_many(ack=True)", 1),
    ("publish_singly", "publish(ack=True), 1,000 in flight", 4),
)


def measure_durability(profile: Profile) -> dict[str, Any]:
    """Acknowledged publications, and what is journaled on its way to a subscriber."""
    with scratch() as folder:
        return {
            "acknowledged": _acknowledged(profile, folder),
            "delivered": _delivered(profile, folder),
            "settled": _settled(profile, folder),
        }


def _acknowledged(profile: Profile, folder: Path) -> list[dict[str, Any]]:
    count = profile.durable_events
    with (
        BrokerProcess("b1", data=folder / "b1") as broker,
        Worker(Publishers, cores().load) as publishers,
        Worker(Inserts, cores().broker) as inserts,
    ):
        publishers.ask("open", broker.address, 1, count)
        inserts.ask("open", folder / "inserts.db", count)
        rows = []
        for method, name, less in WAYS:
            progress(f"acknowledged publications: {name}")
            turns = []
            for repeat in range(profile.repeats + 1):
                turn = _turn(method, count // less, broker, publishers, inserts)
                if repeat:  # the first only warms up
                    turns.append(turn)
            rows.append(
                {"way": name, **{key: median(turn[key] for turn in turns) for key in turns[0]}}
            )
        return rows


def _turn(
    method: str, count: int, broker: BrokerProcess, publishers: Worker, inserts: Worker
) -> dict[str, float]:
    commits, processor = broker.status()["journal"]["commits"], broker.processor_seconds
    seconds = publishers.ask(method, count)
    processor = broker.processor_seconds - processor
    commits = broker.status()["journal"]["commits"] - commits
    per_commit = max(1, round(count / commits))
    theirs = inserts.ask("insert", count, per_commit)
    return {
        "rate": count / seconds,
        "processor_us": 1e6 * processor / count,
        "per_commit": per_commit,
        "sqlite_rate": count / theirs,
        "sqlite_to_rate": seconds / theirs,
    }


def _delivered(profile: Profile, folder: Path) -> dict[str, float]:
    progress("journaled, one to one")
    count = profile.events
    with (
        BrokerProcess("b2", data=folder / "b2") as broker,
        Worker(Publishers, cores().load) as publishers,
        Worker(Subscribers, cores().load) as subscribers,
    ):
        publishers.ask("open", broker.address, 1, count)
        subscribers.ask("open", broker.address, 1)
        rates, costs = [], []
        for _ in range(profile.repeats + 1):
            before = broker.processor_seconds
            subscribers.begin("expect", count)
            began = publishers.ask("publish")
            ended = subscribers.answer()
            rates.append(count / (ended - began))
            costs.append(1e6 * (broker.processor_seconds - before) / count)
        served = broker.status()["counters"]["served"]
        return {"rate": median(rates[1:]), "processor_us": median(costs[1:]), "served": served}


def _settled(profile: Profile, folder: Path) -> list[dict[str, Any]]:
    """A durable subscriber that confirms, and one that settles each by itself, in turns."""
    progress("journaled, to a durable subscriber")
    count = profile.durable_events
    with (
        BrokerProcess("b3", data=folder / "b3") as broker,
        Worker(Publishers, cores().load) as publishers,
        Worker(Subscribers, cores().load) as subscribers,
    ):
        publishers.ask("open", broker.address, 1, count)
        turns: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for repeat in range(profile.repeats + 1):
            for settle, found in turns.items():
                subscribers.ask("open_durable", broker.address, f"{repeat}", settle=settle)
                before = broker.processor_seconds
                subscribers.begin("expect_stored", count)
                began = publishers.ask("publish")
                rate = count / (subscribers.answer() - began)
                cost = 1e6 * (broker.processor_seconds - before) / count
                subscribers.ask("forget_durable")
                if repeat:  # the first only warms up
                    found.append({"rate": rate, "processor_us": cost})
        names = {False: "confirmed by positions", True: "settled one by one"}
        return [
            {"way": names[settle], **{key: median(turn[key] for turn in found) for key in found[0]}}
            for settle, found in turns.items()
        ]
