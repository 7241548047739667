"""What must hold of a simulated overlay when everything has healed and come to rest."""

from __future__ import annotations

from collections.abc import Sized

from overlay import Overlay

from stentor.model import NotificationId, decode
from stentor.protocol.messages import StreamId
from stentor.semantics import Notify, Pub, Sub, Trace, Unsub, check
from stentor.simulation.client import SimulatedInbox


def journaled(sim: Overlay) -> dict[NotificationId, list[tuple[StreamId, int, float]]]:
    """Where each notification is, and when it was written there."""
    found: dict[NotificationId, list[tuple[StreamId, int, float]]] = {}
    for host in sim.hosts.values():
        for offset, (data, time) in enumerate(host.log.entries, 1):
            id = decode(data).id
            assert id is not None
            found.setdefault(id, []).append((host.log.stream, offset, time))
    return found


def judge(sim: Overlay) -> None:
    """Everything that is promised, of every subscription, and of the whole run by the model."""
    places = journaled(sim)
    judge_journals(sim, places)
    for sub in sim.subs:
        if "group" not in sub.options:
            judge_subscription(sim, sub, places)
    judge_trace(sim, places)
    for host in sim.hosts.values():
        assert not len(host.core.catching_up.fetches), f"{host.name} waits for what is lost"


def judge_journals(
    sim: Overlay, places: dict[NotificationId, list[tuple[StreamId, int, float]]]
) -> None:
    for id, known in sim.publications.items():
        if known.acknowledged:
            assert id in places or known.volatile, f"{id} was acknowledged and is not on disk"
    for id, found in places.items():
        assert not sim.publications[id].volatile
        streams = [stream for stream, _, _ in found]
        assert len(set(streams)) == len(streams), f"{id} is twice in a journal"
    for host in sim.hosts.values():
        newest: dict[str, NotificationId] = {}
        for data, _ in host.log.entries:
            this = decode(data).id
            assert this is not None
            before = newest.get(this.producer)
            assert before is None or before < this, f"{this} is behind {before} in {host.name}"
            newest[this.producer] = this


def judge_subscription(
    sim: Overlay,
    sub: SimulatedInbox,
    places: dict[NotificationId, list[tuple[StreamId, int, float]]],
) -> None:
    """Everything that is owed has come, if it was not ended and drops nothing by its policy."""
    if sub.over or may_drop(sub):
        return
    assert sub.in_force is not None, f"{sub.component} never came in force"
    assert not sub.amendments, f"{sub.component} was not answered"
    assert not sub.kept, f"{sub.component} has lost {sub.kept}"
    got = {id for _, _, id in sub.given}
    for number, filter in sub.filters.items():
        in_force = sub.settled.get(number)
        assert in_force is not None, f"{filter} of {sub.component} never came in force"
        missing = []
        for id, found in places.items():
            known = sim.publications[id]
            if not filter.matches(known.notification) or id in got:
                continue
            since = sub.options.get("since") if number in sub.first else None
            owed = known.acknowledged and known.at >= in_force
            owed = owed or (since is not None and all(time >= since for _, _, time in found))
            if owed and not all(_is_gone(sim, sub, stream, offset) for stream, offset, _ in found):
                missing.append((id, found))
        assert not missing, (
            f"{sub.component} ({filter}, {sub.options}) lacks {missing}; "
            f"in force at {in_force}, positions {sub.positions}"
        )


def may_drop(sub: SimulatedInbox) -> bool:
    """Whether not everything has to come."""
    policy = sub.options.get("overflow", "spill")
    return "volatile" in sub.options or policy in ("drop_oldest", "drop_newest")


def _is_gone(sim: Overlay, sub: SimulatedInbox, stream: StreamId, offset: int) -> bool:
    """Retention has taken it, and the subscriber was told; or it asked for what there is."""
    if any(g.stream == stream and g.first <= offset <= g.last for g in sub.gaps):
        return True
    gone = offset < sim.hosts[stream.rstrip("#")].log.low
    return gone and sub.options.get("since") is not None


def _lacks_what_is_gone(
    sim: Overlay,
    sub: SimulatedInbox,
    places: dict[NotificationId, list[tuple[StreamId, int, float]]],
) -> bool:
    """Whether retention has taken something that it wants before it had heard of the stream."""
    got = {id for _, _, id in sub.given}
    return any(
        sub.wants(sim.publications[id].notification)
        and all(_is_gone(sim, sub, stream, offset) for stream, offset, _ in found)
        for id, found in places.items()
        if id not in got
    )


def judge_trace(
    sim: Overlay, places: dict[NotificationId, list[tuple[StreamId, int, float]]]
) -> None:
    """Hold the run against the formal model."""
    moved = {c.id for c in sim.clients if len(c.homes) > 1}
    drops = {s.component for s in sim.subs if may_drop(s) or "group" in s.options or s.gaps}
    drops |= {s.component for s in sim.subs if _lacks_what_is_gone(sim, s, places)}
    for settling, ignored, orders in (
        # What was published is owed, but not to those who drop or share.
        (True, drops, ()),
        # In order, if the producer has always been at one broker, and what is durable was not
        # made twice.
        (False, {s.component for s in sim.subs if s.replaced}, ("fifo",)),
    ):
        trace = Trace()
        for action in sim.trace:
            match action:
                case Pub(name, notification):
                    if notification.id in places and not (orders and name in moved):
                        trace.append(action)
                case Notify(component, notification):
                    assert notification.id is not None
                    producer = sim.publications[notification.id].client.id
                    if component not in ignored and not (orders and producer in moved):
                        trace.append(action)
                case Sub(component) | Unsub(component):
                    if component not in ignored:
                        trace.append(action)
                case _:
                    trace.append(action)
        report = check(trace, order=orders, settling=settling)
        assert report.ok, report


#: What parts of a core keep when nobody is left: what they count and whom they tell, journals,
#: what is on disk, what is known of other brokers, and groups as they were told last.
_KEPT = {
    *(
        "counters",
        "checks",
        "volatile_checks",
        "at_end",
        "at_in_force",
        "at_leave",
        "at_routed",
        "at_let_in",
        "take_down",
    ),
    *("logs", "durables.held", "newest", "heads", "reserve", "told", "elsewhere", "names"),
    *("numbers", "placed", "passed_on", "at_change", "registry", "copies", "unreached", "sought"),
    *("known", "highest", "wanted", "wanted._found", "hearsay", "visits", "visited"),
    # Bounds, of events and of their bytes.
    *("schedule._most", "schedule._shares"),
    # How much has entered lately.
    "placements._notes",
}


def judge_empty(sim: Overlay) -> None:
    """When all clients have left for good, nothing is left of them, in whatever part."""
    for host in sim.hosts.values():
        core = host.core
        assert core.router.is_empty
        parts = {name: part for name, part in vars(core).items() if hasattr(part, "__dict__")}
        left = {
            f"{name}.{attribute}": value
            for name, part in parts.items()
            if name not in ("hooks", "directory")
            for attribute, value in vars(part).items()
            if isinstance(value, Sized)
            and not isinstance(value, str | bytes)
            and not {attribute.lstrip("_"), f"{name}.{attribute}".lstrip("_")} & _KEPT
            and len(value)
        }
        # What is volatile waits as two lists.
        assert left.pop("publishing._volatile") == ([], [])
        assert not left, left
        assert not core.probing.probes._waves
