"""Interfaces: what may cross the boundary of a component, into it and out of it.

Each half is a set of filters, of which one has to match (R-04.31); no filter at all lets nothing
pass ("0"), the empty filter everything ("1"). A half that is omitted means something else in each
place: a base interface is closed then, a selective or an imposed one is open (R-04.35), and of a
simple component it means that what it subscribes to, or advertises, is not known here, so that
nothing is withheld on that account (R-04.36). That is why omitted is a value of its own, None.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from stentor.filters import Filter
from stentor.filters.addressing import event_type
from stentor.filters.expression import Atom
from stentor.model import Notification

#: One half of an interface: filters of which one has to match, or None for omitted.
Half: TypeAlias = tuple[Filter, ...] | None
#: What people may write for a half: a text of the subscription language, a filter, several of
#: them, True for everything, False for nothing.
Written: TypeAlias = "Filter | str | bool | Iterable[Filter | str] | None"

EVERYTHING: Final[tuple[Filter, ...]] = (Filter(),)
NOTHING: Final[tuple[Filter, ...]] = ()


class Interface(Struct, frozen=True):
    """What goes in and what goes out; a half that is None is omitted.

    >>> quotes = Interface.of(output="isa Quote")
    >>> quotes.input is None
    True
    >>> passes(quotes.output, Notification({"price": 1}, type="Quote"), omitted=False)
    True
    """

    input: Half = None
    output: Half = None

    @classmethod
    def of(cls, input: Written = None, output: Written = None) -> Interface:
        """An interface, its halves as people write them."""
        return cls(half_of(input), half_of(output))

    @property
    def is_omitted(self) -> bool:
        return self.input is None and self.output is None


OMITTED: Final = Interface()
OPEN: Final = Interface(EVERYTHING, EVERYTHING)
CLOSED: Final = Interface(NOTHING, NOTHING)


def typed(name: str) -> Filter:
    """What has an event type, or else says in its attribute `type` what it is.

    >>> typed("Quote").matches({"type": "Quote"})
    True
    >>> typed("Quote").matches(Notification({"price": 1}, type="Quote.Stock"))
    True
    """
    return event_type(name) | Filter.of_expression(Atom("type", "=", (name,)))


def half_of(written: Written) -> Half:
    """The filters of a half, each once.

    >>> half_of(True) == EVERYTHING, half_of([]), half_of("x > 1")
    (True, (), (Filter('x > 1'),))
    """
    match written:
        case None:
            return None
        case bool():
            return EVERYTHING if written else NOTHING
        case Filter():
            return (written,)
        case str():
            return (Filter(written),)
    return tuple(
        dict.fromkeys(each if isinstance(each, Filter) else Filter(each) for each in written)
    )


def passes(half: Half, notification: Notification, *, omitted: bool) -> bool:
    """Whether a half lets a notification through; `omitted` is what an omitted half does."""
    if half is None:
        return omitted
    return half is EVERYTHING or any(each.matches(notification) for each in half)
