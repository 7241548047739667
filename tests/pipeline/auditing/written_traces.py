"""The vectors of the specification: traces as it writes them, and what each breaks.

`p` is pub and `n` notify. A notification is named by a word that begins with its attribute `x`: `1`
and `1x` are two with the same content. A filter is its own id.
"""

import re

from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.semantics import Trace

_FILTERS = {"F": Filter("x in (1, 2)"), "G": Filter("x in (2, 3)"), "ALL": Filter("x in (1, 2, 3)")}
_WORD = re.compile(r"(\w+)\((\w+),(\w+)\)")
_COMPONENTS = "ABCUVWYZ"

#: Each with the conditions of the basic service that it breaks.
SAFETY = {
    "S1": ("sub(Y,F) p(A,1) n(Y,1)", ()),
    "S2": ("sub(Y,F) p(A,1) unsub(Y,F) n(Y,1)", ("NOT_SUBSCRIBED",)),
    "S3": ("sub(Y,F) sub(Y,G) p(A,2) unsub(Y,F) n(Y,2)", ()),
    "S4": ("sub(Y,F) sub(Y,G) p(A,2) n(Y,2) n(Y,2)", ("DUPLICATE",)),
    "S5": ("sub(Y,F) p(A,1) n(Y,1) unsub(Y,F) sub(Y,F) n(Y,1)", ("DUPLICATE",)),
    "S6": ("sub(Y,F) sub(Y,F) unsub(Y,F) p(A,1) n(Y,1)", ("NOT_SUBSCRIBED",)),
    "S7": ("p(A,1) sub(Y,F) n(Y,1)", ()),
    "S8": ("sub(Y,F) n(Y,1)", ("PHANTOM",)),
    "S9": ("p(A,1) p(A,1)", ("REPEATED_PUBLICATION",)),
    "S10": ("sub(A,F) p(A,1) n(A,1)", ()),
    "S11": ("sub(Y,F) unsub(Y,F) p(A,1) sub(Y,F) n(Y,1)", ()),
}
ADVERTISED = {
    "V1": ("sub(Y,ALL) p(A,1) n(Y,1)", ("UNADVERTISED",)),
    "V2": ("sub(Y,ALL) adv(A,F) p(A,1) n(Y,1)", ()),
    "V3": ("sub(Y,ALL) adv(A,F) p(A,3) n(Y,3)", ("UNADVERTISED",)),
    "V4": ("sub(Y,ALL) p(A,1) adv(A,F) n(Y,1)", ("UNADVERTISED",)),
    "V5": ("sub(Y,ALL) adv(A,F) p(A,1) unadv(A,F) n(Y,1)", ()),
    "V6": ("sub(Y,ALL) adv(B,F) p(A,1) n(Y,1)", ("UNADVERTISED",)),
    "V7": ("sub(Y,ALL) adv(A,F) adv(A,G) unadv(A,F) p(A,2) n(Y,2)", ()),
}
_TOTAL = ("TOTAL_PAIRWISE", "TOTAL_GLOBAL")
#: Each with the orders that it breaks.
ORDERED = {
    "O1": ("p(A,1) p(A,2) n(B,2) n(B,1)", ("FIFO", "CAUSAL")),
    "O2": ("p(A,1) n(B,1) p(B,2) n(Y,2) n(Y,1)", ("CAUSAL", "CAUSAL_PRINTED")),
    "O3": ("p(A,1) n(B,1) p(B,2) n(C,2) p(C,3) n(Y,3) n(Y,1)", ("CAUSAL", "CAUSAL_PRINTED")),
    "O4": ("p(A,1) n(B,1) p(B,2) n(Y,1) n(Y,2)", ()),
    "O5": ("p(A,1) p(A,1x) n(B,1x) p(B,2) n(Y,2) n(Y,1)", ("CAUSAL",)),
    "O6": ("p(A,1) n(B,1) p(B,2) p(B,3) n(Y,3) n(Y,2)", ("FIFO", "CAUSAL")),
    "O7": ("p(A,1) p(B,2) n(Y,1) n(Y,2) n(Z,2) n(Z,1)", _TOTAL),
    "O8": ("p(A,1) p(A,2) n(Y,2) n(Y,1) n(Z,2) n(Z,1)", ("FIFO", "CAUSAL")),
    "O9": (
        "p(A,1) p(B,2) p(C,3) n(U,1) n(U,2) n(V,2) n(V,3) n(W,3) n(W,1)",
        ("TOTAL_GLOBAL",),
    ),
    "O10": ("p(A,1) p(B,2) n(B,1) n(Y,2) n(Y,1)", ()),
}


def written(text: str, *, before: str = "") -> Trace:
    """The trace, if wanted after something that all components did."""
    trace = Trace()
    for component in _COMPONENTS:
        if "adv" in before:
            trace.adv(component, "everything", Filter())
        if "sub" in before:
            trace.sub(component, "everything", Filter())
    for word in text.split():
        found = _WORD.fullmatch(word)
        assert found is not None, word
        operation, component, name = found.groups()
        n = (
            Notification({"x": int(name[0])}, id=NotificationId(name, 0, 0))
            if name[0] < "A"
            else None
        )
        if n is not None:
            (trace.pub if operation == "p" else trace.notify)(component, n)
        elif operation in ("sub", "adv"):
            (trace.sub if operation == "sub" else trace.adv)(component, name, _FILTERS[name])
        else:
            (trace.unsub if operation == "unsub" else trace.unadv)(component, name)
    return trace


def vectors() -> dict[str, tuple[Trace, set[str]]]:
    """All of them, for a judgment with advertisements: each with what it breaks."""
    found = {
        name: (written(text, before="adv"), set(broken)) for name, (text, broken) in SAFETY.items()
    }
    found |= {name: (written(text), set(broken)) for name, (text, broken) in ADVERTISED.items()}
    found |= {
        name: (written(text, before="adv sub"), set(broken))
        for name, (text, broken) in ORDERED.items()
    }
    return found
