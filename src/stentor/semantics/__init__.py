"""The formal model as software: an oracle that says what may happen, a checker of what did.

A run of any router, overlay or pipeline is recorded as a `Trace` of interface actions and held
against the specification by `check`. While a run is under way, an `Oracle` that is shown the same
actions knows whom a publication may and must reach.

    >>> from stentor.filters import Filter
    >>> from stentor.model import Notification, NotificationId
    >>> trace = Trace()
    >>> trace.sub("b", "b#1", Filter("price > 10"))
    >>> trace.quiescent()
    >>> trace.pub("a", Notification({"price": 12}, id=NotificationId("a", 0, 0)))
    >>> trace.quiescent()
    >>> print(check(trace))
    1 violation (4 actions, 1 publication, 0 deliveries, 1 owed)
      LOST at action 2: a published a:0:0 at action 2, but b was not notified of it by the last
      settling point, action 3, although its subscription b#1 (price > 10) had settled at action 1
"""

from stentor.semantics.actions import (
    Action,
    Adv,
    Again,
    Attach,
    CutOff,
    Detach,
    Internal,
    Notify,
    Pub,
    Quiescent,
    ReadingTerms,
    Rescoped,
    Settle,
    Sub,
    Trace,
    Unadv,
    Unsub,
    Visibility,
)
from stentor.semantics.checker import check
from stentor.semantics.oracle import Oracle
from stentor.semantics.scoped import check_scoped
from stentor.semantics.violations import Condition, Report, Violation

__all__ = [
    "Action",
    "Adv",
    "Again",
    "Attach",
    "Condition",
    "CutOff",
    "Detach",
    "Internal",
    "Notify",
    "Oracle",
    "Pub",
    "Quiescent",
    "ReadingTerms",
    "Report",
    "Rescoped",
    "Settle",
    "Sub",
    "Trace",
    "Unadv",
    "Unsub",
    "Violation",
    "Visibility",
    "check",
    "check_scoped",
]
