"""Pictures of the tables: each function takes rows and gives a PNG.

Matplotlib is imported when something is to be drawn. Figures are made without pyplot: no window
system, no state that outlives a call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from io import BytesIO
from typing import Any, Final

from stentor.errors import PipelineError

#: Colors that can be told apart by everybody (after Okabe and Ito).
COLORS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
#: Lines that a reader can still tell apart; what is beyond is one more, "others".
MOST: Final = len(COLORS) - 1
#: Bars in a picture.
BARS: Final = 20
#: What is said before a number that is not exact.
_WORDS: Final = {"upper bound": "at most ", "estimate": "about "}


def traffic_plot(rows: Sequence[tuple[datetime, str, float]], span: timedelta, unit: str) -> bytes:
    """Rates over time, a line for each broker. A span of time without events is a rate of zero."""
    from matplotlib import dates

    figure, axes = _figure()
    totals: dict[str, float] = defaultdict(float)
    for _, name, rate in rows:
        totals[name] += rate
    chosen = sorted(totals, key=lambda name: (-totals[name], name))[:MOST]
    series: dict[str, dict[datetime, float]] = defaultdict(lambda: defaultdict(float))
    for time, name, rate in rows:
        series[name if name in chosen else "others"][time] += rate
    first, last = min(row[0] for row in rows), max(row[0] for row in rows)
    for (name, line), color in zip(sorted(series.items()), COLORS, strict=False):
        times = _with_gaps(line, first, last, span)
        axes.plot(
            times, [line.get(time, 0.0) for time in times], color=color, label=name, marker="."
        )
    axes.set_xlim(first - span, last + span)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"events per second, mean over {unit}")
    axes.set_xlabel("time of publication, UTC")
    locator = dates.AutoDateLocator(tz="UTC", maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = dates.ConciseDateFormatter(locator, tz="UTC")  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)
    if set(series) != {""}:
        axes.legend(title="broker", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return _png(figure)


def _with_gaps(
    line: dict[datetime, float], first: datetime, last: datetime, span: timedelta
) -> list[datetime]:
    """The times of a line and, where it is silent, those at which that begins and ends."""
    silent = {time + step for time in line for step in (-span, span)}
    return sorted(line.keys() | {time for time in silent | {first, last} if first <= time <= last})


def types_plot(rows: Sequence[tuple[str, int]]) -> bytes:
    """Events by type."""
    rest = sum(size for _, size in rows[BARS:])
    shown = [*rows[:BARS], *([("others", rest)] if rest else [])]
    return _bars([(name, size, f"{size:,}") for name, size in shown], "events")


def popularity_plot(counts: Sequence[int]) -> bytes:
    """Subscriptions by the rank of their filter: how unequal interest is."""
    figure, axes = _figure()
    axes.loglog(range(1, len(counts) + 1), sorted(counts, reverse=True), marker=".")
    axes.set_xlabel("rank of the filter, the most popular first")
    axes.set_ylabel("subscriptions with this filter")
    return _png(figure)


def selectivity_plot(shares: Sequence[float]) -> bytes:
    """How many filters match how much, logarithmically; those that match nothing at the left."""
    figure, axes = _figure()
    least = min((share for share in shares if share > 0), default=1.0)
    edges = [1.0]
    while edges[-1] > least / 2:
        edges.append(edges[-1] / 10**0.25)
    nothing = edges[-1] / 10**0.25
    values = [min(share, 1.0) if share > 0 else nothing for share in shares]
    axes.hist(values, bins=[nothing / 10**0.25, *reversed(edges)])
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set_xlabel("share of the events that a filter matches; the first bar: nothing")
    axes.set_ylabel("filters")
    return _png(figure)


def potential_plot(rows: Sequence[tuple[str, int, str]]) -> bytes:
    """Sizes of the routing table by strategy; what is only a bound says so."""
    first = rows[0][1] if rows else 0
    shares = {size: f" ({size / first:.1%})" if first else "" for _, size, _ in rows}
    labels = [
        (name, size, f"{_WORDS.get(certainty, '')}{size:,}{shares[size]}")
        for name, size, certainty in rows
    ]
    return _bars(labels, "entries in the routing table")


def attributes_plot(rows: Sequence[tuple[str, float, float]]) -> bytes:
    """What is asked for against what is carried, in shares of subscriptions and of events."""
    shown = rows[:BARS]
    figure, axes = _figure(height=0.42 * len(shown) + 1.4)
    places = range(len(shown))
    asked, carried = [each for _, each, _ in shown], [each for _, _, each in shown]
    axes.barh([p - 0.2 for p in places], asked, 0.38, label="subscriptions that ask for it")
    axes.barh([p + 0.2 for p in places], carried, 0.38, label="events that carry it")
    axes.set_yticks(list(places), [name[:40] for name, _, _ in shown])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return _png(figure)


def _bars(rows: Sequence[tuple[str, int, str]], label: str) -> bytes:
    """A bar for each, with a text at its end."""
    figure, axes = _figure(height=0.4 * len(rows) + 1.2)
    bars = axes.barh([name[:40] for name, _, _ in rows], [size for _, size, _ in rows])
    axes.bar_label(bars, [text for _, _, text in rows], padding=4, fontsize=9)
    axes.margins(x=0.3)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    return _png(figure)


def _figure(height: float = 3.6) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise PipelineError(
            "plots need matplotlib, which is not installed: pip install matplotlib"
        ) from None
    figure = Figure(figsize=(8.0, max(2.0, height)), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.set_prop_cycle(color=COLORS)
    return figure, axes


def _png(figure: Any) -> bytes:
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=130)
    return stream.getvalue()
