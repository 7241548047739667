"""Curves of a run: how fast each query was over time, and how far behind."""

from __future__ import annotations

import time
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

from stentor.errors import InvalidConfiguration, PipelineError
from stentor.pipeline.runs.figures import Figures

_FORMS: Final = (".png", ".svg", ".pdf")
#: Seconds since the beginning, rows so far, and the lag, if it is known.
_Point: TypeAlias = tuple[float, int, int | None]
#: Points that are kept of each query; beyond that, every other one is left out.
_POINTS: Final = 4_000


def check_plot(file: Path) -> None:
    """Raise if such a file cannot be drawn, before anything has run."""
    if file.suffix.lower() not in _FORMS:
        raise InvalidConfiguration(f"--plot {file}: the name must end with {', '.join(_FORMS)}")
    if not file.absolute().parent.is_dir():
        raise InvalidConfiguration(f"--plot {file}: there is no directory {file.parent}")
    if find_spec("matplotlib") is None:
        raise PipelineError("--plot needs the package matplotlib: pip install matplotlib")


class Curves:
    """Collects the figures of queries, in bounded memory, and draws them."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._points: dict[str, list[_Point]] = {}

    def add(self, figures: Figures) -> None:
        """Take a point."""
        points = self._points.setdefault(figures.name, [])
        points.append((time.monotonic() - self._began, figures.rows, figures.lag))
        if len(points) > _POINTS:
            del points[1:-1:2]

    def draw(self, file: Path, title: str) -> None:
        """Write the picture."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, (speed, behind) = pyplot.subplots(2, 1, figsize=(9, 6), sharex=True)
        for name, points in sorted(self._points.items()):
            speed.plot(*_rates(points), label=name, drawstyle="steps-pre")
            known = [(point[0], point[2]) for point in points if point[2] is not None]
            if known:
                behind.plot(*zip(*known, strict=True), label=name)
        speed.set_title(f"pipeline {title}")
        speed.set_ylabel("rows per second")
        behind.set_ylabel("lag, rows")
        behind.set_xlabel("seconds since it began")
        for axes in (speed, behind):
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="best")
            else:
                axes.text(0.5, 0.5, "not known", transform=axes.transAxes, ha="center")
        figure.tight_layout()
        try:
            figure.savefig(file, dpi=120)
        except OSError as error:
            raise PipelineError(f"{file} cannot be written: {error.strerror}") from error
        finally:
            pyplot.close(figure)


def _rates(points: list[_Point]) -> tuple[list[float], list[float]]:
    """Times, and rows per second up to each, over a hundredth of the run or more.

    >>> _rates([(0.0, 0, None), (2.0, 10, None), (4.0, 40, None)])
    ([2.0, 4.0], [5.0, 15.0])
    """
    step = max((points[-1][0] - points[0][0]) / 100, 1e-3)
    kept = points[:1]
    for point in points[1:]:
        if point[0] - kept[-1][0] >= step:
            kept.append(point)
    rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(kept)]
    return [point[0] for point in kept[1:]], rates
