"""Only tests on texts. The texts are random over eight letters, so that short patterns do match."""

from __future__ import annotations

import random

from workloads.base import Event, Workload

LETTERS = "abcdefgh"


def prefixes(filters: int, events: int) -> Workload:
    """Prefixes of 2 to 6 letters; many of them are prefixes of one another."""
    r = random.Random(21)
    constraints = [[["path", "prefix", _text(r, 2, 6)]] for _ in range(filters)]
    return Workload("prefixes", "path prefix 'abc'", constraints, _paths(r, events))


def suffixes(filters: int, events: int) -> Workload:
    """The same from the other end."""
    r = random.Random(22)
    constraints = [[["path", "suffix", _text(r, 2, 6)]] for _ in range(filters)]
    return Workload("suffixes", "path suffix 'abc'", constraints, _paths(r, events))


def contains(filters: int, events: int) -> Workload:
    """4 to 7 letters somewhere in a text of 40."""
    r = random.Random(23)
    constraints = [[["text", "contains", _text(r, 4, 7)]] for _ in range(filters)]
    data = [{"text": _text(r, 40, 40)} for _ in range(events)]
    return Workload("contains", "text contains 'abcd'", constraints, data)


def regexes(filters: int, events: int) -> Workload:
    """Regular expressions that begin with 2 to 4 literal letters and go on with a class."""
    r = random.Random(24)
    constraints = []
    for _ in range(filters):
        some = "".join(sorted(r.sample(LETTERS, 3)))
        constraints.append([["path", "regex", f"^{_text(r, 2, 4)}[{some}].*{_text(r, 1, 1)}$"]])
    return Workload("regexes", "path regex '^abc[aeg].*h$'", constraints, _paths(r, events))


def _text(r: random.Random, least: int, most: int) -> str:
    return "".join(r.choices(LETTERS, k=r.randint(least, most)))


def _paths(r: random.Random, events: int) -> list[Event]:
    return [{"path": _text(r, 8, 16)} for _ in range(events)]
