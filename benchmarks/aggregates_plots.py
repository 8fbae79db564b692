"""The figures as pictures."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any


def draw(
    path: Path, title: str, across: str, up: str, places: tuple[int, ...], lines: dict[str, list[Any]], log: bool = True
) -> None:
    """Write lines over a logarithmic axis as a PNG; where a line has no value there is a gap."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for (name, values), marker in zip(lines.items(), cycle("osD^vPX"), strict=False):
        points = [(place, value) for place, value in zip(places, values, strict=True) if value is not None]
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, label=name)
    axes.set_xscale("log")
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set(title=title, xlabel=across, ylabel=up)
    axes.grid(True, which="major", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
