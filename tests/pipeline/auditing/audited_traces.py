"""Traces for the audit, from a seed: runs of a correct service, the same with faults, and chaos."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.semantics import Action, Notify, Pub, Quiescent, Trace, Unsub

COMPONENTS = ("a", "b", "c", "d")
FILTERS = [
    Filter(text)
    for text in (
        "x in (1, 2)",
        "x in (2, 3)",
        "x > 1",
        "",
        "x = 1 or kind = 'big'",
        "kind prefix 'b' and x < 4",
        "not exists kind",
        "_producer = 'a'",
        "_types contains 'quote'",
        "x > 5 and x < 5",
        "tags contains 'red'",
    )
]
# Ids of any hashable type, some of which look the same.
IDS = (0, 1, "1", ("s", 2), "sub")


def notification(random: Random, producer: str, number: int) -> Notification:
    content: dict[str, object] = {"x": random.choice([1, 1, 2, 2, 3, 4, 2.0, "2"])}
    if random.random() < 0.4:
        content["kind"] = random.choice(["big", "blue", "small"])
    if random.random() < 0.2:
        content["tags"] = random.choice([["red", "green"], {"red"}, ["blue"]])
    return Notification(
        content,
        type=random.choice([None, "quote.stock", "trade"]),
        id=NotificationId(random.choice([producer, f"{producer}:x"]), random.randrange(2), number),
        payload=random.choice([b"", b"", b"..."]),
        time=random.choice([None, datetime(2024, 1, 2, tzinfo=UTC)]),
    )


def altered(random: Random, n: Notification) -> Notification:
    """Other content under the same id; sometimes just other bytes for the same content."""
    return random.choice(
        [
            lambda: n.replace(attributes={**n, "x": random.choice([1, 1.0, True, 9])}),
            lambda: n.replace(attributes={"y": 1, **n}),
            lambda: n.replace(payload=b"!", type="other"),
            lambda: n.replace(attributes=dict(reversed(list(n.items())))),
        ]
    )()


def chaos(random: Random, size: int) -> Trace:
    """Any actions whatever, but deliveries are mostly of what was published."""
    trace = Trace()
    published: list[Notification] = []
    rare = ["unsub", "unadv", "republish", "phantom", "altered", "internal", "foreign"]
    kinds = random.choice(
        [
            [*rare, "sub", "sub", "sub", "adv", "adv", *["pub", "notify", "notify", "|"] * 3],
            ["pub", "notify", "notify"],
            ["reply", "notify"],
            ["sub", "sub", "unsub", "adv", "pub", "notify", "notify", "notify", "|"],
        ]
    )
    for _ in range(size):
        kind, component = random.choice(kinds), random.choice(COMPONENTS)
        n = random.choice(published) if published else None
        if kind == "sub":
            trace.sub(component, random.choice(IDS), random.choice(FILTERS))
        elif kind == "unsub":
            trace.unsub(component, random.choice(IDS))
        elif kind == "adv":
            trace.adv(component, random.choice(IDS), random.choice(FILTERS))
        elif kind == "unadv":
            trace.unadv(component, random.choice(IDS))
        elif kind == "|":
            trace.quiescent()
        elif kind in ("pub", "reply"):
            if kind == "reply" and published:
                trace.notify(component, published[-1])
            new = notification(random, component, len(published))
            published.append(new)
            trace.pub(component, new)
        elif kind == "phantom":
            # Of what is published later, perhaps, and then with other content.
            trace.notify(component, notification(random, component, len(published)))
        elif kind == "internal" or n is None:
            trace.internal("step")
        elif kind == "notify":
            trace.notify(component, n)
        elif kind == "altered":
            trace.notify(component, altered(random, n))
        elif kind == "foreign":
            trace.pub(component, altered(random, n))
        else:
            trace.pub(component, n)
    return trace


def correct(random: Random, size: int) -> Trace:
    """A central service: in order, exactly once, to exactly those who are interested."""
    trace = Trace()
    subscriptions: dict[tuple[str, object], Filter] = {}
    queue: list[tuple[str, Notification]] = []
    seen: set[tuple[str, NotificationId]] = set()
    count = 0

    def deliver(most: int) -> None:
        for _ in range(min(most, len(queue))):
            component, n = queue.pop(0)
            wanted = any(c == component and f.matches(n) for (c, _), f in subscriptions.items())
            if wanted and n.id is not None and (component, n.id) not in seen:
                seen.add((component, n.id))
                trace.notify(component, n)

    for component in COMPONENTS:
        trace.adv(component, "all", Filter())
    for _ in range(size):
        step, component = random.random(), random.choice(COMPONENTS)
        if step < 0.15:
            id, filter = random.choice(IDS), random.choice(FILTERS)
            trace.sub(component, id, filter)
            subscriptions.setdefault((component, id), filter)
        elif step < 0.2:
            id = random.choice(IDS)
            trace.unsub(component, id)
            subscriptions.pop((component, id), None)
        elif step < 0.3:
            deliver(len(queue))
            trace.quiescent()
        elif step < 0.7:
            n = notification(random, component, count)
            count += 1
            trace.pub(component, n)
            interested = dict.fromkeys(c for (c, _), f in subscriptions.items() if f.matches(n))
            queue += [(c, n) for c in interested]
        else:
            deliver(random.randrange(4))
    deliver(len(queue))
    trace.quiescent()
    return trace


def _positions(trace: list[Action], kind: type | tuple[type, ...]) -> list[int]:
    return [i for i, action in enumerate(trace) if isinstance(action, kind)]


def lose(random: Random, trace: list[Action]) -> None:
    if found := _positions(trace, Notify):
        del trace[random.choice(found)]


def duplicate(random: Random, trace: list[Action]) -> None:
    if found := _positions(trace, Notify):
        at = random.choice(found)
        trace.insert(random.randint(at + 1, len(trace)), trace[at])


def invent(random: Random, trace: list[Action]) -> None:
    n = notification(random, "ghost", 0)
    trace.insert(random.randint(0, len(trace)), Notify(random.choice(COMPONENTS), n))


def alter(random: Random, trace: list[Action]) -> None:
    if found := _positions(trace, Notify):
        at = random.choice(found)
        action = trace[at]
        assert isinstance(action, Notify)
        trace[at] = Notify(action.component, altered(random, action.notification))


def misdirect(random: Random, trace: list[Action]) -> None:
    if found := _positions(trace, Notify):
        at = random.choice(found)
        action = trace[at]
        assert isinstance(action, Notify)
        trace[at] = Notify(random.choice(COMPONENTS), action.notification)


def swap(random: Random, trace: list[Action]) -> None:
    found = _positions(trace, Notify)
    if len(found) > 1:
        at = random.randrange(len(found) - 1)
        one, two = found[at], found[random.randint(at + 1, min(at + 6, len(found) - 1))]
        trace[one], trace[two] = trace[two], trace[one]


def too_early(random: Random, trace: list[Action]) -> None:
    """A delivery before the publication."""
    if found := _positions(trace, Notify):
        at = random.choice(found)
        trace.insert(random.randint(0, at), trace.pop(at))


def withdraw(random: Random, trace: list[Action]) -> None:
    """A subscription ends while its notifications are still under way."""
    unsub = Unsub(random.choice(COMPONENTS), random.choice(IDS))
    trace.insert(random.randint(0, len(trace)), unsub)


def unadvertise(random: Random, trace: list[Action]) -> None:
    del trace[random.choice(range(len(COMPONENTS)))]


def republish(random: Random, trace: list[Action]) -> None:
    if found := _positions(trace, Pub):
        at = random.choice(found)
        action = trace[at]
        assert isinstance(action, Pub)
        again = Pub(random.choice(COMPONENTS), action.notification)
        trace.insert(random.randint(at + 1, len(trace)), again)


def unsettle(random: Random, trace: list[Action]) -> None:
    if found := _positions(trace, Quiescent):
        del trace[random.choice(found)]


MUTATIONS: list[Callable[[Random, list[Action]], None]] = [
    *(lose, duplicate, invent, alter, misdirect, swap, swap, too_early, withdraw, unadvertise),
    *(republish, unsettle),
]


def generated(seed: int, count: int) -> dict[str, Trace]:
    """Traces by name; a third of each kind."""
    random = Random(seed)
    traces: dict[str, Trace] = {"empty but for a step": Trace()}
    traces["empty but for a step"].internal()
    for number in range(count):
        size = random.choice([6, 15, 30, 60])
        if number % 3 == 0:
            traces[f"chaos {number}"] = chaos(random, size)
            continue
        trace = correct(random, size)
        if number % 3 == 1:
            actions = list(trace)
            chosen = random.choices(MUTATIONS, k=random.choice([1, 1, 2, 4]))
            for mutate in chosen:
                mutate(random, actions)
            names = "+".join(mutate.__name__ for mutate in chosen)
            traces[f"{names} {number}"] = Trace(actions)
        else:
            traces[f"correct {number}"] = trace
    return traces
