"""A picture of the bars that came back from Spark."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

from market.cast import EXCHANGES
from market.pipeline import WINDOW, Pipelined

mpl.use("Agg")  # no window, whatever the surroundings

from matplotlib import pyplot as plt

_UP, _DOWN = "#0b6e4f", "#c1666b"


def save(found: Pipelined, path: Path) -> Path:
    """One panel per symbol: open, high, low and close of every window."""
    symbols = [(e.name, symbol) for e in EXCHANGES for symbol in e.traded]
    begin = min(time for _, time in found.bars)
    columns = len(EXCHANGES[0].traded)
    figure, panels = plt.subplots(
        len(EXCHANGES), columns, figsize=(11, 9), sharex=True, layout="constrained"
    )
    width = WINDOW.total_seconds()
    for panel, (exchange, symbol) in zip(panels.flat, symbols, strict=True):
        for (name, time), bar in sorted(found.bars.items()):
            if name != symbol:
                continue
            x = (time - begin).total_seconds() + width / 2
            color = _UP if bar["close"] >= bar["open"] else _DOWN
            panel.vlines(x, bar["low"], bar["high"], color=color, linewidth=1.2)
            body = bar["close"] - bar["open"]
            panel.bar(x, body, 0.7 * width, bar["open"], color=color, linewidth=0)
        panel.set_title(f"{symbol}, {exchange}", fontsize=9, loc="left")
        panel.tick_params(labelsize=7)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", linewidth=0.3)
        panel.set_axisbelow(True)
    for panel in panels[-1]:
        panel.set_xlabel("seconds since the first trade", fontsize=8)
    figure.suptitle(
        f"{found.trades:,} trades as {len(found.bars):,} bars of {width:g} s: "
        "read from five journals, collapsed on Spark, published back",
        fontsize=11,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
