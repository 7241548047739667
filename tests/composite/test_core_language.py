"""The core language: what the sheet says of its operators, word for word where it has examples."""

import pytest
from event_tables import detected, history, pattern, told

from stentor.composite import Interval, Pattern, detect_local
from stentor.composite.intervals import microseconds


@pytest.mark.spec("R-06.03")
@pytest.mark.parametrize(
    ("one", "other", "strong", "strong_back", "weak", "weak_back"),
    [
        ((1, 2), (3, 4), True, False, True, False),
        ((1, 3), (2, 4), False, False, True, False),
        ((1, 4), (2, 3), False, False, False, True),
        ((1, 4), (2, 4), False, False, True, False),
        ((1, 2), (2, 3), False, False, True, False),
        ((1, 2), (1, 2), False, False, False, False),
    ],
)
def test_the_two_orders(one, other, strong, strong_back, weak, weak_back) -> None:
    t1, t2 = Interval(*one), Interval(*other)
    assert (t1.strongly_before(t2), t2.strongly_before(t1)) == (strong, strong_back)
    assert (t1.weakly_before(t2), t2.weakly_before(t1)) == (weak, weak_back)


@pytest.mark.spec("R-06.07", "R-06.08", "R-06.11", "R-06.15", "R-06.16")
@pytest.mark.parametrize(
    ("text", "events", "expected"),
    [
        ("[A];[B]", "A1 B2", ["A1 B2"]),
        ("[A];[B]", "A[1;3] B[2;4]", []),
        ("[A][B]", "A[1;3] B[2;4]", ["A[1;3] B[2;4]"]),
        ("[A];[B]", "B1 A2", []),
        ("[A];[B]", "A1 A2 B3 B4", ["A1 B3", "A2 B4"]),
        # All events of the right operand come after the left one, not only its first (06/T2).
        ("A ; (B C)", "A2 B3 C[1;4]", []),
        ("(A ; B) C", "A2 B3 C[1;4]", ["A2 B3 C[1;4]"]),
        # What may not come now ends the run, although it would be right a little later.
        ("A ; B", "A[1;3] B[2;4] B5", []),
    ],
)
def test_sequence_and_concatenation(text: str, events: str, expected: list[str]) -> None:
    assert detected(pattern(text), events) == expected


@pytest.mark.spec("R-06.12", "R-06.13", "06/T3")
def test_a_domain_and_what_follows_failure() -> None:
    first = pattern("[A in {A, B}]")
    assert detected(first, "A1") == ["A1"]
    assert detected(first, "B1 A2", "one_shot") == []
    assert detected(first, "B1 A2") == ["A2"]
    assert detected(first, "A1 A2", "one_shot") == ["A1"]
    assert detected(first, "X1 A2", "one_shot") == ["A2"]


@pytest.mark.spec("R-06.14", "06/T4")
def test_negation_is_one_event_and_no_absence() -> None:
    away = pattern("[Left][not A in P][A]", P="n in ('A', 'Bob')")
    assert detected(away, "Left1 Bob2 A3") == ["Left1 Bob2 A3"]
    assert detected(away, "Left1 A2") == []
    assert detected(away, "Left1 Left2 Bob3 A4") == ["Left1 Bob3 A4"]


@pytest.mark.spec("R-06.17")
@pytest.mark.parametrize(
    ("text", "events", "expected"),
    [
        ("F+ ; L", "F1 F2 F3 L4", ["F1 F2 F3 L4"]),
        ("F* ; L", "L1", ["L1"]),
        ("A F* L", "A1 L2", ["A1 L2"]),
        ("A F* L", "A1 F2 F3 L4", ["A1 F2 F3 L4"]),
        ("F*", "A1", []),
        ("F+", "F1 F2", ["F1", "F2"]),
        ("[F in {F, X}]+ ; L", "F1 X2 L3", []),
        ("(A B)+ ; L", "A1 B2 A3 L4", []),
        ("(A B)+ ; L", "A1 B2 A3 B4 L5", ["A1 B2 A3 B4 L5"]),
    ],
)
def test_iteration(text: str, events: str, expected: list[str]) -> None:
    assert detected(pattern(text), events) == expected


@pytest.mark.spec("R-06.18")
@pytest.mark.parametrize(
    ("text", "events", "expected"),
    [
        ("([B];[P]) | [M]", "B1 P2", ["B1 P2"]),
        ("([B];[P]) | [M]", "M1", ["M1"]),
        ("A ([B in {B, X}] | C)", "A1 X2 C3", ["A1 C3"]),
        ("A ((B within 1s) | C)", "A1 B2 B9 C10", ["A1 B2"]),
        ("A (((B D) within 1s) | C)", "A1 B2 D9 C10", ["A1 C10"]),
    ],
)
def test_alternation(text: str, events: str, expected: list[str]) -> None:
    assert detected(pattern(text), events) == expected


