"""Searches for filters that take long: made from a seed, and mutated upward in cost.

    .venv/bin/python tests/filters/fuzz_filters.py --seconds 600 --seed 1

A filter is an expression of the language, a JMS selector or an event pattern (both of which reach a
broker as the text that they are printed to). Each is read as a broker reads it, then printed, read
again, hashed, compared, related to another one and put into an index, and the processor time of
every single step is taken. What takes longest is kept and mutated: repeated, joined with others,
negated, nested, its lists and counts made longer. A step above the limit is measured again, since
other processes and the collector of garbage take their share of a single measurement; what stays
above it is reported, with the text to reproduce it.

Every filter is also checked for what must hold whatever its form: the printed text gives an equal
filter, and a filter covers itself.
"""

from __future__ import annotations

import argparse
import gc
import json
import pickle
import random
import re
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import random_filters

from stentor.errors import StentorError
from stentor.filters import Filter
from stentor.matching.index import Index
from stentor.model import Notification
from stentor.routing.reducers import MergingStage

#: Seconds of processor time that a single step may take.
LIMIT = 0.050
#: How many of the costliest texts are kept for mutation.
KEPT = 40

_NAMES = [*"abcdefgh", "x.y", '"odd name"']
_REGEX_PIECES = ["a", "b", ".", "[a-f]", "[^a]", "(a|b)", "(ab|ba)", "\\d", "^", "$", "(?i:ab)"]
_REPEATS = ["", "", "*", "+", "?", "{2}", "{1,9}", "{0,40}", "{17,}", "{300}"]


class Finding(NamedTuple):
    """A step that takes too long, or a property that does not hold."""

    step: str
    seconds: float
    text: str


