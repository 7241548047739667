"""The conditions straight from their definitions: slow, and as plain as the formulas.

Nothing here is shared with the checker but the actions. Each function takes the positions apart,
searches for the forbidden pattern, and counts what is at fault as (condition, position).
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator

from stentor.filters import Filter
from stentor.model import NotificationId
from stentor.semantics import (
    Adv,
    Condition,
    Notify,
    Pub,
    Quiescent,
    Sub,
    Trace,
    Unadv,
    Unsub,
)

Faults = Counter[tuple[Condition, int]]
Kept = dict[Hashable, tuple[Filter, int]]


def _active(trace: Trace, begin: type, end: type, component: str, position: int) -> Kept:
    """The filters of a component just before a position, and since when."""
    active: Kept = {}
    for at, action in enumerate(trace[:position]):
        if isinstance(action, begin) and action.component == component:
            active.setdefault(action.id, (action.filter, at))
        elif isinstance(action, end) and action.component == component:
            active.pop(action.id, None)
    return active


def _publication(trace: Trace, id: NotificationId, before: int) -> int | None:
    for at, action in enumerate(trace[:before]):
        if isinstance(action, Pub) and action.id == id:
            return at
    return None


def _publications(trace: Trace) -> Iterator[tuple[int, Pub]]:
    for at, action in enumerate(trace):
        if isinstance(action, Pub) and _publication(trace, action.id, at) is None:
            yield at, action


def _deliveries(trace: Trace) -> list[tuple[int, str, NotificationId]]:
    """First deliveries of what had been published."""
    found: list[tuple[int, str, NotificationId]] = []
    for at, action in enumerate(trace):
        if (
            isinstance(action, Notify)
            and _publication(trace, action.id, at) is not None
            and not any((c, n) == (action.component, action.id) for _, c, n in found)
        ):
            found.append((at, action.component, action.id))
    return found


def safety(trace: Trace, *, advertisements: bool) -> Faults:
    faults: Faults = Counter()
    for at, action in enumerate(trace):
        if isinstance(action, Pub) and _publication(trace, action.id, at) is not None:
            faults[Condition.REPEATED_PUBLICATION, at] += 1
        if not isinstance(action, Notify):
            continue
        n = action.notification
        published = _publication(trace, action.id, at)
        if published is None:
            faults[Condition.PHANTOM, at] += 1
        else:
            publication = trace[published]
            assert isinstance(publication, Pub)
            n = publication.notification
            if action.notification != n:
                faults[Condition.ALTERED, at] += 1
            advertised = _active(trace, Adv, Unadv, publication.component, published).values()
            if advertisements and not any(f.matches(n) for f, _ in advertised):
                faults[Condition.UNADVERTISED, at] += 1
        subscriptions = _active(trace, Sub, Unsub, action.component, at).values()
        if not any(f.matches(n) for f, _ in subscriptions):
            faults[Condition.NOT_SUBSCRIBED, at] += 1
        if any(
            isinstance(earlier, Notify)
            and (earlier.component, earlier.id) == (action.component, action.id)
            for earlier in trace[:at]
        ):
            faults[Condition.DUPLICATE, at] += 1
    return faults


def liveness(trace: Trace, *, advertisements: bool) -> Faults:
    faults: Faults = Counter()
    points = [at for at, action in enumerate(trace) if isinstance(action, Quiescent)]
    components = {action.component for action in trace if isinstance(action, Sub)}
    for at, action in _publications(trace):
        if not points or at > points[-1]:
            continue

        def settled(kept: Kept, at: int = at, action: Pub = action) -> bool:
            return any(
                filter.matches(action.notification) and any(since < t < at for t in points)
                for filter, since in kept.values()
            )

        if advertisements and not settled(_active(trace, Adv, Unadv, action.component, len(trace))):
            continue
        for component in components:
            if settled(_active(trace, Sub, Unsub, component, len(trace))) and not any(
                isinstance(later, Notify) and (later.component, later.id) == (component, action.id)
                for later in trace[at : points[-1]]
            ):
                faults[Condition.LOST, at] += 1
    return faults


def fifo(trace: Trace) -> Faults:
    publisher = {action.id: (action.component, at) for at, action in _publications(trace)}
    deliveries = _deliveries(trace)
    return _at_fault(
        Condition.FIFO,
        trace,
        lambda at, y, a: any(
            c == y
            and before < at
            and publisher[b][0] == publisher[a][0]
            and publisher[b][1] > publisher[a][1]
            for before, c, b in deliveries
        ),
    )


def _ancestors(
    trace: Trace, *, own_publications: bool
) -> dict[NotificationId, set[NotificationId]]:
    ancestors: dict[NotificationId, set[NotificationId]] = {}
    deliveries = _deliveries(trace)
    for at, action in _publications(trace):
        past = {n for before, c, n in deliveries if c == action.component and before < at}
        if own_publications:
            past |= {
                earlier.id
                for before, earlier in _publications(trace)
                if earlier.component == action.component and before < at
            }
        ancestors[action.id] = past.union(*(ancestors[m] for m in past))
    return ancestors


def _causal(condition: Condition, trace: Trace, *, own_publications: bool) -> Faults:
    ancestors = _ancestors(trace, own_publications=own_publications)
    deliveries = _deliveries(trace)
    return _at_fault(
        condition,
        trace,
        lambda at, y, a: any(
            c == y and before < at and a in ancestors[b] for before, c, b in deliveries
        ),
    )


def causal(trace: Trace) -> Faults:
    return _causal(Condition.CAUSAL, trace, own_publications=True)


def causal_printed(trace: Trace) -> Faults:
    return _causal(Condition.CAUSAL_PRINTED, trace, own_publications=False)


def total_pairwise(trace: Trace) -> Faults:
    deliveries = _deliveries(trace)
    return _at_fault(
        Condition.TOTAL_PAIRWISE,
        trace,
        lambda at, y, n: any(
            c == y and z == other != y and first == n and second == m and p < q < at
            for before, c, m in deliveries
            if before < at
            for p, z, first in deliveries
            for q, other, second in deliveries
        ),
    )


def total_global(trace: Trace) -> Faults:
    """The first delivery with which some notification comes before itself."""
    precedes: set[tuple[NotificationId, NotificationId]] = set()
    deliveries = _deliveries(trace)
    for at, y, n in deliveries:
        earlier = {m for before, c, m in deliveries if c == y and before < at}
        below = earlier | {m for m, k in precedes if k in earlier}
        above = {n} | {k for m, k in precedes if m == n}
        precedes |= {(m, k) for m in below for k in above}
        if any(m == k for m, k in precedes):
            return Counter({(Condition.TOTAL_GLOBAL, at): 1})
    return Counter()


def _at_fault(
    condition: Condition, trace: Trace, late: Callable[[int, str, NotificationId], bool]
) -> Faults:
    return Counter((condition, at) for at, y, n in _deliveries(trace) if late(at, y, n))


ORDERS: dict[str, Callable[[Trace], Faults]] = {
    "fifo": fifo,
    "causal": causal,
    "causal_printed": causal_printed,
    "total_pairwise": total_pairwise,
    "total_global": total_global,
}
