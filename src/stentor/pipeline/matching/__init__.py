"""Who gets which event: subscriptions against tables and streams of events.

    match(events, subscriptions)      one row for each pair of an event and a filter that matches it

`plans` says how a plan is chosen; each plan has a file: `native`, `indexed`, `sharded`, and
`changing` for subscriptions that come as a stream. `inputs` finds the columns that filters look
at, and `shipping` brings compiled filters to the workers. What runs in Spark's Python workers is
in `working`, `packed` and `seeing`, and for changing subscriptions in `parcels`, `keeping` and
`holding`; a worker loads just what it needs of these.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stentor.pipeline.matching.plans import match

__all__ = ["match"]


def __getattr__(name: str) -> Any:
    if name != "match":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from stentor.pipeline.matching.plans import match

    globals()[name] = match
    return match
