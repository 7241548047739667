"""What each configuration sends and stores, on the same population.

All clients advertise and subscribe, then the notifications are published, then every second client
withdraws what it subscribed to. The network comes to rest after each step, so that what is counted
does not depend on a schedule. Clients must have received exactly what their filters match; hence
deliveries are the same under every configuration.
"""

from __future__ import annotations

from typing import Any

from measure.throughput import WrongAnswer
from network.configurations import CONFIGURATIONS, Configuration
from network.populations import TREE, Population, classes, intervals, stock_quotes
from network.profiles import Profile
from progress import progress
from stentor.filters import Filter
from stentor.model.identity import NotificationId


def measure_traffic(profile: Profile) -> list[dict[str, Any]]:
    """Every configuration on every population."""
    results = []
    for population in (
        intervals(profile.publications),
        classes(profile.publications),
        stock_quotes(profile.stock_filters, profile.publications),
    ):
        progress(f"traffic of every configuration, {population.name}")
        rows = [count_messages(population, choice) for choice in CONFIGURATIONS]
        _check_notifications(population, rows)
        results.append(
            {
                "name": population.name,
                "about": population.about,
                "subscriptions": population.subscriptions,
                "publications": len(population.publications),
                "rows": rows,
            }
        )
    return results


def count_messages(population: Population, configuration: Configuration) -> dict[str, Any]:
    """One run."""
    net = configuration.network(TREE, population.sample)
    producers = [net.client(at=broker) for broker, _ in population.producers]
    subscribers = [net.client(at=broker) for broker, _ in population.subscribers]

    before = net.counters.copy()
    for client, (_, offer) in zip(producers, population.producers, strict=True):
        client.advertise(offer)
        net.settle()
    advertised = net.counters - before

    before = net.counters.copy()
    held = []
    for client, (_, filters) in zip(subscribers, population.subscribers, strict=True):
        ids = []
        for filter in filters:
            ids.append(client.subscribe(filter))
            net.settle()
        held.append(ids)
    subscribed = net.counters - before
    sizes = net.table_sizes().values()

    before = net.counters.copy()
    published = []
    for producer, event in population.publications:
        published.append(producers[producer].publish(event, strict=True))
        net.settle()
    notified = net.counters - before
    received = [sorted(map(_id, client.received)) for client in subscribers]
    if received != _expected(population, published):
        raise WrongAnswer(f"{configuration.name}: {population.name} were not delivered exactly")

    before = net.counters.copy()
    for client, ids in list(zip(subscribers, held, strict=True))[::2]:
        for id in ids:
            client.unsubscribe(id)
            net.settle()
    withdrawn = net.counters - before
    return {
        "configuration": configuration.name,
        "exact": configuration.is_exact,
        "advertising": advertised.advertisements,
        "subscribing": subscribed.subscriptions,
        "withdrawing": withdrawn.subscriptions,
        "remote_entries": sum(size.remote for size in sizes),
        "most_entries": max(size.remote for size in sizes),
        "advertisement_entries": sum(size.advertisements for size in sizes),
        "notifications": notified.notifications,
        "deliveries": notified.delivered,
    }


def _id(notification: Any) -> NotificationId:
    id: NotificationId = notification.id
    return id


def _expected(
    population: Population, published: list[NotificationId]
) -> list[list[NotificationId]]:
    """For each subscriber what its filters match."""

    def wants(filters: list[Filter], event: dict[str, Any]) -> bool:
        return any(filter.matches(event) for filter in filters)

    events = [event for _, event in population.publications]
    return [
        sorted(id for id, event in zip(published, events, strict=True) if wants(filters, event))
        for _, filters in population.subscribers
    ]


def _check_notifications(population: Population, rows: list[dict[str, Any]]) -> None:
    """Exact strategies differ in tables and control messages, never in notifications."""
    exact = {row["notifications"] for row in rows if row["exact"]}
    if len(exact) != 1 or min(row["notifications"] for row in rows) not in exact:
        raise WrongAnswer(f"{population.name}: exact configurations differ in notifications")
