"""The graph of tables: in which order steps can be made, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from stentor.pipeline.runs.definition import Source, Step


def cycles(steps: Mapping[str, Step]) -> list[list[str]]:
    """Steps that need each other, one list for each such group."""
    found: list[list[str]] = []
    left = {
        name: [table for table in step.tables if table in steps] for name, step in steps.items()
    }
    while left:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            cycle = list(error.args[1][1:])[::-1]
            found.append(cycle)
            gone = set(cycle)
            left = {n: [t for t in ts if t not in gone] for n, ts in left.items() if n not in gone}
        else:
            break
    return found


def ordered(steps: Mapping[str, Step]) -> list[str]:
    """The names of the steps, each behind those that it needs, else as they are written.

    Steps of a cycle, and behind one, are left out.
    """
    found: list[str] = []
    waiting = list(steps)
    while True:
        ready = [
            name
            for name in waiting
            if all(t in found or t not in steps for t in steps[name].tables)
        ]
        if not ready:
            return found
        found.append(ready[0])
        waiting.remove(ready[0])


def needed(steps: Mapping[str, Step], wanted: Iterable[str]) -> set[str]:
    """These tables and all that they are made of."""
    found: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name in steps:
                waiting.extend(steps[name].tables)
    return found


def unused(
    sources: Mapping[str, Source], steps: Mapping[str, Step], wanted: Iterable[str]
) -> list[str]:
    """Tables that no sink needs."""
    used = needed(steps, wanted)
    return [name for name in (*sources, *steps) if name not in used]