@pytest.mark.spec("R-06.19", "R-06.06")
def test_timing() -> None:
    within = Pattern("([A],[B in {B,T}]) T=1h", {"A": "n = 'A'", "B": "n = 'B'"})
    assert detected(within, "A0 B3540") == ["A0 B3540"]
    assert detected(within, "A0 B3600") == ["A0 B3600"]  # the deadline is included
    assert detected(within, "A0 B3660") == []
    absent = Pattern("([A],[T in {B,T}]) T=1h", {"A": "n = 'A'", "B": "n = 'B'"})
    (found,) = detect_local(absent, history("A0"))
    assert told([found]) == ["A0"]
    assert found.interval == Interval(0, 3_600_000_000)
    assert detected(absent, "A0 B60") == []
    # The timer belongs to the run that has started it.
    assert detected(absent, "A0 A3000 B3700") == ["A0"]


@pytest.mark.spec("R-06.19", "R-06.23")
def test_timing_by_the_clock() -> None:
    light = Pattern(
        "(Empty, [T in {Back, T}]) T=at '19:00'", {"Empty": "n = 'E'", "Back": "n = 'B'"}
    )
    (found,) = detect_local(light, history("E100"))
    assert found.interval.end.hour == 19
    day = 86_400
    assert detected(light, f"E{19 * 3600} B{19 * 3600 + 1}") == []
    (found,) = detect_local(light, history(f"E{19 * 3600}"))
    assert found.interval.high == (19 * 3600 + day) * 1_000_000
    once = Pattern("(Empty, T) T=at '1970-01-02T00:00:00Z'", {"Empty": "n = 'E'"})
    (found,) = detect_local(once, history("E5"))
    assert microseconds(found.interval.end) == day * 1_000_000
    assert detect_local(once, history(f"E{day}")) == []  # that moment has passed


@pytest.mark.spec("R-06.06", "R-06.09")
def test_the_automaton_of_figure_7_6() -> None:
    """A strongly, or B weakly, then C within five minutes."""
    figure = Pattern("((A | B), [C in {C, T}]) T=5m", {x: f"n = '{x}'" for x in "ABC"})
    assert detected(figure, "A0 C299") == ["A0 C299"]
    assert detected(figure, "B0 C300") == ["B0 C300"]
    assert detected(figure, "A0 C301") == []


@pytest.mark.spec("R-06.20", "06/P2")
@pytest.mark.parametrize(
    ("text", "events", "expected"),
    [
        ("A || B", "A1 B2", ["A1 B2"]),
        ("A || B", "B1 A2", ["B1 A2"]),
        ("A || B", "A1 B1", ["A1 B1"]),  # no order between them
        ("A || A", "A1 A2", ["A1 A2"]),
        ("(A ; B) || C", "A1 C[2;9] B[3;10]", ["A1 C[2;9] B[3;10]"]),
        ("X ; (A || B)", "B0 X1 B2 A3", ["X1 B2 A3"]),
        ("(A || B) ; C", "A1 B[2;5] C[4;6] C7", []),
        ("(A || B) ; C", "A1 B[2;5] C6", ["A1 B[2;5] C6"]),
    ],
)
def test_parallel(text: str, events: str, expected: list[str]) -> None:
    assert detected(pattern(text), events) == expected


@pytest.mark.spec("R-06.21", "R-06.22")
def test_the_readable_form() -> None:
    readable = Pattern(
        "Event_A followed_by Event_B within 1 hour", {"Event_A": "n = 'A'", "Event_B": "n = 'B'"}
    )
    assert detected(readable, "A0 B3600") == ["A0 B3600"]
    assert detected(readable, "A0 B3601") == []
    assert pattern("A or B followed by C") == pattern("A | B ; C")
    assert pattern("A and B") == pattern("A || B")
    assert pattern("A loosely followed by B repeated 3 times") == pattern("A (B{3})")
    burst = pattern("(F{3} within 1m) not followed by S within 1m")
    assert detected(burst, "F1 F2 F3 S100") == ["F1 F2 F3"]
    assert detected(burst, "F1 F2 F3 S50") == []


@pytest.mark.spec("R-08.25", "R-08.26")
@pytest.mark.parametrize(
    ("text", "events", "expected"),
    [
        ("sequence(A, B)", "A1 B2", ["A1 B2"]),
        ("sequence(A, B)", "A1 X2 B3", ["A1 B3"]),
        ("sequence(A, B)", "A1 A2 B3", ["A2 B3"]),
        ("sequence(A, B)", "A1 B2 B3", ["A1 B2"]),
        ("sequence(A, A)", "A1 A2 A3", ["A1 A2", "A2 A3"]),
        ("sequence(A, A) consuming", "A1 A2 A3", ["A1 A2"]),
        ("sequence(A, B)", "A1 B1", ["A1 B1"]),  # times may be equal
        ("sequence(A, B)", "A2 B[1;3]", []),  # what was there before has not followed
    ],
)
def test_sequences_of_siena(text: str, events: str, expected: list[str]) -> None:
    assert detected(pattern(text), events) == expected
