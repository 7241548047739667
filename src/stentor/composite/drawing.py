"""Automata for people to look at: as text, and as SVG without any library.

The signs are those of the book: a double circle is where the composite event is published, a clock
(◷) where a timer runs, a thick arrow is strong order. States stand in columns by the number of
events that it takes to get there.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import hypot
from typing import Final, NamedTuple

from stentor.composite.automaton import Automaton, Edge, Outcome, State
from stentor.composite.conditions import format_condition
from stentor.composite.expressions import format_expression, format_spec
from stentor.errors import InvalidPattern

#: The largest automaton that is drawn.
MAX_DRAWN: Final = 300
_ACCEPT: Final = -1
_ROW, _RADIUS = 90, 22
#: Characters of a label that are shown, and how wide one is.
_SHOWN, _WIDE = 48, 7


class Arrow(NamedTuple):
    """From one state to another; -1 is where the composite event is published."""

    source: int
    target: int
    label: str
    is_strong: bool


def arrows(automaton: Automaton) -> Iterator[Arrow]:
    """All transitions, those of timers included."""
    for number, state in enumerate(automaton.states):
        for edge in state.edges:
            yield from _leading(number, edge.outcome, _label(edge), bool(edge.raised))
        for register, ways in state.expiries.items():
            for _, outcome in ways:
                yield from _leading(number, outcome, _timer(state, register), False)
            if not ways:
                yield Arrow(number, -2, _timer(state, register), False)


def _leading(source: int, outcome: Outcome, label: str, strong: bool) -> Iterator[Arrow]:
    if outcome.exits:
        yield Arrow(source, _ACCEPT, label, strong)
    if all(outcome.exits) or not outcome.exits:  # complete without a condition, it ends there
        for target in outcome.targets:
            yield Arrow(source, target, label, strong)


def _timer(state: State, register: int) -> str:
    return f"◷{next(n for r, n, _ in state.timers if r == register)}"


def _label(edge: Edge) -> str:
    label = format_expression(edge.atom)
    every = (*edge.conditions, *edge.leaving, *edge.finally_)
    tests = [format_condition(test.condition) for test in every]
    tests += [f"{attribute} differs" for _, attribute in edge.differing]
    if tests:
        label += f" [{' and '.join(tests)}]"
    for (number, _), (_, spec, ways) in zip(edge.move.armed, edge.armed, strict=True):
        if ways:
            label += f" / ◷{number} = {format_spec(spec)}"
    return label


def text(automaton: Automaton) -> str:
    """One line for each transition.

    >>> from stentor.composite import Pattern
    >>> print(text(Pattern("A+ ; B", events={"A": "x = 1", "B": "x = 2"}).automaton))
    → S0
    S0 ─A─ S1
    S1 ─A─ S1
    S1 ═B═ ◎
    """
    _check(automaton)
    lines = [f"→ {', '.join(f'S{i}' for i in automaton.initial)}"]
    for arrow in arrows(automaton):
        line = "═" if arrow.is_strong else "─"
        target = {_ACCEPT: "◎", -2: "✗"}.get(arrow.target, f"S{arrow.target}")
        lines.append(f"S{arrow.source} {line}{arrow.label}{line} {target}")
    return "\n".join(lines)


def svg(automaton: Automaton) -> str:
    """A picture, as the text of an SVG file."""
    _check(automaton)
    joined: dict[tuple[int, int, bool], list[str]] = {}
    for arrow in arrows(automaton):
        if arrow.target != -2:
            joined.setdefault((arrow.source, arrow.target, arrow.is_strong), []).append(arrow.label)
    labels = {ends: " | ".join(each) for ends, each in joined.items()}
    longest = min(max(map(len, labels.values()), default=0), _SHOWN)
    column = max(170, _WIDE * longest + 2 * _RADIUS + 30)
    places = _places(automaton, column)
    width = max(x for x, _ in places.values()) + 80
    height = max(y for _, y in places.values()) + 80
    shapes = []
    for (source, target, strong), label in labels.items():
        shapes.append(_line(places[source], places[target], strong, label, column))
    for number in automaton.initial:
        x, y = places[number]
        shapes.append(_line((x - 70, y), (x, y), False, "", column))
    for number, (x, y) in places.items():
        shapes.append(f'<circle cx="{x}" cy="{y}" r="{_RADIUS}"/>')
        if number == _ACCEPT:
            shapes.append(f'<circle cx="{x}" cy="{y}" r="{_RADIUS - 4}"/>')
        else:
            clock = " ◷" if automaton.states[number].timers else ""
            shapes.append(f'<text x="{x}" y="{y + 5}">S{number}{clock}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">'
        '<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="#333"/></marker></defs>'
        '<g fill="#fff" stroke="#333" stroke-width="1.5" font-family="sans-serif" font-size="13">'
        "<style>text{fill:#111;stroke:none;text-anchor:middle}</style>"
        f"{''.join(shapes)}</g></svg>\n"
    )


def _check(automaton: Automaton) -> None:
    if len(automaton.states) > MAX_DRAWN:
        raise InvalidPattern(
            f"the automaton has {len(automaton.states)} states; at most {MAX_DRAWN} are drawn"
        )


def _places(automaton: Automaton, width: int) -> dict[int, tuple[int, int]]:
    """A column for each distance from the beginning, the end in the last one."""
    distance = dict.fromkeys(automaton.initial, 0)
    waiting = list(automaton.initial)
    following: dict[int, list[int]] = {}
    for arrow in arrows(automaton):
        if arrow.target >= 0:
            following.setdefault(arrow.source, []).append(arrow.target)
    for number in waiting:
        for target in following.get(number, ()):
            if target not in distance:
                distance[target] = distance[number] + 1
                waiting.append(target)
    columns: dict[int, list[int]] = {}
    for number in waiting:
        columns.setdefault(distance[number], []).append(number)
    columns[max(columns) + 1] = [_ACCEPT]
    tallest = max(map(len, columns.values()))
    return {
        number: (110 + width * column, 80 + _ROW * row + _ROW * (tallest - len(found)) // 2)
        for column, found in columns.items()
        for row, number in enumerate(found)
    }


def _line(
    start: tuple[int, int], end: tuple[int, int], strong: bool, label: str, column: int
) -> str:
    (x1, y1), (x2, y2) = start, end
    style = ' stroke-width="3"' if strong else ""
    shown = escape(label if len(label) <= _SHOWN else label[: _SHOWN - 1] + "…")
    title = f"<title>{escape(label)}</title>" if label else ""
    if start == end:
        top = y1 - _RADIUS
        path = f"M{x1 - 12} {top + 4}C{x1 - 30} {top - 34} {x1 + 30} {top - 34} {x1 + 12} {top + 4}"
        place = (x1, top - 32)
    else:
        length = hypot(x2 - x1, y2 - y1)
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        back = x2 <= x1 or abs(x2 - x1) > column
        bend = 46 if back else 0
        first = (x1 + dx * _RADIUS, y1 + dy * _RADIUS)
        last = (x2 - dx * _RADIUS, y2 - dy * _RADIUS)
        middle = ((x1 + x2) / 2 - dy * bend, (y1 + y2) / 2 + dx * bend)
        begin, turn, end_ = (f"{x:.0f} {y:.0f}" for x, y in (first, middle, last))
        path = f"M{begin}Q{turn} {end_}"
        place = (round((x1 + x2) / 2 - dy * bend / 2), round((y1 + y2) / 2 + dx * bend / 2) - 6)
    text_ = f'<text x="{place[0]}" y="{place[1]}">{shown}</text>' if label else ""
    return f'<path d="{path}" fill="none" marker-end="url(#a)"{style}>{title}</path>{text_}'
