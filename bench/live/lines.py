"""One to one, one to a hundred and a hundred to one, over brokers in a line.

Publishers are at the first broker, subscribers at the last, and so are the filters of others, which
all brokers come to hold. All brokers share one core here, as they would on a machine with no more
cores than brokers: what counts is the processor time per broker and event.
"""

from __future__ import annotations

from statistics import median
from typing import Any, Final

from live.brokers import BrokerProcess, line
from live.holding import hold
from live.processes import Worker, cores
from live.profiles import Profile
from live.publishing import Publishers
from live.subscribing import Subscribers
from progress import progress

#: Publishers and subscribers.
PATTERNS: Final = ((1, 1), (1, 100), (100, 1))
#: With so many subscribers, a share of the events is enough.
MANY_SHARE: Final = 10


def measure_lines(profile: Profile) -> list[dict[str, Any]]:
    """One row for each number of brokers, number of filters, and pattern."""
    return [
        row
        for filters in profile.line_filters
        for brokers in profile.lines
        for row in _measure(profile, brokers, filters)
    ]


def _measure(profile: Profile, count: int, filters: int) -> list[dict[str, Any]]:
    progress(f"{count} brokers, {filters:,} filters of others")
    with (
        line(count) as brokers,
        Worker(Publishers, cores().load) as publishers,
        Worker(Subscribers, cores().load) as subscribers,
    ):
        hold(subscribers, brokers[-1].address, filters)
        return [
            {
                "brokers": count,
                "filters": filters,
                "publishers": publishing,
                "subscribers": subscribing,
                **_pattern(profile, brokers, publishers, subscribers, publishing, subscribing),
            }
            for publishing, subscribing in PATTERNS
        ]


def _pattern(
    profile: Profile,
    brokers: list[BrokerProcess],
    publishers: Worker,
    subscribers: Worker,
    publishing: int,
    subscribing: int,
) -> dict[str, float]:
    count = profile.line_events // (MANY_SHARE if subscribing > 1 else 1)
    publishers.ask("open", brokers[0].address, publishing, count)
    subscribers.ask("open", brokers[-1].address, subscribing, overflow="block")
    rates, costs = [], []
    for _ in range(profile.line_repeats + 1):
        before = sum(broker.processor_seconds for broker in brokers)
        subscribers.begin("expect", count * subscribing)
        began = publishers.ask("publish", volatile=True)
        ended = subscribers.answer()
        rates.append(count / (ended - began))
        spent = sum(broker.processor_seconds for broker in brokers) - before
        costs.append(1e6 * spent / count / len(brokers))
    publishers.ask("close")
    subscribers.ask("close")
    rate = median(rates[1:])  # the first only warms up
    return {
        "rate": rate,
        "deliveries": subscribing * rate,
        "processor_us": median(costs[1:]),
    }
