"""`Pattern`: what to detect, as a value.

A pattern is an expression over names, what each name stands for, and the attributes by which events
are parted: each combination of their values is detected in by itself. A name stands for a filter,
or for another pattern, whose composite events are meant. Patterns are values, so a definition
cannot be part of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from stentor.composite import expressions as e
from stentor.composite.conditions import references
from stentor.composite.events import TYPE
from stentor.composite.parser import MAX_COUNT, MAX_NODES, TOO_LONG, is_event_name, parse_pattern
from stentor.errors import FilterSyntaxError, InvalidPattern
from stentor.filters import Filter
from stentor.filters.language import format_name
from stentor.model.names import RESERVED, name_problem
from stentor.model.values import value_type_of

if TYPE_CHECKING:
    from stentor.composite.automaton import Automaton

#: How deep patterns may be defined by patterns.
MAX_LEVELS: Final = 8
#: The most names that a pattern may define.
MAX_EVENTS: Final = 50
#: What events may be parted by besides their attributes.
_PARTING: Final = tuple(name for name in RESERVED if name != "_types")


class Pattern:
    """Composite events to be detected.

    >>> p = Pattern(
    ...     "(A ; B) within 10s partition by host",
    ...     events={"A": "type = 'cpu' and load > 0.9", "B": "type = 'disk' and free < 0.05"},
    ... )
    >>> print(p)
    A ; B within 10s partition by host
    >>> p == Pattern("A;B within 10 s partition by host", events=p.events)
    True
    """

    def __init__(
        self,
        text: str | e.Expression,
        events: Mapping[str, str | Filter | Pattern],
        *,
        partition: str | Iterable[str] = (),
        name: str | None = None,
    ) -> None:
        """`partition` are attributes, or one; `name` is how people call it, and is not compared."""
        if not isinstance(events, Mapping):
            raise InvalidPattern(
                f"events is a {type(events).__name__}; write a dict such as {{'A': \"x = 1\"}}"
            )
        partition = (partition,) if isinstance(partition, str) else tuple(partition)
        if isinstance(text, str):
            parsed = parse_pattern(text)
            self.expression: e.Expression = parsed.expression
            partition = parsed.partition or partition
        else:
            self.expression = text
        self.partition: tuple[str, ...] = partition
        self.name = name
        if name is not None and (problem := name_problem(name)):
            raise InvalidPattern(f"the name of a pattern {problem}: {name!r}")
        self.events: dict[str, Filter | Pattern] = {}
        for key in sorted(events):
            self.events[key] = _meaning(key, events[key])
        self._check()

    def _check(self) -> None:
        _check_size(self.expression)
        used = _check_names(self.expression, frozenset())
        for name in used:
            if not is_event_name(name) or name == TYPE:
                raise InvalidPattern(
                    f"{name!r} is not a name for an event; begin with a letter, use letters, "
                    f"digits and _, and neither a word of the language nor {TYPE}"
                )
        for name in sorted(used - self.events.keys()):
            raise InvalidPattern(
                f"the pattern names {name}, which is not defined; define it in events=, or with "
                f"--event '{name}: FILTER'"
            )
        self.events = {name: self.events[name] for name in self.events if name in used}
        if len(self.events) > MAX_EVENTS:
            raise InvalidPattern(f"a pattern has at most {MAX_EVENTS} events")
        for node in e.walk(self.expression):
            if isinstance(node, e.Window) and node is not self.expression:
                raise InvalidPattern(
                    "sequence(...) is a pattern by itself; name it in events= to use it in another"
                )
            if isinstance(node, e.Where):
                names = {each.name for each in references(node.condition)}
                bound = {
                    name
                    for inner in e.walk(node.body)
                    if isinstance(inner, e.Atom)
                    for name in inner.binds
                }
                for name in sorted(names - bound):
                    raise InvalidPattern(
                        f"the condition of `where` speaks of {name}, but no event before it gets "
                        "that name"
                    )
        for name in self.partition:
            problem = name_problem(name)
            if problem or (name[0] == "_" and name not in _PARTING):
                raise InvalidPattern(
                    f"events cannot be parted by {name!r}, which {problem or 'is no attribute'}; "
                    f"take an attribute, or one of {', '.join(_PARTING)}"
                )
        if len(set(self.partition)) < len(self.partition):
            raise InvalidPattern(f"an attribute is named twice: {', '.join(self.partition)}")
        if self.level > MAX_LEVELS:
            raise InvalidPattern(f"patterns are defined by patterns at most {MAX_LEVELS} deep")

    @cached_property
    def level(self) -> int:
        """0 if it is defined by filters alone, else one more than the patterns in it."""
        return max(
            (each.level + 1 for each in self.events.values() if isinstance(each, Pattern)),
            default=0,
        )

    @cached_property
    def automaton(self) -> Automaton:
        """What detects it. Made once; `InvalidPattern` if it would be too large."""
        from stentor.composite.automaton import compile_expression

        return compile_expression(self.expression, tuple(self.events))

    def walk(self) -> Iterator[Pattern]:
        """This pattern, and all that it is defined by."""
        yield self
        for meaning in self.events.values():
            if isinstance(meaning, Pattern):
                yield from meaning.walk()

    @cached_property
    def canonical(self) -> str:
        """The pattern and the meaning of its names, as one text."""
        lines = [str(self)]
        for name, meaning in self.events.items():
            inner = meaning.type if isinstance(meaning, Pattern) else str(meaning)
            lines.append(f"{name}: {inner}")
        return "\n".join(lines)

    @cached_property
    def digest(self) -> str:
        return blake2b(self.canonical.encode(), digest_size=10).hexdigest()

    @cached_property
    def type(self) -> str:
        """The event type of its composite events (R-06.02)."""
        return f"{TYPE}.p{self.digest}"

    @cached_property
    def label(self) -> str:
        """How to call it: its name, or its expression."""
        if self.name is not None:
            return self.name
        text = str(self)
        return text if len(text) <= 200 else text[:199] + "…"

    def filter_of(self, name: str) -> Filter:
        """What matches the events of a name; of a pattern, its composite events."""
        meaning = self.events[name]
        if isinstance(meaning, Pattern):
            return Filter(f"_type = '{meaning.type}'")
        return meaning

    def filters(self) -> Filter:
        """What matches every event that the pattern, or one that it is defined by, looks at."""
        found = Filter("false")
        for meaning in self.events.values():
            found = found | (meaning.filters() if isinstance(meaning, Pattern) else meaning)
        return found

    def key_of(self, event: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The partition of an event; None if it lacks one of the attributes."""
        key = tuple(event.get(name) for name in self.partition)
        return None if any(value is None for value in key) else key

    def replace(self, **changes: Any) -> Pattern:
        """A copy in which some parts are different; the names are those of the constructor."""
        parts: dict[str, Any] = {
            "text": self.expression,
            "events": self.events,
            "partition": self.partition,
            "name": self.name,
            **changes,
        }
        return Pattern(parts.pop("text"), parts.pop("events"), **parts)

    def dump(self) -> dict[str, Any]:
        """The pattern as plain data, for JSON, TOML and messages; `load` reads it."""
        events = {
            name: meaning.dump() if isinstance(meaning, Pattern) else str(meaning)
            for name, meaning in self.events.items()
        }
        named = {} if self.name is None else {"name": self.name}
        return {"pattern": str(self), "events": events, **named}

    @classmethod
    def load(cls, data: Mapping[str, Any], read: Callable[[str], Filter] = Filter) -> Pattern:
        """What `dump` has made; its filters are read by `read`.

        >>> p = Pattern("A ; B", events={"A": "x = 1", "B": "x = 2"})
        >>> Pattern.load(p.dump()) == p
        True
        """
        return cls._loaded(data, read, 0)

    @classmethod
    def _loaded(cls, data: Mapping[str, Any], read: Callable[[str], Filter], depth: int) -> Pattern:
        unknown = set(data) - {"pattern", "events", "name"}
        if unknown or not {"pattern", "events"} <= set(data) or depth > MAX_LEVELS:
            raise InvalidPattern(
                "a pattern is written with `pattern` and `events`, and may have a `name`"
                + (f"; it has {', '.join(sorted(unknown))}" if unknown else "")
            )
        if not isinstance(data["events"], Mapping):
            raise InvalidPattern("the events of a pattern are a table of names and filters")
        if not isinstance(data["pattern"], str):
            raise InvalidPattern("the `pattern` of a pattern is a text")
        events = {
            name: cls._loaded(each, read, depth + 1)
            if isinstance(each, Mapping)
            else _meaning(name, each, read)
            for name, each in data["events"].items()
        }
        return cls(data["pattern"], events, name=data.get("name"))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pattern):
            return NotImplemented
        return self is other or (
            self.expression == other.expression
            and self.partition == other.partition
            and self.events == other.events
        )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.expression, self.partition, tuple(self.events.items())))

    def __str__(self) -> str:
        text = e.format_expression(self.expression)
        if self.partition:
            text += f" partition by {', '.join(map(format_name, self.partition))}"
        return text

    def __repr__(self) -> str:
        events = {
            name: meaning if isinstance(meaning, Pattern) else str(meaning)
            for name, meaning in self.events.items()
        }
        named = "" if self.name is None else f", name={self.name!r}"
        return f"Pattern({str(self)!r}, events={events!r}{named})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (str(self), self.events, self.name)

    def _repr_svg_(self) -> str:
        from stentor.composite.drawing import svg

        return svg(self.automaton)


