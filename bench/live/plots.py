"""The results of the live service's measurements as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from matplotlib import pyplot as plt

from live.goals import TO_MOSQUITTO
from plots import save
from tables import Results

STYLE: Final[dict[str, dict[str, Any]]] = {
    "prepared": {"color": "#0b6e4f", "marker": "o", "linewidth": 2.4},
    "library": {"color": "#8fc0a9", "marker": "^", "linewidth": 2.0},
}


def save_live_plots(results: Results, folder: Path) -> list[Path]:
    """How many times Mosquitto's rate, by the number of filters, if both were measured."""
    rows = [row for row in results.get("throughput", ()) if "mosquitto" in row]
    if not rows:
        return []
    figure, axes = plt.subplots(figsize=(8, 4.6), dpi=130)
    places = range(len(rows))
    for name, style in STYLE.items():
        axes.plot(places, [row[name]["ratio"] for row in rows], label=name, **style)
    for place, row in enumerate(rows):
        goal = TO_MOSQUITTO.get(row["filters"])
        if goal is not None:
            axes.plot([place - 0.15, place + 0.15], [goal, goal], color="#222222", linewidth=1)
            axes.annotate("goal", (place + 0.17, goal), fontsize=8, va="center")
    axes.axhline(1, color="#c1666b", linestyle="--", label="Mosquitto, QoS 0")
    axes.set_xticks(list(places), [f"{row['filters']:,}" for row in rows])
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:.0f}×")
    axes.set_xlabel("content filters of others")
    axes.set_ylabel("events/s to Mosquitto")
    axes.set_title("One to one, at most once, one core for the broker", loc="left", weight="bold")
    axes.grid(True, axis="y", color="#dddddd")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
    return [save(figure, folder / "live-throughput.png")]
