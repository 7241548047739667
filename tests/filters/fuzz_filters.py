"""Searches for filters that take long: made from a seed, and mutated upward in cost.

    .venv/bin/python tests/filters/fuzz_filters.py --seconds 600 --seed 1

An input is a text of the language, a JMS selector or an event pattern. Selectors and patterns are
read by the program that subscribes, and reach a broker as the text that they are printed to. Each
filter is read as a broker reads it, then printed, read again, hashed, compared, related to others,
put into an index and into the tables of a router, and taken out again; the processor time of every
single step is taken. What takes longest is kept and mutated: repeated, joined with others, negated,
nested, its lists and counts made longer.

Much of what a filter costs is paid once: templates and automata are kept, and a table that holds a
filter already does nothing. So every trial begins with empty caches, filters that were never asked
anything, and new tables. A step above the limit is measured again in a whole new trial, since other
processes and the collector of garbage take their share of a single measurement; what stays above is
reported, with the texts to reproduce it.

Every filter is also checked for what must hold whatever its form: the printed text gives an equal
filter, and a filter covers itself.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import pickle
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import random_filters

from stentor.errors import StentorError
from stentor.filters import Filter
from stentor.matching.index import Index, index
from stentor.model import Notification
from stentor.routing.reducers import MergingStage, Reduction

#: Seconds of processor time that a single step may take.
LIMIT = 0.050
#: How many of the costliest inputs are kept for mutation.
KEPT = 60
#: Longer texts are not tried: a broker refuses them at once.
LONGEST = 1 << 17
#: How often a trial is repeated before a step counts as slow.
TRIALS = 4

#: How a broker, or the program that subscribes, reads each language.
READERS: dict[str, Callable[[str], Filter] | None] = {
    "filter": None,
    "selector": Filter.from_selector,
    "pattern": Filter.from_pattern,
}

_NAMES = [*"abcdefgh", "x.y", '"odd name"']
_REGEX_PIECES = ["a", "b", ".", "[a-f]", "[^a]", "(a|b)", "(ab|ba)", "\\d", "^", "$", "(?i:ab)"]
_REPEATS = ["", "", "*", "+", "?", "{2}", "{1,9}", "{0,40}", "{17,}", "{300}"]
_RECORD = {"a": 7, "b": "k7", "l": [{"a": 8, "b": 1}, {"c": "k7", "l": [{"d": 7}]}]}
_EVENT = Notification(
    {"x": 7, "a": "k7b", "b": 3, "s": "k5z", "y": ("k7", 7), "f0": "v3", "h": [_RECORD, {"b": 7}]}
)


class Input(NamedTuple):
    """What somebody writes, and in which language."""

    language: str
    text: str


class Finding(NamedTuple):
    """A step that takes too long, or a property that does not hold; with the filters beside it."""

    step: str
    seconds: float
    input: Input
    others: tuple[str, ...]


class Trial:
    """One input taken through all steps, from the beginning."""

    def __init__(self, others: tuple[str, ...]) -> None:
        """`others` are filters that the broker has taken before."""
        #: Of processor time, and of real time, in which others may have had the processor.
        self.seconds: dict[str, float] = {}
        self.real: dict[str, float] = {}
        self.faults: list[str] = []
        for kept in _caches():
            kept.cache_clear()
        self._others = [Filter.received(text) for text in others]

    def run(self, input: Input) -> str | None:
        """Go through the steps; the text that the broker has taken, or None if it refused."""
        filter = self._timed("read", lambda: Filter.received(input.text, READERS[input.language]))
        if filter is None:
            return None
        if input.language != "filter":  # so it travels
            printed = str(filter)
            filter = self._timed("read printed", lambda: Filter.received(printed))
            if filter is None:
                self.faults.append("what was taken is refused when it is printed")
                return None
        self._identity(filter)
        self._relations(filter)
        self._tables(filter)
        return str(filter)

    def _timed(self, name: str, step: Callable[[], Any]) -> Any:
        begun, start = time.perf_counter(), time.thread_time()
        try:
            found = step()
        except StentorError:
            found = None
        self.seconds[name] = time.thread_time() - start
        self.real[name] = time.perf_counter() - begun
        return found

    def _identity(self, filter: Filter) -> None:
        printed = self._timed("print", lambda: str(filter))
        again = self._timed("read again", lambda: Filter(printed))
        self._timed("hash", lambda: hash(filter))
        if not self._timed("equality", lambda: filter == again) or hash(filter) != hash(again):
            self.faults.append("the printed text is another filter")
        if not self._timed("covers itself", lambda: filter.covers(again)):
            self.faults.append("does not cover itself")
        if self._timed("pickle", lambda: pickle.loads(pickle.dumps(filter))) != filter:
            self.faults.append("a copy is another filter")

    def _relations(self, filter: Filter) -> None:
        for other in self._others:
            self._timed("covers", lambda other=other: filter.covers(other))
            self._timed("covered", lambda other=other: other.covers(filter))
            self._timed("overlaps", lambda other=other: filter.overlaps(other))
            self._timed("merge", lambda other=other: filter.merge(other))

    def _tables(self, filter: Filter) -> None:
        others = [other for other in self._others if other != filter]
        self._timed("match", lambda: filter.matches(_EVENT))
        for few in (0, index.FEW):  # they are searched, and tested one by one
            with patch.object(index, "FEW", few):
                self._indexed(filter, others)
        stage = MergingStage()
        covering = Reduction("covering")
        for i, other in enumerate(others):
            self._timed("merging", lambda other=other: stage.add(other))
            self._timed("covering", lambda i=i, other=other: covering.add(i, other))
        self._timed("merging", lambda: stage.add(filter))
        self._timed("covering", lambda: covering.add(-1, filter))
        for i, other in list(enumerate(others))[:1]:
            self._timed("merging, withdrawn", lambda other=other: stage.remove(other))
            self._timed("covering, withdrawn", lambda i=i, other=other: covering.remove(i, other))
        self._timed("merging, withdrawn", lambda: stage.remove(filter))
        self._timed("covering, withdrawn", lambda: covering.remove(-1, filter))

    def _indexed(self, filter: Filter, others: list[Filter]) -> None:
        held: Index[int] = Index(enumerate(others))
        self._timed("index add", lambda: held.add(-1, filter))
        self._timed("index match", lambda: held.match(_EVENT))
        self._timed("index remove", lambda: held.remove(-1))


class Fuzzer:
    """One search: what it found, and how long each kind of step took at most."""

    def __init__(self, seed: int, limit: float = LIMIT) -> None:
        self.rng = random.Random(seed)
        self.limit = limit
        self.findings: list[Finding] = []
        #: Of each step the most processor time, the real time of the last trial, and the input.
        self.longest: dict[str, tuple[float, float, Input]] = {}
        self.accepted = self.refused = 0
        self._costly: list[tuple[float, Input]] = []
        self._taken = ["x > 1", "a = 'k7' and b < 5"]

    def run(self, seconds: float) -> None:
        """Search for that long (of real time)."""
        end = time.monotonic() + seconds
        with _collected_like_a_broker():
            while time.monotonic() < end:
                self.try_input(self.input())

    def try_input(self, input: Input) -> None:
        """Take one input through all steps, and again if one of them takes long."""
        if len(input.text) > LONGEST:
            return
        others = tuple(self.rng.sample(self._taken, min(2, len(self._taken))))
        seconds: dict[str, float] = {}
        for _ in range(TRIALS):
            trial = Trial(others)
            taken = trial.run(input)
            for step, taken_seconds in trial.seconds.items():
                seconds[step] = min(taken_seconds, seconds.get(step, taken_seconds))
            if max(seconds.values()) <= self.limit:
                break
            gc.collect()
        self.findings += [Finding(fault, 0.0, input, others) for fault in trial.faults]
        for step, best in seconds.items():
            if best > self.limit:
                self.findings.append(Finding(step, best, input, others))
            if best > self.longest.get(step, (0.0,))[0]:
                self.longest[step] = best, trial.real.get(step, best), input
        self._keep(max(seconds.values()) * (1.0 if taken else 0.5), input)
        if taken is None:
            self.refused += 1
            return
        self.accepted += 1
        if self.rng.random() < 0.3:
            self._taken = [*self._taken[-7:], taken]

    def _keep(self, seconds: float, input: Input) -> None:
        self._costly.append((seconds, input))
        if len(self._costly) > 2 * KEPT:
            self._costly.sort(key=lambda item: -item[0])
            del self._costly[KEPT:]

    # -- inputs

    def input(self) -> Input:
        """The next one to try: something new, or something like what took long."""
        rng = self.rng
        if self._costly and rng.random() < 0.6:
            return self._mutated(rng.choice(self._costly)[1])
        make = rng.choice((self._language, self._language, self._alike, self._list))
        return rng.choice(
            (
                lambda: Input("filter", make()),
                lambda: Input("filter", make()),
                lambda: Input("selector", self._selector()),
                lambda: Input("pattern", json.dumps(self._pattern())),
            )
        )()

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
                f"{name} in_network '10.7.0.0/16'",
                self._of_records(name, rng.choice((1, 1, 2, 7))),
                random_filters.condition(rng, name),
            )
        )

    def _of_records(self, name: str, levels: int) -> str:
        """What a list of records says, whose fields may be such lists again."""
        rng = self.rng
        record = f"r{levels}"
        fields = [f"{record}.{field}" for field in rng.sample("abcd", rng.randint(1, 3))]
        parts = [
            rng.choice(
                (
                    f"{field} = 7",
                    f"{field} > 7",
                    f"{field} contains 'k7'",
                    f"{field} in (7, 8, 'k7')",
                    f"{field} is missing",
                    f"{field} * 7 < {record}.b",
                    f"{field} regex '{self._regex()}k7'",
                    f"{record} is record",
                )
            )
            for field in fields
        ]
        if levels > 1:
            parts.append(f"({self._of_records(f'{record}.l', levels - 1)})")
        said = rng.choice((" and ", " or ")).join(parts)
        return f"({rng.choice(('any', 'all', 'not any'))} {record} in {name}: ({said}))"

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
        count = rng.choice((2, 5, 12, 30, 150))
        many = ", ".join(f"'s{i}'" for i in range(rng.choice((2, 60, 1_000, 6_000))))
        parts = [
            rng.choice(
                (
                    f"s{i % 3} LIKE '%k{i}_'",
                    f"s NOT LIKE 'k!_{i}%b' ESCAPE '!'",
                    f"x{i % 5} BETWEEN {i} AND {i + 9}",
                    f"x NOT BETWEEN {i} AND y",
                    f"NOT (x = {i} OR s IS NULL)",
                    f"s IN ('a{i}', 'b')",
                    f"x * {i} > y + 2",
                    f"x <> {i}.5 AND y IS NOT NULL",
                    f"x{i % 4} = y",
                    f"b{i} OR NOT c",
                )
            )
            for i in range(count)
        ]
        if rng.random() < 0.1:
            parts.append(f"t {rng.choice(('', 'NOT '))}IN ({many})")
        return rng.choice((" OR ", " AND ")).join([f"({part})" for part in parts])

    def _pattern(self) -> dict[str, Any]:
        rng = self.rng
        fields: dict[str, Any] = {}
        for i in range(rng.choice((1, 3, 8))):
            tests = [self._pattern_test(j) for j in range(rng.choice((1, 4, 12, 60)))]
            if rng.random() < 0.05:
                tests += [f"w{j}" for j in range(rng.choice((60, 1_000, 6_000)))]
            fields[f"f{i}"] = tests
        if rng.random() < 0.2:
            fields = {"detail": fields, "source": ["a", "b"]}
        if rng.random() < 0.2:
            fields["$or"] = [{f"g{i}": [self._pattern_test(i)]} for i in range(rng.choice((2, 9)))]
        return fields

    def _pattern_test(self, j: int) -> Any:
        return self.rng.choice(
            (
                f"v{j}",
                j,
                None,
                True,
                {"prefix": f"p{j}"},
                {"prefix": {"equals-ignore-case": f"Pre{j}"}},
                {"suffix": f"s{j}"},
                {"wildcard": f"*a{j}*b"},
                {"anything-but": [f"n{j}", "m"]},
                {"anything-but": {"prefix": f"q{j}"}},
                {"anything-but": {"wildcard": f"*q{j}*"}},
                {"equals-ignore-case": f"Case{j}"},
                {"numeric": [">", j, "<=", j + 5]},
                {"exists": j % 2 == 0},
                {"cidr": f"10.{j % 256}.0.0/22"},
            )
        )

    # -- mutation

    def _mutated(self, input: Input) -> Input:
        """Something like it, mostly larger."""
        if input.language == "pattern":
            return Input("pattern", json.dumps(self._mutated_pattern(json.loads(input.text))))
        return Input(input.language, self._mutated_text(input))

    def _mutated_text(self, input: Input) -> str:
        rng = self.rng
        text = input.text
        alike = [i.text for _, i in self._costly if i.language == input.language]
        match rng.randrange(8):
            case 0:
                return f"({text}) or ({self._renumbered(text)})"
            case 1:
                return f"({text}) and ({self._renumbered(text)})"
            case 2:
                return f"not ({text})"
            case 3:
                made = self._selector() if input.language == "selector" else self._language()
                return f"({text}) or ({made})"
            case 4 if alike:
                return f"({text}) {rng.choice(('or', 'and'))} ({rng.choice(alike)})"
            case 5:  # longer counts
                return re.sub(r"\d+", lambda m: str(int(m[0][:4]) * 2 + 1), text, count=3)
            case 6:  # one list longer
                quote = "'" if input.language == "selector" else ""
                values = ", ".join(f"{quote}{rng.randrange(10**6)}{quote}" for _ in range(300))
                return re.sub(r"(?i)in \(", f"in ({values}, ", text, count=1)
            case _:  # a part of it
                parts = re.split(r"(?i) or ", text)
                kept = rng.sample(parts, max(1, len(parts) * 3 // 4))
                return " or ".join(kept)

    def _mutated_pattern(self, pattern: dict[str, Any]) -> dict[str, Any]:
        rng = self.rng
        match rng.randrange(5):
            case 0:
                return {"$or": [pattern, json.loads(self._renumbered(json.dumps(pattern)))]}
            case 1:
                return {"detail": pattern, **self._pattern()}
            case 2:
                more = self._pattern()
                return {**pattern, **{name + "m": test for name, test in more.items()}}
            case 3:
                return {
                    name: test + [self._pattern_test(rng.randrange(1_000)) for _ in range(20)]
                    if isinstance(test, list) and name != "$or"
                    else test
                    for name, test in pattern.items()
                }
            case _:
                kept = rng.sample(list(pattern), max(1, len(pattern) * 3 // 4))
                return {name: pattern[name] for name in kept}

    def _renumbered(self, text: str) -> str:
        shift = self.rng.randint(1, 9)
        return re.sub(r"\d+", lambda m: str(int(m[0][:6]) + shift), text)


@contextmanager
def _collected_like_a_broker() -> Iterator[None]:
    """Garbage is collected as seldom as in a broker, and what was there before is left alone."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@functools.cache
