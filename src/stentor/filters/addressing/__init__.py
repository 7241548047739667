"""The addressing models of the field, all compiled into content filters.

Channels, topics, subjects in several dialects, event types and tuples differ in how a subscriber
says what it wants. Here each is a constructor that returns a `Filter`, so one matcher, one algebra
and one router serve them all, and any of them can be narrowed by content. See docs/addressing.md.
"""

from stentor.filters.addressing.channels import channel, topic
from stentor.filters.addressing.event_types import event_type, type_path
from stentor.filters.addressing.records import TupleClass
from stentor.filters.addressing.spaces import SubjectSpace
from stentor.filters.addressing.subjects import subject, subject_like
from stentor.filters.addressing.tuples import (
    ANY,
    Prefix,
    jedi_event,
    jedi_template,
    template,
    tuple_notification,
    tuple_values,
)

__all__ = [
    "ANY",
    "Prefix",
    "SubjectSpace",
    "TupleClass",
    "channel",
    "event_type",
    "jedi_event",
    "jedi_template",
    "subject",
    "subject_like",
    "template",
    "topic",
    "tuple_notification",
    "tuple_values",
    "type_path",
]
