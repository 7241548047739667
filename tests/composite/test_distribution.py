"""Plans: where the parts of patterns are detected, by the sheets' own examples."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from parts_histories import check

from stentor import Filter, Notification
from stentor.composite import Pattern, detect_local
from stentor.composite import distribution as plans
from stentor.composite.distribution import (
    DISTRIBUTIONS,
    Situation,
    decompose,
    parts,
    place,
    replace_lost,
)
from stentor.composite.factoring import factor
from stentor.errors import UnknownStrategy

EVENTS = {"B": "n = 'b'", "P": "n in ('b', 'p')", "M": "n = 'm'"}
MEETING = Pattern("(B ; P) | M", events=EVENTS)
INNER = Pattern("B ; P", events={"B": EVENTS["B"], "P": EVENTS["P"]})
#: A chain b1 - b2 - b3 - b4.
CHAIN = ("b1", "b2", "b3", "b4")


def known(**changes: object) -> Situation:
    facts: dict[str, object] = {
        "loads": dict.fromkeys(CHAIN, 0.0) | {"b1": 5.0, "b4": 2.0},
        "hops": lambda a, b: abs(CHAIN.index(a) - CHAIN.index(b)),
        "rates": {str(Filter(text)): {"b3": 10.0} for text in EVENTS.values()},
        **changes,
    }
    return Situation(**facts)  # type: ignore[arg-type]


def history(names: str) -> list[Notification]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        Notification({"n": name}, time=start + timedelta(seconds=i)) for i, name in enumerate(names)
    ]


class TestDecomposition:
    @pytest.mark.spec("R-06.26")
    def test_the_detectors_of_figure_7_10(self) -> None:
        outer = decompose(MEETING)
        assert outer.events["C1"] == INNER
        assert [str(each) for each in parts(outer)] == ["B ; P", "C1 | M"]
        for names in ("bp", "m", "bxp", "bm", "pb", "bpbp"):
            whole = detect_local(MEETING, history(names))
            apart = detect_local(outer, history(names))
            assert [f.interval for f in apart] == [f.interval for f in whole], names

    @pytest.mark.spec("R-06.19")
    def test_what_has_to_stay_together_does(self) -> None:
        for text in ("(B, [P in {P, T}]) T=1h", "(B ; P) within 1h", "(B ; P){2}"):
            pattern = Pattern(text, events=EVENTS)
            assert decompose(pattern) is pattern

    def test_what_is_taken_apart_looks_at_events_of_its_own(self) -> None:
        for text in (
            "(B ; M) | P",
            "(B ; M) ; P",
            "M ; (B ; P)",
            "([B in {B, P}] ; P) ; M",
            "B ; B || M",
        ):
            pattern = Pattern(text, events=EVENTS)
            assert decompose(pattern) is pattern, text
        everything = Pattern("(B ; P) | X", events=EVENTS | {"X": "not exists n"})
        assert decompose(everything) is everything, "it would see what the part finds"

    def test_parts_find_together_what_the_whole_finds(self) -> None:
        checked = [found for seed in range(200) if (found := check(seed))]
        assert len(checked) > 15
        assert sum(found for _, found in checked) > 30

    def test_histories_tell_if_too_much_is_taken_apart(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A negative control."""
        monkeypatch.setattr(plans, "_are_apart", lambda some, rest: True)
        with pytest.raises(AssertionError, match="apart"):
            list(map(check, range(600)))

    def test_only_what_is_wanted_is_taken_apart(self) -> None:
        assert decompose(MEETING, lambda part: False) is MEETING
        assert decompose(MEETING, lambda part: part == INNER).level == 1


