"""Steps: functions from event tables to event tables, for streams and batches alike.

    select(events, filter)             the events that a filter matches
    deduplicate(events, within)        each event once, by its id
    watermark(events, delay)           how late events may come
    transform(events, set, keep)       computed attributes; also `rename` and `convert`
    enrich(events, table, on)          what a table knows of each event
    apply(events, function, schema)    a function over notifications
    collapse(events, key, rule)        a history becomes a state
    expand(states, key, rule)          a state becomes a history
    join(left, right, on, within)      pairs of events close in time
    multi_topic(query, **tables)       a continuous query over several tables; `relational` over one
    order(events, within)              in the order of publication

`register_step` makes a further one known to pipelines in TOML. Nothing here imports Spark before it
is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stentor.pipeline.lazy_names import lazily

if TYPE_CHECKING:
    from stentor.pipeline.steps.events import watermark
    from stentor.pipeline.steps.functions import apply
    from stentor.pipeline.steps.histories import expand
    from stentor.pipeline.steps.joins import join
    from stentor.pipeline.steps.mappings import convert, enrich, rename, transform
    from stentor.pipeline.steps.options import Option
    from stentor.pipeline.steps.queries import multi_topic, relational
    from stentor.pipeline.steps.registry import register_step, steps
    from stentor.pipeline.steps.selection import deduplicate, select
    from stentor.pipeline.steps.sequences import order
    from stentor.pipeline.steps.states import collapse

__all__ = [
    "Option",
    "apply",
    "collapse",
    "convert",
    "deduplicate",
    "enrich",
    "expand",
    "join",
    "multi_topic",
    "order",
    "register_step",
    "relational",
    "rename",
    "select",
    "steps",
    "transform",
    "watermark",
]

__getattr__ = lazily(
    __name__,
    events="watermark",
    functions="apply",
    histories="expand",
    joins="join",
    mappings="convert enrich rename transform",
    options="Option",
    queries="multi_topic relational",
    registry="register_step steps",
    selection="deduplicate select",
    sequences="order",
    states="collapse",
)
