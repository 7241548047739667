"""The results as pictures: PNG files beside the JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from tables import Results

mpl.use("Agg")  # no window, whatever the surroundings

from matplotlib import pyplot as plt

STYLE: Final[dict[str, dict[str, Any]]] = {
    "Index": {"color": "#0b6e4f", "marker": "o", "linewidth": 2.4},
    "Yardstick": {"color": "#c1666b", "marker": "s", "linestyle": "--"},
    "Counting": {"color": "#4a7fb5", "marker": "^"},
    "BruteForce": {"color": "#777777", "marker": "x", "linestyle": ":"},
}


def save_plots(results: Results, folder: Path) -> list[Path]:
    """One file per picture that the results have something for."""
    saved = []
    if stock := results.get("stock"):
        rates = _series(stock, "engines", "events_per_s")
        saved.append(
            _lines(
                rates,
                "Throughput, stock quotes, one core",
                "events per second",
                folder / "throughput.png",
            )
        )
        latency = _series(stock, "latency", "median_us")
        saved.append(
            _lines(
                latency,
                "One event at a time, stock quotes",
                "median latency, µs",
                folder / "latency.png",
            )
        )
    if shapes := results.get("shapes"):
        saved.append(_bars(shapes, folder / "speedup.png"))
    return saved


def _series(
    stock: list[dict[str, Any]], part: str, value: str
) -> dict[str, list[tuple[int, float]]]:
    """Points of each engine by number of filters."""
    series: dict[str, list[tuple[int, float]]] = {}
    for row in stock:
        for name, values in row[part].items():
            series.setdefault(name, []).append((row["filters"], values[value]))
    return series


def _lines(series: dict[str, list[tuple[int, float]]], title: str, label: str, path: Path) -> Path:
    figure, axes = plt.subplots(figsize=(8, 5), dpi=130)
    for name, style in STYLE.items():
        if points := series.get(name):
            axes.plot(*zip(*points, strict=True), label=name, **style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    sizes = sorted({x for points in series.values() for x, _ in points})
    axes.set_xticks(sizes, [f"{filters:,}" for filters in sizes], minor=False)
    axes.minorticks_off()
    axes.set_xlabel("filters held")
    axes.set_ylabel(label)
    axes.set_title(title, loc="left", fontweight="bold")
    axes.grid(True, which="major", color="#dddddd")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
    return save(figure, path)


def _bars(shapes: list[dict[str, Any]], path: Path) -> Path:
    ordered = sorted(shapes, key=lambda row: float(row["speedup"]))
    figure, axes = plt.subplots(figsize=(8, 0.45 * len(ordered) + 1.6), dpi=130)
    most = max(row["filters"] for row in ordered)
    names = [
        row["name"] if row["filters"] == most else f"{row['name']} ({row['filters']:,})"
        for row in ordered
    ]
    places = range(len(ordered))
    brute = [row["engines"]["BruteForce"]["events_per_s"] for row in ordered]
    for engine, shift in (("Index", 0.2), ("Counting", -0.2)):
        factors = [
            row["engines"][engine]["events_per_s"] / base
            for row, base in zip(ordered, brute, strict=True)
        ]
        bars = axes.barh(
            [place + shift for place in places],
            factors,
            height=0.38,
            color=STYLE[engine]["color"],
            label=engine,
        )
        axes.bar_label(bars, [f"{factor:,.0f}×" for factor in factors], padding=3, fontsize=8)
    axes.set_yticks(list(places), names)
    axes.set_xscale("log")
    axes.set_xlim(left=1)
    axes.xaxis.set_major_formatter("{x:,.0f}×")
    axes.margins(x=0.15)
    axes.set_xlabel("times faster than testing every filter")
    axes.set_title(f"Other workloads, {most:,} filters", loc="left", fontweight="bold")
    axes.grid(True, axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="lower right")
    return save(figure, path)


def save(figure: Any, path: Path) -> Path:
    for axes in figure.axes:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return path
