"""Does a run conform? All conditions, on a recorded trace.

Safety is the oracle's judgment, action by action; liveness and the orders look at the history that
is left when what is at fault by itself is taken out; `settlement` is about durable subscriptions
and groups. Each part is near linear in the length of the
trace, apart from matching and from comparing pairs of components once their orders disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stentor.errors import InvalidConfiguration
from stentor.filters import Filter
from stentor.semantics.actions import Action, Notify
from stentor.semantics.history import history_of
from stentor.semantics.liveness import liveness
from stentor.semantics.oracle import Oracle
from stentor.semantics.orders import ORDERS
from stentor.semantics.settlement import settlement, unordered
from stentor.semantics.violations import Report


def check(
    trace: Sequence[Action],
    *,
    advertisements: bool = False,
    order: Iterable[str] = (),
    among: Filter | None = None,
    settling: bool = True,
) -> Report:
    """Hold a trace against the specification.

    `advertisements` turns on their stronger safety and weaker liveness (R-01.33, R-01.34). `order`
    names the orders to hold, any of `fifo`, `causal`, `causal_printed`, `total_pairwise` and
    `total_global`; they are asked of the notifications that `among` matches, if it is given.
    `settling` asks for liveness by settling points; without it nothing is owed. Readers of durable
    subscriptions and groups are judged by what they settled (`settlement`); orders are not asked of
    those to which none was promised.

    >>> from stentor.filters import Filter
    >>> from stentor.model import Notification, NotificationId
    >>> from stentor.semantics import Trace
    >>> one, two = (Notification({"x": x}, id=NotificationId("a", 0, x)) for x in (1, 2))
    >>> trace = Trace()
    >>> trace.sub("b", "b#1", Filter("x > 0"))
    >>> for n in (one, two):
    ...     trace.pub("a", n)
    >>> for n in (two, one):
    ...     trace.notify("b", n)
    >>> check(trace).ok
    True
    >>> print(check(trace, order=["fifo"]))
    1 violation (5 actions, 2 publications, 2 deliveries, 0 owed)
      FIFO at action 4: b was notified of a:0:1 at action 4, after a:0:2,
      but a published a:0:1 at action 1 and a:0:2 at action 2
    """
    orders = [order] if isinstance(order, str) else list(order)
    for name in orders:
        if name not in ORDERS:
            raise InvalidConfiguration(
                f"there is no order {name!r}; choose from {', '.join(ORDERS)}"
            )
    oracle = Oracle(advertisements=advertisements)
    violations = [violation for action in trace for violation in oracle.step(action)]
    history = history_of(trace)
    owed = 0
    if settling:
        judgment = liveness(history, oracle)
        owed = judgment.owed
        violations += judgment.violations
    violations += settlement(trace, order="fifo" in orders, settling=settling)
    if among is not None:
        history = [(at, each) for at, each in history if among.matches(each.notification)]
    if orders and (without := unordered(trace)):
        history = [
            (at, each)
            for at, each in history
            if not (isinstance(each, Notify) and each.component in without)
        ]
    for name in orders:
        violations += ORDERS[name](history)
    return Report(
        violations=tuple(sorted(violations, key=lambda violation: violation.position)),
        actions=len(trace),
        publications=len(oracle.published),
        deliveries=sum(isinstance(action, Notify) for action in trace),
        owed=owed,
    )
