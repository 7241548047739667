"""A pattern in use: its machine, and its runs by partition."""

from __future__ import annotations

from typing import Any, TypeAlias

from stentor.composite.pattern import Pattern, key_token
from stentor.composite.plain_runs import Partition, PlainRuns
from stentor.composite.runs import Machine, Runs
from stentor.model import Notification


class PatternRuns:
    """A pattern in use, and its runs by partition."""

    __slots__ = (
        "attribute",
        "attributes",
        "dependents",
        "is_wanted",
        "level",
        "machine",
        "number",
        "opening",
        "pattern",
        "plain",
        "runs",
        "uses",
    )

    def __init__(self, number: int, pattern: Pattern, machine: Machine) -> None:
        self.number = number
        self.pattern = pattern
        self.machine = machine
        self.level = pattern.level
        self.attributes = pattern.partition
        #: The one attribute, if there is one.
        self.attribute = self.attributes[0] if len(self.attributes) == 1 else ""
        #: By the key as it is compared: the runs, in one of their two forms.
        self.runs: dict[Any, Partition | Runs] = {}
        self.plain: PlainRuns | None = None
        if machine.steps is not None:
            self.plain = PlainRuns(machine, machine.steps, self.attributes, self.runs)
        #: Bits by which a partition begins.
        self.opening = -1 if machine.is_one_shot else machine.opening
        self.is_wanted = False
        #: How many patterns are defined by this one.
        self.uses = 0
        #: Patterns that are defined by this one, and the bits of its events there.
        self.dependents: Work = []

    def token_of(self, event: Notification) -> Any:
        """The partition of an event; None if it lacks one of the attributes."""
        if self.attribute:
            value = event.facts.get(self.attribute)
            if value.__class__ is str or value is None:
                return value
            return key_token((value,))
        key = self.pattern.key_of(event.facts)
        return None if key is None else key_token(key)

    def key_of(self, event: Notification) -> tuple[Any, ...]:
        """The values behind that token."""
        facts = event.facts
        return tuple([facts[name] for name in self.attributes])

    def token(self, key: tuple[Any, ...]) -> Any:
        """The token of these values."""
        return key[0] if self.attribute and key[0].__class__ is str else key_token(key)

    def dump(self, held: Partition | Runs) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The key of a partition, and its runs as plain data."""
        if isinstance(held, Runs):
            return held.key, held.dump()
        assert self.plain is not None
        return self.plain.dump(held)


#: Patterns that an event is something to, and the bits of their names that it has.
Work: TypeAlias = list[tuple[PatternRuns, int]]


def merged(one: Work, other: Work) -> Work:
    """What is either, with all bits of a pattern together."""
    bits = dict(one)
    for loaded, bit in other:
        bits[loaded] = bits.get(loaded, 0) | bit
    return list(bits.items())


def add_use(uses: Work, loaded: PatternRuns, bit: int) -> None:
    """Names of one pattern are added one after the other, and may mean the same."""
    if uses and uses[-1][0] is loaded:
        bit |= uses.pop()[1]
    uses.append((loaded, bit))
