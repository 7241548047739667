"""The results of the routing measurements as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from matplotlib import pyplot as plt

from plots import save
from tables import Results

STYLE: Final[dict[str, dict[str, Any]]] = {
    "simple": {"color": "#777777", "marker": "x", "linestyle": ":"},
    "identity": {"color": "#4a7fb5", "marker": "^"},
    "covering": {"color": "#0b6e4f", "marker": "o", "linewidth": 2.4},
    "merging": {"color": "#c1666b", "marker": "s", "linestyle": "--"},
}
#: The populations.
COLORS: Final = ("#0b6e4f", "#8fc0a9", "#e0a458")
#: Microseconds that one subscription among 100,000 may take on average under covering.
GOAL: Final = 2_000


def save_routing_plots(results: Results, folder: Path) -> list[Path]:
    """One file per picture that the results have something for."""
    saved = []
    if changes := results.get("changes"):
        saved.append(_changes(changes, folder / "routing-changes.png"))
    if traffic := results.get("traffic"):
        saved.append(_traffic(traffic, folder / "routing-traffic.png"))
    return saved


def _changes(changes: list[dict[str, Any]], path: Path) -> Path:
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.6), dpi=130, sharey=True)
    sizes = sorted({row["filters"] for row in changes})
    parts = {"subscribe": "One subscription", "unsubscribe": "One withdrawal"}
    for axes, (what, title) in zip(panels, parts.items(), strict=True):
        for name, style in STYLE.items():
            rows = [row for row in changes if row["routing"] == name]
            means = [row[what]["mean_us"] for row in rows]
            axes.plot([row["filters"] for row in rows], means, label=name, **style)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(sizes, [f"{filters:,}" for filters in sizes], minor=False)
        axes.minorticks_off()
        axes.set_xlabel("filters held")
        axes.set_title(title, loc="left", fontweight="bold")
        axes.grid(True, which="major", color="#dddddd")
    panels[0].axhline(GOAL, color="#222222", linewidth=1, linestyle=(0, (1, 3)))
    panels[0].text(sizes[0], 1.08 * GOAL, "goal for covering", fontsize=8, color="#222222")
    panels[0].yaxis.set_major_formatter("{x:,.0f}")
    panels[0].set_ylabel("mean processor time, µs")
    panels[1].legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
    return save(figure, path)


def _traffic(traffic: list[dict[str, Any]], path: Path) -> Path:
    """All without advertisements, to what simple routing sends and stores, and flooding sends."""
    figure, panels = plt.subplots(1, 3, figsize=(12, 6.4), dpi=130, sharey=True)
    measures = (
        ("subscribing", "simple", "Subscription messages\nto simple routing"),
        ("remote_entries", "simple", "Remote entries\nto simple routing"),
        ("notifications", "flooding", "Notification messages\nto flooding"),
    )
    rows = traffic[0]["rows"]
    names = [row["configuration"] for row in rows if not row["advertisement_entries"]]
    height = 0.8 / len(traffic)
    for axes, (measure, base, title) in zip(panels, measures, strict=True):
        for place, population in enumerate(traffic):
            counts = {row["configuration"]: row[measure] for row in population["rows"]}
            shares = [100 * counts[name] / counts[base] for name in names]
            bars = axes.barh(
                [-line - (place - 1) * height for line in range(len(names))],
                shares,
                height=height,
                color=COLORS[place],
                label=population["name"],
            )
            axes.bar_label(bars, [f"{share:.0f} %" for share in shares], padding=2, fontsize=7)
        axes.set_title(title, loc="left", fontweight="bold", fontsize=10)
        axes.xaxis.set_major_formatter("{x:.0f} %")
        axes.set_xlim(0, 118)
        axes.set_xticks(range(0, 101, 25))
        axes.grid(True, axis="x", color="#dddddd")
        axes.set_axisbelow(True)
    panels[0].set_yticks([-line for line in range(len(names))], names)
    panels[2].legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
    return save(figure, path)
