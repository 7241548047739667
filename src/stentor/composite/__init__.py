"""Composite events: patterns over events, and what detects them, without clock, input or output.

`Pattern` is what to detect, as a value. `detect_local` is the meaning of it: the reference detector
over a complete history. `Detector` is what brokers and the pipeline run: many patterns over one
stream, through the index and compiled automata, equal to the reference on every history.

How a host uses a detector:

    detector = Detector(patterns, policy=Guaranteed(sources), limits=Limits(...))
    fed = detector.feed(batch, now)          # notifications that have arrived
    fed = detector.heartbeat(source, time)   # a source has nothing before that time any more
    fed = detector.advance(now)              # at fed.wake at the latest
    fed.detections                           # CompositeEvents; found.notification() to publish
    detector.snapshot(), detector.restore()  # everything that it knows, as bytes
    detector.status                          # runs, memory, and what was late or given up

Times are seconds since 1970 where a host passes them, and whole microseconds inside. A detector
never looks at a clock and makes no choice by chance: the same calls give the same result, and
repeated detections have the same ids. State is kept by pattern and partition; for a host that keeps
it per key itself, as Spark does, a detector per key with `snapshot` and `restore` is the way: a
snapshot of few runs is small, and `finish` closes a history that is complete.

Who may contribute is up to the host: under `Guaranteed`, every source that can publish a matching
event must be named or heard of before it is relied on, or nothing is known of what it withholds.
"""

from stentor.composite.builder import Event
from stentor.composite.detector import Detector, Fed, Status
from stentor.composite.events import CompositeEvent, Occurrence, SubEvent, sub_events
from stentor.composite.intervals import Interval, interval_of
from stentor.composite.pattern import Pattern
from stentor.composite.reference import detect_local
from stentor.composite.runs import Limits
from stentor.composite.stability import BestEffort, Guaranteed, Policy, Probabilistic, Watermarked

__all__ = [
    "BestEffort",
    "CompositeEvent",
    "Detector",
    "Event",
    "Fed",
    "Guaranteed",
    "Interval",
    "Limits",
    "Occurrence",
    "Pattern",
    "Policy",
    "Probabilistic",
    "Status",
    "SubEvent",
    "Watermarked",
    "detect_local",
    "interval_of",
    "sub_events",
]
