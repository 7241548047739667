"""Event types as addresses: a subscription to a type takes in all its subtypes (R-01.41, R-07.09).

There are two ways to say it. `event_type` asks the set of a notification's types, `_types`, which
holds every supertype; it knows declared parents and so multiple inheritance. `type_path` looks only
at the name: the type itself, or a longer path below it. It needs no declarations, but sees a
single line of descent. In both, whole segments count: `Stock` has nothing to do with `StockQuote`.
"""

from __future__ import annotations

from stentor.errors import FilterSyntaxError
from stentor.filters.addressing.content import TYPE, TYPES, Content, with_content
from stentor.filters.expression import Atom, Or
from stentor.filters.filter import Filter
from stentor.model.names import name_problem, shown


def event_type(name: str, content: Content = None) -> Filter:
    """Events of the type or of any subtype, further narrowed by a content filter.

    The supertypes that are declared by now become part of the filter, which is how a subscription
    to a type is known to cover one to its subtype. Declare types before subscribing to them.

    >>> from stentor import Notification
    >>> f = event_type("quote", "price > 100")
    >>> f.matches(Notification({"price": 120}, type="quote.stock"))
    True
    >>> event_type("quote").covers(event_type("quote.stock"))
    True
    """
    _check(name)
    return with_content(Filter.of_expression(Atom(TYPES, "isa", (name,))), content)


def type_path(name: str, content: Content = None) -> Filter:
    """Events whose type is this path or one below it, by name alone (R-02.23).

    >>> print(type_path("quote"))
    _type = 'quote' or _type prefix 'quote.'
    >>> type_path("Stock").overlaps(type_path("StockQuote"))
    False
    """
    _check(name)
    below = name + "."
    either = Or((Atom(TYPE, "=", (name,)), Atom(TYPE, "prefix", (below,))))
    return with_content(Filter.of_expression(either), content)


def _check(name: str) -> None:
    problem = name_problem(name)
    if problem is not None:
        raise FilterSyntaxError(f"the event type {shown(name)} {problem}; write it as in a.b.c")
