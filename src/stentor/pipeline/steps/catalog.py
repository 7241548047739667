"""The steps that Stentor brings along, as a pipeline in TOML can use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stentor.pipeline.steps.names import check_names
from stentor.pipeline.steps.options import Option, written_pattern
from stentor.pipeline.steps.registry import register_step
from stentor.pipeline.steps.rules import check_expansion, read_rule, read_window

_WATERMARK = Option("duration", "how late events of a stream may come")
_KEY = Option("texts", "the attributes that say whose state it is", required=True)
_RULE = Option("rule", "what each attribute of the state is made of", required=True)


def _check_collapse(options: Mapping[str, Any]) -> None:
    read_rule(options["rule"], options["key"])


def _check_expand(options: Mapping[str, Any]) -> None:
    window = options.get("window")
    rule = read_rule(options["rule"], options["key"])
    check_expansion(rule, None if window is None else read_window(window))


def _check_transform(options: Mapping[str, Any]) -> None:
    check_names(options["set"])


def _check_detect(options: Mapping[str, Any]) -> None:
    pattern = written_pattern(options["pattern"], options["events"], options.get("name"))
    _ = pattern.automaton  # tells whether it is too large


def _step(name: str, function: str, about: str, /, **given: Any) -> None:
    """Make a step known: its options, and what else `register_step` takes, by their names."""
    options = {key: each for key, each in given.items() if isinstance(each, Option)}
    rest = {key: each for key, each in given.items() if key not in options}
    register_step(name, f"stentor.pipeline.{function}", options, about=about, **rest)


_step(
    "select",
    "steps.selection:select",
    "Keep the events that a filter matches.",
    main="filter",
    filter=Option("filter", "what to keep", required=True),
)
_step(
    "deduplicate",
    "steps.selection:deduplicate",
    "Keep each event once, by its id; copies that come too late are not recognized.",
    main="within",
    within=Option("duration", "how long a stream remembers ids", required=True),
)
_step(
    "watermark",
    "steps.events:watermark",
    "Say how late events of a stream may come.",
    main="delay",
    delay=Option("duration", "how late events may come", required=True),
)
_step(
    "transform",
    "steps.mappings:transform",
    "Compute attributes from each event.",
    main="set",
    check=_check_transform,
    set=Option("names", "attributes, and the SQL expression for each", required=True),
    keep=Option("keep", "which of the old attributes stay; all by default"),
)
_step(
    "rename",
    "steps.mappings:rename",
    "Give attributes other names.",
    main="names",
    names=Option("names", "old names and new ones", required=True),
)
_step(
    "convert",
    "steps.mappings:convert",
    "Give attributes other types.",
    main="types",
    types=Option("names", "attributes and their new types", required=True),
)
_step(
    "enrich",
    "steps.mappings:enrich",
    "Add to each event what a table knows of it.",
    table=Option("table", "a table that stands still", required=True),
    on=Option("texts", "the columns that must be equal", required=True),
    columns=Option("texts", "what to add; everything by default"),
    prefix=Option("text", "put before the names of what is added"),
)
_step(
    "apply",
    "steps.functions:apply",
    "Map each event with a function in Python.",
    function=Option("function", "takes a Notification, returns any number", required=True),
    schema=Option("schema", "the attributes of the results", required=True),
)
_step(
    "collapse",
    "steps.states:collapse",
    "Make a history a state: the latest value, the sum, the count of each key.",
    check=_check_collapse,
    updates=lambda options: options.get("window") is None,
    key=_KEY,
    rule=_RULE,
    window=Option("window", "cut the history; by default it is one"),
    watermark=_WATERMARK,
)
_step(
    "expand",
    "steps.histories:expand",
    "Make a state some history whose collapse it is.",
    check=_check_expand,
    key=_KEY,
    rule=_RULE,
    window=Option("window", "as in the collapse"),
)
_step(
    "join",
    "steps.joins:join",
    "Pair events with others that are close in time.",
    right=Option("table", "the other events", required=True),
    on=Option("texts", "the attributes that must be equal"),
    within=Option("duration", "how far apart in time they may be", required=True),
    side=Option("text", "where the other is in time", choices=("around", "before", "after")),
    where=Option("sql", "a condition on left and right"),
    how=Option("text", "left: keep events without partner", choices=("inner", "left")),
    prefix=Option("text", "put before names that clash; right_ by default"),
    watermark=_WATERMARK,
)
_step(
    "sql",
    "steps.queries:query_tables",
    "Answer a continuous query over one or several tables.",
    main="query",
    many=True,
    query=Option("sql", "a SELECT over the tables in `from`", required=True),
    watermark=_WATERMARK,
)
_step(
    "order",
    "steps.sequences:order",
    "Bring events into the order in which they were published.",
    main="within",
    within=Option("duration", "how long a stream waits for earlier ones", required=True),
    by=Option("by", "among which events there is an order; producer by default"),
    late=Option("text", "keep late events, and name the column that says which are"),
    limit=Option("count", "events that wait for each other at most"),
)
_step(
    "match",
    "matching:match",
    "Find out who gets which event.",
    main="subscriptions",
    subscriptions=Option("table", "ids and filters", required=True),
    id=Option("text", "the column of ids; subscription_id by default"),
    filter=Option("text", "the column of filters; filter by default"),
    plan=Option("text", "force a plan", choices=("auto", "native", "index", "sharded")),
    shards=Option("count", "in how many parts filters are spread"),
    order=Option("text", "which of two changes in a stream of subscriptions is later"),
    on_error=Option("text", "a filter that does not parse", choices=("fail", "skip")),
)
_step(
    "scoped",
    "scopes:scoped",
    "Find out who gets which event through the scopes of a graph, and in which version.",
    main="graph",
    graph=Option("path", "a file in the scope graph language", required=True),
    to=Option("texts", "only what these components receive"),
    consumer=Option("text", "the column that says who; consumer by default"),
    schema=Option("schema", "the attributes of the result, where mappings do not say"),
    plan=Option("text", "force a plan", choices=("auto", "native", "python")),
)
_step(
    "detect",
    "composites:detect_as_written",
    "Find composite events: patterns over events, such as one followed by another.",
    check=_check_detect,
    pattern=Option("pattern", "what to detect: A ; B within 10s", required=True),
    events=Option("events", "the filter of each name in the pattern", required=True),
    name=Option("text", "how the composite events are called"),
    watermark=_WATERMARK,
    shards=Option("count", "in how many parts a stream's state is kept; 16 by default"),
    partitions=Option("count", "values of the key with open runs, in each part"),
    runs=Option("count", "open runs of one value of the key"),
    waiting=Option("count", "events that wait for the watermark, in each part"),
    when_full=Option("text", "what a limit does", choices=("oldest", "newest", "raise")),
)