class Fuzzer:
    """One search: what it found, and how long each kind of step took at most."""

    def __init__(self, seed: int, limit: float = LIMIT) -> None:
        self.rng = random.Random(seed)
        self.limit = limit
        self.findings: list[Finding] = []
        self.longest: dict[str, tuple[float, str]] = {}
        self.accepted = self.refused = 0
        self._costly: list[tuple[float, str]] = []
        self._other = Filter("x > 1")

    def run(self, seconds: float) -> None:
        """Search for that long (of real time)."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.try_text(self.text())

    # -- texts

    def text(self) -> str:
        rng = self.rng
        if self._costly and rng.random() < 0.6:
            return self._mutated(rng.choice(self._costly)[1])
        make = rng.choice(
            (self._language, self._language, self._alike, self._list, self._selector, self._pattern)
        )
        return make()

    def _language(self) -> str:
        return random_filters.text(random_filters.tree(self.rng, self.rng.randint(0, 4)))

    def _alike(self) -> str:
        """Many alternatives that differ a little."""
        rng = self.rng
        count = rng.choice((3, 10, 16, 40, 150, 400, 2_000))
        names = rng.sample(_NAMES, rng.randint(1, 3))
        joins = rng.choice(((" or ", " and "), (" and ", " or ")))
        shapes = [self._condition(name) for name in names]
        parts = []
        for i in range(count):
            inner = [
                re.sub(r"\b7\b|k7", lambda m, i=i: m[0].replace("7", str(i)), s) for s in shapes
            ]
            parts.append("(" + joins[1].join(inner) + ")")
        return joins[0].join(parts)

    def _condition(self, name: str) -> str:
        rng = self.rng
        return rng.choice(
            (
                f"{name} = 7",
                f"{name} > 7",
                f"{name} contains 'k7'",
                f"{name} suffix 'k7'",
                f"{name} like '%k7_'",
                f"{name} regex '{self._regex()}k7'",
                f"{name} has 'k7'",
                f"{name} lacks 7",
                f"{name} superset of (7, 'k7', 3)",
                f"some {name} like 'k7%a'",
                f"not some {name} > 7",
                f"{name} in (7, 8, 'k7')",
                f"{name} * 7 < b",
                random_filters.condition(rng, name),
            )
        )

    def _regex(self) -> str:
        rng = self.rng
        pieces = [
            rng.choice(_REGEX_PIECES) + rng.choice(_REPEATS) for _ in range(rng.randint(1, 6))
        ]
        text = "".join(pieces)
        for _ in range(rng.randint(0, 2)):
            text = f"({text}){rng.choice(_REPEATS)}"
        return text.replace("^*", "^").replace("$*", "$")

    def _list(self) -> str:
        rng = self.rng
        count = rng.choice((10, 63, 500, 5_000, 12_000))
        kind = rng.choice(("{}", "'{}'", "'ü{}'", "{}.5", "-{}", "x'{:06x}'", "time '2024-01-01'"))
        values = ", ".join(kind.format(i) for i in rng.sample(range(count * 2), count))
        operator = rng.choice(
            ("in", "not in", "overlaps", "disjoint from", "superset of", "subset of")
        )
        some = "some " if operator.endswith("in") and rng.random() < 0.3 else ""
        more = rng.choice(("", f" and {self._condition('x')}", f" or {self._condition('x')}"))
        return f"{some}x {operator} ({values}){more}"

    def _selector(self) -> str:
        rng = self.rng
        parts = [
            rng.choice(
                (
                    f"s{i % 3} LIKE '%k{i}_'",
                    f"x{i % 5} BETWEEN {i} AND {i + 9}",
                    f"NOT (x = {i} OR s IS NULL)",
                    f"s IN ('a{i}', 'b')",
                    f"x * {i} > y",
                )
            )
            for i in range(rng.choice((2, 5, 12, 30)))
        ]
        return str(Filter.from_selector(rng.choice((" OR ", " AND ")).join(parts)))

    def _pattern(self) -> str:
        rng = self.rng
        fields = {}
        for i in range(rng.choice((1, 3, 8))):
            alternatives = [
                rng.choice(
                    (
                        f"v{j}",
                        j,
                        {"prefix": f"p{j}"},
                        {"wildcard": f"*a{j}*b"},
                        {"anything-but": [f"n{j}", "m"]},
                        {"equals-ignore-case": f"Case{j}"},
                        {"numeric": [">", j, "<=", j + 5]},
                        {"cidr": f"10.{j % 256}.0.0/22"},
                    )
                )
                for j in range(rng.choice((1, 4, 12)))
            ]
            fields[f"f{i}"] = alternatives
        return str(Filter.from_pattern(json.dumps(fields)))

    def _mutated(self, text: str) -> str:
        """Something like it, mostly larger."""
        rng = self.rng
        match rng.randrange(8):
            case 0:
                return f"({text}) or ({self._renumbered(text)})"
            case 1:
                return f"({text}) and ({self._renumbered(text)})"
            case 2:
                return f"not ({text})"
            case 3:
                return f"({text}) or ({self._language()})"
            case 4 if self._costly:
                joint = rng.choice(("or", "and"))
                return f"({text}) {joint} ({rng.choice(self._costly)[1]})"
            case 5:  # longer counts
                return re.sub(r"\d+", lambda m: str(int(m[0][:4]) * 2 + 1), text, count=3)
            case 6:  # one list longer
                values = ", ".join(str(rng.randrange(10**6)) for _ in range(300))
                return re.sub(r"in \(", f"in ({values}, ", text, count=1)
            case _:  # a part of it
                parts = re.split(r" or ", text)
                kept = rng.sample(parts, max(1, len(parts) * 3 // 4))
                return " or ".join(kept)

    def _renumbered(self, text: str) -> str:
        shift = self.rng.randint(1, 9)
        return re.sub(r"\d+", lambda m: str(int(m[0][:6]) + shift), text)

    # -- steps

    def try_text(self, text: str) -> None:
        if len(text) > 1 << 17:
            return
        worst, filter = self._timed("read", text, lambda: Filter.received(text))
        if filter is None:
            self.refused += 1
            self._keep(worst * 0.5, text)
            return
        self.accepted += 1
        other = self._other
        index: Index[int] = Index()
        stage = MergingStage()
        stage.add(other)
        event = Notification({"x": 7, "a": "k7b", "b": 3, "s": "k5z", "y": ("k7", 7)})
        steps: list[tuple[str, Callable[[], Any]]] = [
            ("print", lambda: str(filter)),
            ("read again", lambda: Filter(str(filter))),
            ("hash", lambda: hash(filter)),
            ("equality", lambda: filter == other),
            ("covers", lambda: filter.covers(other)),
            ("covered", lambda: other.covers(filter)),
            ("covers itself", lambda: filter.covers(filter)),
            ("overlaps", lambda: filter.overlaps(other)),
            ("merge", lambda: filter.merge(other)),
            ("pickle", lambda: pickle.loads(pickle.dumps(filter))),
            ("match", lambda: filter.matches(event)),
            ("index add", lambda: index.add(1, filter)),
            ("index match", lambda: index.match(event)),
            ("index remove", lambda: index.remove(1)),
            ("merging stage", lambda: stage.add(filter)),
        ]
        for name, step in steps:
            seconds, found = self._timed(name, text, step)
            worst = max(worst, seconds)
            if name == "read again" and (found != filter or hash(found) != hash(filter)):
                self.findings.append(Finding("the printed text is another filter", 0.0, text))
            if name == "covers itself" and found is False:
                self.findings.append(Finding("does not cover itself", 0.0, text))
        self._keep(worst, text)
        if self.rng.random() < 0.3:
            self._other = filter

    def _timed(self, name: str, text: str, step: Callable[[], Any]) -> tuple[float, Any]:
        best = float("inf")
        found = None
        for _ in range(4):
            start = time.process_time()
            try:
                found = step()
            except StentorError:
                found = None
            except KeyError:  # measured again: it was removed the first time
                pass
            best = min(best, time.process_time() - start)
            if best <= self.limit:
                break
            gc.collect()
        if best > self.limit:
            self.findings.append(Finding(name, best, text))
        if best > self.longest.get(name, (0.0, ""))[0]:
            self.longest[name] = best, text
        return best, found

    def _keep(self, seconds: float, text: str) -> None:
        self._costly.append((seconds, text))
        if len(self._costly) > 2 * KEPT:
            self._costly.sort(key=lambda item: -item[0])
            del self._costly[KEPT:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for one step")
    options = parser.parse_args()
    fuzzer = Fuzzer(options.seed, options.limit)
    fuzzer.run(options.seconds)
    print(f"{fuzzer.accepted} filters accepted, {fuzzer.refused} refused")
    for name, (seconds, text) in sorted(fuzzer.longest.items(), key=lambda i: -i[1][0]):
        print(f"{seconds * 1000:8.1f} ms  {name:14}  {_shortened(text)}")
    kinds: dict[str, Finding] = {}
    for finding in sorted(fuzzer.findings, key=lambda f: len(f.text)):
        kinds.setdefault(finding.step, finding)
    for finding in kinds.values():
        print(f"\n{finding.step}: {finding.seconds * 1000:.1f} ms\n{finding.text}")
    print(f"\n{len(fuzzer.findings)} findings")
    return 1 if fuzzer.findings else 0


def _shortened(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:90]}… ({len(text):,} characters)"


if __name__ == "__main__":
    sys.exit(main())
