"""Pictures of the tables: each function takes rows and gives a PNG.

Matplotlib is needed here and nowhere else in the pipeline, so it is imported when something is to
be drawn. Figures are made without pyplot: no window system, no state that outlives a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from io import BytesIO
from typing import Any, Final

from stentor.errors import PipelineError

#: Colors that can be told apart by everybody (after Okabe and Ito).
COLORS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
#: Lines or bars that a reader can still tell apart; what is beyond is one more, "others".
MOST: Final = len(COLORS) - 1
#: Attributes in a picture.
BARS: Final = 20


def traffic_plot(rows: Sequence[tuple[datetime, str, float]], span: timedelta, unit: str) -> bytes:
    """Rates over time, a line for each broker. A span of time without events is a rate of zero."""
    figure, axes = _figure()
    totals: dict[str, float] = {}
    for _, name, rate in rows:
        totals[name] = totals.get(name, 0.0) + rate
    chosen = sorted(totals, key=lambda name: (-totals[name], name))[:MOST]
    series: dict[str, dict[datetime, float]] = {name: {} for name in chosen}
    for time, name, rate in rows:
        line = series.setdefault(name if name in chosen else "others", {})
        line[time] = line.get(time, 0.0) + rate
    for (name, line), color in zip(series.items(), COLORS, strict=False):
        times = _with_gaps(line, min(r[0] for r in rows), max(r[0] for r in rows), span)
        heights = [line.get(time, 0.0) for time in times]
        axes.plot(times, heights, color=color, label=name, linewidth=1.6, **_marked(times))
    axes.set_xlim(min(r[0] for r in rows) - span, max(r[0] for r in rows) + span)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"events per second, mean over {unit}")
    axes.set_xlabel("time of publication, UTC")
    _date_axis(axes)
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
    return _horizontal(rows, "events")


def popularity_plot(counts: Sequence[int]) -> bytes:
    """Subscriptions by the rank of their filter: how unequal interest is."""
    figure, axes = _figure()
    ordered = sorted(counts, reverse=True)
    ranks = range(1, len(ordered) + 1)
    axes.plot(ranks, ordered, color=COLORS[0], linewidth=1.8, **_marked(ranks))
    axes.set_xscale("log")
    axes.set_yscale("log")
    _plain_ticks(axes)
    axes.set_xlabel("rank of the filter, the most popular first")
    axes.set_ylabel("subscriptions with this filter")
    return _png(figure)


def selectivity_plot(shares: Sequence[float]) -> bytes:
    """How many filters match how much; those that match nothing have an axis of their own."""
    figure, (nothing, axes) = _figure(columns=(1, 12))
    matching = [share for share in shares if share > 0]
    lowest = min(matching, default=1.0)
    edges = [1.0]
    while edges[-1] > lowest * 1.0001:
        edges.append(edges[-1] / 10**0.25)
    edges.append(edges[-1] / 10**0.25)
    edges.reverse()
    axes.hist([min(share, 1.0) for share in matching], bins=edges, color=COLORS[0])
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set_xlabel("share of the events that a filter matches (logarithmic)")
    axes.tick_params(left=False, labelleft=False)
    axes.spines["left"].set_visible(False)
    never = len(shares) - len(matching)
    nothing.bar(["0 %"], [never], width=0.6, color=COLORS[1])
    nothing.set_xlim(-0.8, 0.8)
    nothing.set_xlabel("nothing")
    nothing.set_ylabel("filters")
    nothing.margins(y=0.1)
    _whole_numbers(nothing.yaxis)
    return _png(figure)


def potential_plot(rows: Sequence[tuple[str, int, str]]) -> bytes:
    """Sizes of the routing table by strategy; what is only a bound says so."""
    figure, axes = _figure(height=0.55 * len(rows) + 1.2)
    names = [name for name, _, _ in rows]
    sizes = [size for _, size, _ in rows]
    bars = axes.barh(names, sizes, color=COLORS[0])
    first = sizes[0] if sizes else 0
    words = {"upper bound": "at most ", "estimate": "about "}
    for bar, (_, size, certainty) in zip(bars, rows, strict=True):
        share = f" ({size / first:.1%})" if first else ""
        _label(axes, bar, f"{words.get(certainty, '')}{size:,}{share}")
    axes.grid(visible=False, axis="y")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * max(sizes, default=1) or 1)
    _whole_numbers(axes.xaxis)
    axes.set_xlabel("entries in the routing table")
    return _png(figure)


def attributes_plot(rows: Sequence[tuple[str, float, float]]) -> bytes:
    """What is asked for against what is carried, in shares of subscriptions and of events."""
    shown = rows[:BARS]
    figure, axes = _figure(height=0.42 * len(shown) + 1.4)
    places = range(len(shown))
    axes.barh(
        [p - 0.2 for p in places],
        [asked for _, asked, _ in shown],
        height=0.38,
        color=COLORS[0],
        label="subscriptions that ask for it",
    )
    axes.barh(
        [p + 0.2 for p in places],
        [carried for _, _, carried in shown],
        height=0.38,
        color=COLORS[4],
        label="events that carry it",
    )
    axes.set_yticks(list(places), [_short(name) for name, _, _ in shown])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("share")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return _png(figure)


def _horizontal(rows: Sequence[tuple[str, int]], label: str) -> bytes:
    shown = [*rows[:BARS]]
    rest = sum(size for _, size in rows[BARS:])
    if rest:
        shown.append(("others", rest))
    figure, axes = _figure(height=0.4 * len(shown) + 1.2)
    bars = axes.barh([_short(name) for name, _ in shown], [n for _, n in shown], color=COLORS[0])
    for bar, (_, size) in zip(bars, shown, strict=True):
        _label(axes, bar, f"{size:,}")
    axes.grid(visible=False, axis="y")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15 * max((n for _, n in shown), default=1) or 1)
    _whole_numbers(axes.xaxis)
    axes.set_xlabel(label)
    return _png(figure)


def _figure(height: float = 3.6, columns: Sequence[int] = ()) -> tuple[Any, Any]:
    """A figure and its axes, or several beside each other of these widths."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise PipelineError(
            "plots need matplotlib, which is not installed: pip install matplotlib"
        ) from None
    figure = Figure(figsize=(8.0, max(2.0, height)), layout="constrained")
    if columns:
        found = figure.subplots(1, len(columns), sharey=True, width_ratios=columns)
    else:
        found = figure.subplots()
    for axes in found if columns else [found]:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="both", alpha=0.25)
        axes.set_axisbelow(True)
    return figure, found


def _png(figure: Any) -> bytes:
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=130)
    return stream.getvalue()


def _marked(points: Sequence[Any]) -> dict[str, Any]:
    """Points are shown where there are few of them."""
    return {"marker": "o", "markersize": 3.5} if len(points) <= 60 else {}


def _date_axis(axes: Any) -> None:
    from matplotlib import dates

    locator = dates.AutoDateLocator(tz="UTC", maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    written = dates.ConciseDateFormatter(locator, tz="UTC")  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(written)


def _plain_ticks(axes: Any) -> None:
    """1, 10, 100 instead of powers, as long as they are short."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")


def _whole_numbers(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _label(axes: Any, bar: Any, text: str) -> None:
    axes.annotate(
        text,
        (bar.get_width(), bar.get_y() + bar.get_height() / 2),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
    )


def _short(name: str, most: int = 40) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