def _restored(text: str, events: dict[str, Any], name: str | None) -> Pattern:
    return Pattern(text, events, name=name)


def _meaning(
    name: str, meaning: str | Filter | Pattern, read: Callable[[str], Filter] = Filter
) -> Filter | Pattern:
    if isinstance(meaning, (Filter, Pattern)):
        return meaning
    try:
        return read(meaning)
    except FilterSyntaxError as error:
        raise FilterSyntaxError(
            f"the event {name}: {error}",
            line=error.line,
            column=error.column,
            expected=error.expected,
        ) from None


def _check_size(expression: e.Expression) -> None:
    """What is built in Python has the bounds of what is written."""
    for number, node in enumerate(e.walk(expression), 1):
        if number > MAX_NODES:
            raise InvalidPattern(TOO_LONG)
        if isinstance(node, e.Iteration):
            least, most = node.least, MAX_COUNT if node.most is None else node.most
            is_whole = type(least) is int and type(most) is int
            if not is_whole or not 0 <= least <= most <= MAX_COUNT or most == 0:
                raise InvalidPattern(
                    f"an event cannot come {least} to {node.most} times; counts are whole numbers, "
                    f"at most {MAX_COUNT}, and the greater one is last"
                )


def _check_names(expression: e.Expression, timers: frozenset[str]) -> set[str]:
    """The names that have to be defined: all but those of timers within their reach."""
    match expression:
        case e.Atom(labels, domain):
            return {*labels, *domain} - timers
        case e.Window(labels):
            return set(labels)
        case e.Timing(first, second, timer):
            found = _check_names(first, timers) | _check_names(second, timers | {timer})
            if timer in found:
                raise InvalidPattern(
                    f"{timer} is a time in one place and an event in another; rename one of them"
                )
            return found
        case _:
            found = set()
            for part in e.parts(expression):
                found |= _check_names(part, timers)
            return found


def key_token(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key as it is compared: 1 and 1.0 are the same, 1 and true are not."""
    return tuple(
        value if type(value) in (str, int, float) else (value_type_of(value), value)
        for value in key
    )