def _caches() -> list[Any]:
    """All that is kept of the last filters; what is computed once for all is not among it."""
    return [
        kept
        for kept in gc.get_objects()
        if isinstance(kept, functools._lru_cache_wrapper)
        and str(kept.__module__).startswith("stentor.")
        and kept.cache_parameters()["maxsize"] is not None
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for one step")
    options = parser.parse_args()
    fuzzer = Fuzzer(options.seed, options.limit)
    fuzzer.run(options.seconds)
    print(f"{fuzzer.accepted} inputs accepted, {fuzzer.refused} refused")
    for name, (seconds, real, input) in sorted(fuzzer.longest.items(), key=lambda i: -i[1][0]):
        times = f"{seconds * 1000:8.1f} ms ({real * 1000:.0f} of real time)"
        print(f"{times}  {name:20}  {input.language:8}  {_shortened(input.text)}")
    kinds: dict[str, Finding] = {}
    for finding in sorted(fuzzer.findings, key=lambda f: len(f.input.text)):
        kinds.setdefault(finding.step, finding)
    for finding in kinds.values():
        print(f"\n{finding.step}: {finding.seconds * 1000:.1f} ms\n{finding.input.text}")
        for other in finding.others:
            print(f"beside\n{other}")
    print(f"\n{len(fuzzer.findings)} findings")
    return 1 if fuzzer.findings else 0


def _shortened(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:90]}… ({len(text):,} characters)"


if __name__ == "__main__":
    sys.exit(main())
