"""Channels and topics: the service sees one name, and names never interact (R-07.04).

A channel's name stands outside of the event's content (`Notification(..., channel=...)`); a topic
is an attribute among others. Either way a subscription is a content filter with one equality, so
the same matcher and the same routing serve it, and a content filter can narrow it.
"""

from __future__ import annotations

from stentor.filters.addressing.content import CHANNEL, Content, check_text, with_content
from stentor.filters.expression import Atom
from stentor.filters.filter import Filter


def channel(name: str, content: Content = None) -> Filter:
    """Everything that is published on the channel, or the part of it that the content filter wants.

    >>> from stentor import Notification
    >>> f = channel("trades", "price > 100")
    >>> print(f)
    _channel = 'trades' and price > 100
    >>> f.matches(Notification({"price": 120}, channel="trades"))
    True
    """
    check_text("a channel", name)
    return with_content(Filter.of_expression(Atom(CHANNEL, "=", (name,))), content)


def topic(name: str, content: Content = None, *, attribute: str = "topic") -> Filter:
    """The events of a topic, whose name they carry in an attribute: one equality (R-07.03).

    >>> print(topic("alarms", "level >= 3"))
    level >= 3 and topic = 'alarms'
    """
    check_text("the attribute of a topic", attribute)
    return with_content(Filter.of_expression(Atom(attribute, "=", (name,))), content)
