"""The rules by which a history becomes a state, and the windows it may be cut into.

A rule says for each attribute of the state what it is made of:

    {"price": "last", "volume": "sum", "high": "max price", "trades": "count"}

The first word is one of `FUNCTIONS`, the second the attribute of the events; if it is left out, the
attribute has the same name as in the state. `count` alone counts events, `count price` those that
have a price. An attribute that an event lacks does not count anywhere: `last` is the last value
that there was.

A window is "5 minutes": one after the other, aligned to midnight UTC; "10 minutes every 1 minute":
overlapping; or "session 5 minutes": as long as events follow each other within that time.

Rules are read without Spark, so that a pipeline can be checked where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stentor.errors import PipelineDefinitionError
from stentor.model.names import name_problem, shown
from stentor.notation.document import near
from stentor.pipeline.steps.durations import DURATION_FORM, Duration, interval, microseconds

#: What a rule can say, and what it means.
FUNCTIONS: Final = {
    "last": "the value of the latest event that has one",
    "first": "the value of the earliest event that has one",
    "min": "the smallest value",
    "max": "the largest value",
    "sum": "the sum of all values; null if it is too large for its type",
    "mean": "their mean",
    "count": "how many events there are, or how many that have the attribute",
}
#: Functions of one attribute that a history can be made for together, or those.
ORDERED: Final = frozenset({"first", "last", "min", "max", "count"})
_ADDED: Final = frozenset({"sum", "count"})
#: What users of other systems may try.
_SYNONYMS: Final = {
    "avg": "mean",
    "average": "mean",
    "latest": "last",
    "total": "sum",
    "minimum": "min",
    "maximum": "max",
}

WINDOW_FORM: Final = (
    'a window such as "5 minutes", "10 minutes every 1 minute" or "session 5 minutes"'
)
#: The columns that a window adds to a state.
WINDOW_COLUMNS: Final = ("window_start", "window_end")


@dataclass(frozen=True)
class Aggregate:
    """One attribute of a state: `output` is `function` of the events' `attribute`."""

    output: str
    function: str
    #: None if events are counted, not values.
    attribute: str | None


@dataclass(frozen=True)
class Window:
    """How a history is cut: `length` alone, with `every`, or as sessions that end after a gap."""

    length: str
    every: str | None = None
    session: bool = False

    @property
    def disjoint(self) -> bool:
        """Whether each event is in exactly one window that depends on nothing but its own time."""
        return not self.session and self.every is None


def read_rule(rule: Mapping[str, Any], key: Sequence[str] = ()) -> tuple[Aggregate, ...]:
    """The parts of a rule, or `PipelineDefinitionError`.

    >>> read_rule({"high": "max price", "volume": "sum"})[0]
    Aggregate(output='high', function='max', attribute='price')
    """
    if not rule:
        raise PipelineDefinitionError(
            'a rule says what each attribute of the state is, such as {price = "last"}; '
            f"it cannot be {rule!r}"
        )
    return tuple(_aggregate(output, text, key) for output, text in rule.items())


def _aggregate(output: str, text: Any, key: Sequence[str]) -> Aggregate:
    if problem := name_problem(output):
        raise PipelineDefinitionError(f"{shown(output)} {problem}; a state cannot hold it")
    if output.startswith("_") or output in WINDOW_COLUMNS:
        raise PipelineDefinitionError(f"{output!r} is reserved; give it another name")
    if output in key:
        raise PipelineDefinitionError(f"{output!r} is part of the key and cannot be a rule as well")
    if not isinstance(text, str) or not text.strip():
        raise PipelineDefinitionError(f"the rule for {output!r} must be a text, not {text!r}")
    function, _, attribute = text.strip().partition(" ")
    attribute = attribute.strip()
    if function not in FUNCTIONS:
        question = near(_SYNONYMS.get(function, function), FUNCTIONS)
        raise PipelineDefinitionError(
            f"the rule for {output!r} has no meaning: {function!r} is unknown{question} "
            f"known: {', '.join(FUNCTIONS)}"
        )
    if not attribute:
        return Aggregate(output, function, None if function == "count" else output)
    return Aggregate(output, function, attribute)


def read_window(window: Duration) -> Window:
    """A window, or `PipelineDefinitionError`.

    >>> read_window("10 minutes every 1 minute")
    Window(length='600 seconds', every='60 seconds', session=False)
    """
    if not isinstance(window, str):
        return Window(interval(window))
    words = window.strip()
    try:
        if words.startswith("session "):
            return Window(interval(words.removeprefix("session ")), session=True)
        length, every, step = words.partition(" every ")
        found = Window(interval(length), interval(step) if every else None)
    except PipelineDefinitionError:
        raise PipelineDefinitionError(
            f"{window!r} is not {WINDOW_FORM}; each length is {DURATION_FORM}"
        ) from None
    if found.every is not None and microseconds(found.every) > microseconds(found.length):
        raise PipelineDefinitionError(
            f"{window!r} leaves gaps between the windows, and events in them would be lost; "
            "begin one at least as often as they are long"
        )
    return found


def check_expansion(
    aggregates: Sequence[Aggregate], window: Window | None
) -> dict[str, dict[str, str]]:
    """By attribute of the history: the column of the state for each function on it.

    `PipelineDefinitionError` if no history can be made for such a rule (see `expanding`).
    """
    if window is not None and not window.disjoint:
        raise PipelineDefinitionError(
            "a state with such windows cannot be expanded: its events would be in other windows "
            "as well; only windows that follow each other can"
        )
    found: dict[str, dict[str, str]] = {}
    for each in aggregates:
        if each.attribute is not None:
            found.setdefault(each.attribute, {}).setdefault(each.function, each.output)
    for attribute, functions in found.items():
        names = set(functions)
        if not (names <= ORDERED or names <= _ADDED or names == {"mean"}):
            raise PipelineDefinitionError(
                f"no history can be made from {' and '.join(sorted(names))} of {attribute!r} "
                "together; before the collapse, copy the attribute and sum the copy"
            )
    return found