class TestPlacement:
    @pytest.mark.spec("R-06.30")
    @pytest.mark.parametrize(
        ("policy", "placed"),
        [
            ("minimum_latency", [("(B ; P) | M", "b1", True)]),
            ("minimum_bandwidth", [("B ; P", "b4", False), ("C1 | M", "b3", True)]),
            ("minimum_impact", [("B ; P", "b4", False), ("C1 | M", "b2", True)]),
            ("minimum_load", [("B ; P", "b4", False), ("C1 | M", "b2", True)]),
            (
                "maximum_reliability",
                [("B ; P | M", "b2", True), ("B ; P | M", "b3", True)],
            ),
        ],
    )
    def test_the_policies_of_table_7_1(
        self, policy: str, placed: list[tuple[str, str, bool]]
    ) -> None:
        there = known(detectors={INNER.type: ("b4",)})
        found = place(MEETING, "b1", policy, there)
        expected = [(str(Pattern(t, events=MEETING.events)) if "C1" not in t else t, b, n)
                    for t, b, n in placed]  # fmt: skip
        assert [(str(p.pattern), p.broker, p.is_new) for p in found] == expected

    def test_reuse_is_by_number_and_nearness(self) -> None:
        two = known(detectors={MEETING.type: ("b4", "b3")})
        reliable = place(MEETING, "b1", "maximum_reliability", two)
        assert [(p.broker, p.is_new) for p in reliable] == [("b3", False), ("b4", False)]
        quick = place(MEETING, "b1", "minimum_latency", two)
        assert [(p.broker, p.is_new) for p in quick] == [("b1", True)], "they are too far away"
        same = place(MEETING, "b4", "minimum_latency", two)
        assert [(p.broker, p.is_new) for p in same] == [("b4", False)]

    def test_shared_parts_are_detected_once(self) -> None:
        twice = Pattern("X ; X", events={"X": MEETING})
        both = Pattern(
            "Y ; M", events={"Y": Pattern("X{2}", events={"X": INNER}), "M": EVENTS["M"]}
        )
        for pattern in (twice, both):
            found = place(pattern, "b1", DISTRIBUTIONS["minimum_load"], known())
            assert [str(p.pattern) for p in found].count("B ; P") == 1

    def test_what_is_lost_is_put_elsewhere(self) -> None:
        found = place(MEETING, "b1", "maximum_reliability", known())
        lost, kept = found[0], found[1]
        left = known(loads={"b1": 5.0, "b3": 0.0, "b4": 2.0})
        [again] = replace_lost([lost], [kept], "b1", "maximum_reliability", left)
        assert (lost.broker, kept.broker, again.broker) == ("b2", "b3", "b4")
        nowhere = known(loads={"b3": 0.0})
        assert replace_lost([lost], [kept], "b1", "maximum_reliability", nowhere) == []

    def test_a_policy_that_there_is_not(self) -> None:
        with pytest.raises(UnknownStrategy, match="minimum_latency"):
            place(MEETING, "b1", "fastest", known())


class TestFactoring:
    @pytest.mark.spec("R-08.58")
    def test_tables_4_2_and_4_3(self) -> None:
        a1 = Filter("alarm = 'bad-login' and attempts > 0")
        a2 = Filter("exists file and operation = 'file-change'")
        pattern = [
            Filter("alarm = 'bad-login' and attempts = 1"),
            Filter("alarm = 'bad-login' and attempts = 2"),
            Filter("file = '/etc/passwd' and operation = 'file-change'"),
        ]
        available = {a1: frozenset({"2"}), a2: frozenset({"2", "3"})}
        # Filters without a common attribute overlap; SIENA's events have one kind of content.
        alarms, files = Filter("not exists file"), Filter("not exists alarm")
        pattern = [pattern[0] & alarms, pattern[1] & alarms, pattern[2] & files]
        available = {a1 & alarms: available[a1], a2 & files: available[a2]}
        found = factor(pattern, available, "1")
        assert [set(each) for each in found.factors] == [{a1 & alarms}] * 2 + [{a2 & files}]
        assert found.groups == ((0, 2, "2"),)
        assert found.singles == {2: frozenset({"2", "3"})}
        assert found.monitor(pattern) == [(pattern[0], pattern[1]), (pattern[2],)]
        assert factor(pattern, available, "1", strict=True).groups == ()

    @pytest.mark.spec("R-08.58")
    @pytest.mark.parametrize(
        ("sequence", "providers", "groups"),
        [
            ("aba", {"a": "Y", "b": "Y"}, ()),
            ("abab", {"a": "Y", "b": "Y"}, ((0, 2, "Y"), (2, 4, "Y"))),
            ("abc", {"a": "Y", "b": "Z", "c": "Y"}, ()),
            ("ab", {"a": "Y", "b": "YZ"}, ()),
            ("ab", {"a": "X", "b": "X"}, ()),
            ("aaa", {"a": "Y"}, ((0, 3, "Y"),)),
        ],
    )
    def test_what_can_be_delegated(
        self, sequence: str, providers: dict[str, str], groups: object
    ) -> None:
        available = {Filter(f"n = '{n}'"): frozenset(who) for n, who in providers.items()}
        found = factor([Filter(f"n = '{n}'") for n in sequence], available, "X")
        assert found.groups == groups

    def test_what_nobody_offers_is_pending(self) -> None:
        found = factor([Filter("n = 'a'")], {}, "X")
        assert found.is_pending
        assert not found.singles
