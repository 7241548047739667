"""What operators see of a broker: status, metrics, health. All of it plain data."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from stentor.errors import InvalidConfiguration
from stentor.node.last_values import label
from stentor.node.latencies import Histogram

if TYPE_CHECKING:
    from stentor.broker.host import Broker
    from stentor.broker.lags import Lag
    from stentor.broker.peers import Link
    from stentor.node.detection import Hosted
    from stentor.node.subscription import Subscription

#: A metric: name, type, help, and its samples as labels and value.
Metric = tuple[str, str, str, list[tuple[dict[str, str], float | Histogram]]]


def status(broker: Broker) -> dict[str, Any]:
    """Everything there is to know about a broker now."""
    found = overview(broker)
    for name, entry in details(broker):
        found[name].append(entry)
    return found


def status_in_steps(broker: Broker) -> Generator[None, None, dict[str, Any]]:
    """The same as `status`, one entry after the other."""
    found = overview(broker)
    for name, entry in details(broker):
        found[name].append(entry)
        yield
    return found


def details(broker: Broker) -> Iterator[tuple[str, dict[str, Any]]]:
    """What `overview` leaves out, because there may be very many: each with where it belongs."""
    core = broker.core
    for id, subscription in list(core.subscriptions.items()):
        yield "subscriptions", _subscription(id, subscription)
    for durable in list(core.durables.values()):
        yield (
            "durables",
            {
                "name": durable.label,
                "owner": durable.owner,
                "filter": str(durable.interest),
                "attached": core.is_attached(durable),
                "positions": dict(durable.positions),
            },
        )


def overview(broker: Broker) -> dict[str, Any]:
    """The status without single subscriptions."""
    core = broker.core
    table = core.router.table_size()
    return {
        "name": broker.name,
        "stream": broker.stream,
        "addresses": broker.addresses,
        "advertised": broker.advertised,
        "monitor": broker.monitor_address,
        "started": broker.started_at,
        "uptime": time.time() - broker.started_at,
        "draining": broker.draining,
        "tasks": len(asyncio.all_tasks()),
        "routing": broker.settings.routing,
        "advertisements": broker.settings.advertisements,
        "links": _links(broker),
        "brokers": [
            {
                "broker": o.broker,
                "stream": o.stream,
                "addresses": list(o.addresses),
                "via": broker.links.via(o),
            }
            for o in sorted(core.directory.others, key=lambda o: o.broker)
        ],
        "clients": _clients(broker),
        "subscriptions": [],
        "durables": [],
        "detectors": [_hosted(broker, each) for each in core.detectors.held.values()]
        + [{"durable": label(key), "idle": why} for key, why in core.detectors.idle.items()],
        "placements": core.placements.status(),
        "table": {
            "local": table.local,
            "remote": table.remote,
            "offers": len(core.offers()),
        },
        "queues": {
            "subscriptions": sum(len(s.feed) for s in core.subscriptions.values()),
            "links": sum(link.queue.waiting for link in broker.links.values()),
            "journal": broker.journal.pending,
            "scheduled": len(core.scheduling.schedule),
        },
        "dropped": {
            "subscriptions": core.dropped
            + sum(s.feed.dropped for s in core.subscriptions.values()),
            "links": broker.links.dropped
            + sum(link.queue.dropped for link in broker.links.values()),
        },
        "counters": dict(core.counters),
        "journal": broker.journal.status(),
    }


def _hosted(broker: Broker, hosted: Hosted) -> dict[str, Any]:
    """A detector, with the names of the brokers that it works for."""
    origins = {stream: broker.core.directory.origin(stream) for stream in hosted.tenants}
    names = sorted(origin.broker if origin else stream for stream, origin in origins.items())
    return {**hosted.status(), "tenants": names}


def _links(broker: Broker) -> list[dict[str, Any]]:
    links = broker.links
    found = [
        {
            "broker": link.origin.broker,
            "stream": link.stream,
            "address": _address(link),
            "grant": link.permissions.name,
            "peer": link.connection.peer,
            "state": "up",
            "dialed": link.dialed,
            "place": link.place,
            "queue": link.queue.waiting,
            "dropped": link.queue.dropped,
            "sent": link.sent_notifications,
            "received": link.received_notifications,
            "bytes_in": link.connection.bytes_in,
            "bytes_out": link.connection.bytes_out,
        }
        for link in links.values()
    ]
    up = {str(link["address"]) for link in found}
    up |= {address for link in links.values() for address in link.origin.addresses}
    found += [
        {
            "broker": origin.broker if (origin := links.known_at(address)) else None,
            "address": address,
            "state": "reserve" if address in links.reserve else "down",
            "reason": links.why_in_reserve(address) if address in links.reserve else reason,
        }
        for address, reason in links.dialing.items()
        if address not in up
    ]
    return found


def _address(link: Link) -> str:
    """Where the neighbor was reached, or else where it says that it can be."""
    if link.dialed:
        return str(link.connection.address)
    return next(iter(link.origin.addresses), "")


def _clients(broker: Broker) -> list[dict[str, Any]]:
    sessions = broker.core.sessions
    return [
        {
            "name": client.name,
            "grant": client.permissions.name,
            "peer": client.connection.peer,
            "subscriptions": len(sessions[client.id].subscriptions),
            "advertisements": len(sessions[client.id].advertisements),
            "published": sessions[client.id].published,
            "refused": sessions[client.id].refused,
            "unanswered": sessions[client.id].unanswered,
            "unsent_bytes": client.connection.unsent,
        }
        for client in broker.clients.values()
        if client.id in sessions
    ]


def _subscription(id: str, subscription: Subscription) -> dict[str, Any]:
    return {
        "id": id,
        "filter": str(subscription.interest),
        "durable": None if subscription.durable is None else subscription.durable.label,
        "group": None if subscription.group is None else label(subscription.group),
        "consumers": len(subscription.consumers),
        "credit": sum(consumer.credit for consumer in subscription.consumers),
        "queue": len(subscription.feed),
        "delivered": subscription.feed.delivered,
        "dropped": subscription.feed.dropped,
        "expired": subscription.expired,
        "catching_up": subscription.feed.catching,
    }


_COUNTERS = {
    "published": "Notifications that clients published and the journal took.",
    "volatile": "Notifications that clients published at most once, past the journal.",
    "repeated": "Publications that were sent again and already journaled.",
    "refused": "Publications that were refused.",
    "received": "Notifications from neighbors.",
    "forwarded": "Notifications to neighbors.",
    "off_path": "Notifications that came another way than their stream, and were ignored.",
    "kept_out": "Notifications from neighbors whose grants do not allow them to publish these.",
    "delivered": "Notifications to clients.",
    "expired": "Notifications that nobody was given because they had expired.",
    "delayed": "Notifications that had waited until they were due, and were then delivered.",
    "cancelled": "Notifications that were to be delivered later, and cancelled before.",
    "dead_letters": "Dead letters that were published here.",
    "given_up": "Notifications that were given in vain as often as allowed, without a dead letter.",
    "served": "Stretches of the journal that were read for subscribers who catch up.",
    "asked_again": "Requests to journals that were made again because nothing answered them.",
    "probes": "Probes that were sent.",
    "interruptions": "Streams that began afresh.",
}


def metrics(broker: Broker) -> list[Metric]:
    """The numbers that change, for monitoring."""
    core = broker.core
    journal = broker.journal.status()
    labels = {"broker": broker.name}
    table = core.router.table_size()

    def gauge(name: str, help: str, value: float) -> Metric:
        return f"stentor_{name}", "gauge", help, [(labels, value)]

    def counter(name: str, help: str, value: float) -> Metric:
        return f"stentor_{name}_total", "counter", help, [(labels, value)]

    by_link = [({**labels, "neighbor": ln.origin.broker}, ln) for ln in broker.links.values()]
    subscriptions = list(core.subscriptions.values())
    histograms: list[Metric] = [
        (f"stentor_{name}_seconds", "histogram", help, [(labels, histogram)])
        for name, help, histogram in (
            (
                "acknowledging",
                "From the arrival of a publication to its answer; samples.",
                core.latencies.acknowledging,
            ),
            (
                "delivering",
                "From the publisher's time to the delivery to a client; samples.",
                core.latencies.delivering,
            ),
            ("matching", "To find out where one notification goes.", core.latencies.matching),
        )
    ]
    return [
        *(
            counter(f"notifications_{name}", help, core.counters[name])
            for name, help in _COUNTERS.items()
        ),
        counter(
            "notifications_dropped_subscriptions",
            "Notifications that slow subscribers did not get.",
            core.dropped + sum(s.feed.dropped for s in subscriptions),
        ),
        counter(
            "notifications_dropped_links",
            "Notifications that did not fit into the queue of a link.",
            broker.links.dropped + sum(ln.queue.dropped for _, ln in by_link),
        ),
        counter(
            "subscriptions_yielded",
            "Times that a subscriber had made publishers wait for as long as it may.",
            core.counters["yielded"],
        ),
        gauge("clients", "Connected clients.", len(broker.clients)),
        gauge("links", "Links to neighbors that are up.", len(broker.links)),
        gauge("brokers", "Other brokers that can be reached.", len(core.directory.others)),
        gauge("subscriptions", "Subscriptions of connected clients.", len(subscriptions)),
        gauge("durables", "Durable subscriptions.", len(core.durables)),
        gauge("detectors", "Patterns that are detected here.", len(core.detectors.held)),
        gauge(
            "detectors_idle",
            "Durable detectors that could not begin; `stentor status` says why.",
            len(core.detectors.idle),
        ),
        counter("detected", "Composite events that were found here.", core.counters["detected"]),
        gauge(
            "scheduled",
            "Publications that wait to be delivered later.",
            len(core.scheduling.schedule),
        ),
        gauge(
            "catching_up",
            "Subscriptions that read journals to catch up.",
            sum(s.feed.is_catching for s in subscriptions),
        ),
        gauge("table_local", "Routing entries of own clients.", table.local),
        gauge("table_remote", "Routing entries of neighbors.", table.remote),
        gauge("queued", "Notifications that wait for clients.", sum(map(len, _feeds(broker)))),
        (
            "stentor_link_queued",
            "gauge",
            "Notifications that wait for a link.",
            [(label, link.queue.waiting) for label, link in by_link],
        ),
        gauge("journal_head", "The last offset of the journal.", journal["head"]),
        gauge("journal_low", "The first offset that the journal keeps.", journal["low"]),
        gauge("journal_bytes", "The size of the journal's contents.", journal["bytes"]),
        gauge("journal_pending", "Notifications that wait for the disk.", journal["pending"]),
        counter("journal_commits", "Commits of the journal.", journal["commits"]),
        counter("journal_failures", "Commits that failed.", journal["failed_commits"]),
        counter(
            "journal_unconfirmed_removed",
            "Notifications that retention took although a durable subscription needed them.",
            journal["wanted_removed"],
        ),
        *histograms,
        (
            "stentor_durable_lag",
            "gauge",
            "Notifications behind the position of a durable subscription; those furthest behind.",
            [(_durable(labels, lag), lag.behind) for lag in broker.lags.named],
        ),
        (
            "stentor_durable_oldest_seconds",
            "gauge",
            "The age of the oldest that a durable subscription has not confirmed.",
            [(_durable(labels, lag), lag.oldest) for lag in broker.lags.named],
        ),
        gauge("durables_lag", "The same for all of them together.", broker.lags.total),
        gauge("durables_lag_most", "The same for the one furthest behind.", broker.lags.most),
        counter("reloads", "Times that the configuration was reloaded.", broker.reloading.done),
        counter("reload_failures", "Reloads that failed.", broker.reloading.failed),
        gauge(
            "reload_successful",
            "Whether the configuration in force is the one that was read last.",
            not broker.reloading.is_failing,
        ),
        *(
            [gauge("certificate_expires_seconds", "When the TLS certificate expires.", expires)]
            if (expires := broker.certificates.expires) is not None
            else []
        ),
        gauge("start_time_seconds", "When the broker started.", broker.started_at),
    ]


def backup_source(broker: Broker) -> dict[str, Any]:
    """Where the data are that a backup copies."""
    if broker.settings.data is None:
        raise InvalidConfiguration(
            "this broker has its journal in memory, so there is nothing to back up; start it with "
            "--data DIRECTORY"
        )
    return {
        "broker": broker.name,
        "data": str(broker.settings.data.absolute()),
        "stream": broker.stream,
    }


def _durable(labels: dict[str, str], lag: Lag) -> dict[str, str]:
    return {**labels, "durable": lag.name, "owner": lag.owner or ""}


def _feeds(broker: Broker) -> list[Any]:
    return [subscription.feed for subscription in broker.core.subscriptions.values()]


def health(broker: Broker) -> tuple[bool, dict[str, Any]]:
    """Whether the broker works: what it is given, it can store."""
    failing = broker.journal.failing
    return not failing, {"status": "failing" if failing else "ok", "journal": not failing}


def ready(broker: Broker) -> tuple[bool, dict[str, Any]]:
    """Whether it takes clients, and all links it is to make are up or in reserve."""
    healthy, _ = health(broker)
    down = [link["address"] for link in _links(broker) if link["state"] == "down"]
    fine = healthy and not broker.draining and not down
    return fine, {"draining": broker.draining, "journal": healthy, "links_down": down}
