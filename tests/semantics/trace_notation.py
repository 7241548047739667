"""Traces as the specification writes them, and generated ones.

`written("sub(Y,F) p(A,1) n(Y,1)")` is a trace; `.` is an internal step and `|` a settling point. A
notification is named by a word that begins with its attribute `x`: `1` and `1x` are two with the
same content. A filter is named `F`, `G` or `ALL` and is its own id, unless one is written before it
(`sub(Y,f:F)`).
"""

import re
from collections.abc import Sequence
from random import Random

from hypothesis import strategies as st

from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.semantics import Trace

FILTERS = {"F": Filter("x in (1, 2)"), "G": Filter("x in (2, 3)"), "ALL": Filter("x in (1, 2, 3)")}
COMPONENTS = ("a", "b", "c", "d")

_WORD = re.compile(r"(\w+)\((\w+),(?:(\w+):)?(\w+)\)|[.|]")


def named(name: str) -> Notification:
    return Notification({"x": int(name[0])}, id=NotificationId(name, 0, 0))


def written(text: str) -> Trace:
    trace = Trace()
    for word in text.split():
        parts = _WORD.fullmatch(word)
        assert parts is not None, word
        operation, component, id, name = parts.groups()
        match operation:
            case "sub":
                trace.sub(component, id or name, FILTERS[name])
            case "adv":
                trace.adv(component, id or name, FILTERS[name])
            case "unsub":
                trace.unsub(component, name)
            case "unadv":
                trace.unadv(component, name)
            case "pub" | "p":
                trace.pub(component, named(name))
            case "notify" | "n":
                trace.notify(component, named(name))
            case _ if word == "|":
                trace.quiescent()
            case _:
                trace.internal()
    return trace


_RARE = ("sub", "unsub", "adv", "unadv", "republish", "phantom", "altered", "internal")
_OPERATIONS = (*_RARE, "sub", "adv", *["pub", "notify", "notify", "quiescent"] * 3)
_CHOICES = range(12)
_Step = tuple[str, str, int, str]


def _random_steps(seed: int, size: int, operations: Sequence[str]) -> list[_Step]:
    random = Random(seed)
    pools = (operations, COMPONENTS, _CHOICES, sorted(FILTERS))
    return [tuple(random.choice(pool) for pool in pools) for _ in range(size)]  # type: ignore[misc]


def _build(steps: list[_Step]) -> Trace:
    """Any run whatever, but deliveries are mostly of what was published."""
    trace = Trace()
    published: list[Notification] = []
    for operation, component, choice, filter in steps:
        id = choice % 2
        if operation == "sub":
            trace.sub(component, id, FILTERS[filter])
        elif operation == "unsub":
            trace.unsub(component, id)
        elif operation == "adv":
            trace.adv(component, id, FILTERS[filter])
        elif operation == "unadv":
            trace.unadv(component, id)
        elif operation == "quiescent":
            trace.quiescent()
        elif operation in ("pub", "reply"):
            if operation == "reply" and published:
                trace.notify(component, published[-1])
            n = Notification({"x": 1 + choice % 4}, id=NotificationId(component, 0, len(published)))
            published.append(n)
            trace.pub(component, n)
        elif operation == "phantom":
            unpublished = NotificationId(component, 0, len(published))
            trace.notify(component, Notification({"x": 1}, id=unpublished))
        elif operation == "internal" or not published:
            trace.internal()
        else:
            n = published[choice % len(published)]
            if operation == "notify":
                trace.notify(component, n)
            elif operation == "altered":
                trace.notify(component, n.replace(attributes={"x": 1 + choice % 4}))
            else:
                trace.pub(component, n)
    return trace


_SHORT = st.lists(
    st.tuples(
        st.sampled_from(_OPERATIONS),
        st.sampled_from(COMPONENTS),
        st.sampled_from(_CHOICES),
        st.sampled_from(sorted(FILTERS)),
    ),
    max_size=20,
)
# Faults of order need many deliveries, more than Hypothesis makes on its own, and chains of
# publications each of which answers the one before.
_LONG = st.builds(
    _random_steps,
    st.integers(0, 2**32),
    st.integers(20, 60),
    st.sampled_from([_OPERATIONS, ("pub", "notify", "notify"), ("reply", "notify")]),
)
TRACES = st.one_of(_SHORT, _LONG).map(_build)


def subscribed(trace: Trace) -> Trace:
    """The same, after every component subscribed to everything, advertised F, and settled."""
    begin = Trace()
    for component in COMPONENTS:
        begin.sub(component, "everything", Filter())
        begin.adv(component, "F", FILTERS["F"])
    begin.quiescent()
    return Trace([*begin, *trace])
