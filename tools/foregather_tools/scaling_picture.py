# SPDX-License-Identifier: Apache-2.0
"""Draws step time, exposed share and tokens/s per rank over numbers of ranks, a row each.

Decides how it looks; which rows are one line is decided before.
"""

from dataclasses import dataclass
from typing import BinaryIO

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from . import timeline_style as style
from .loss_picture import COLOURS

__all__ = ["COLOURS", "Line", "draw"]

WIDTH, HEIGHT = 7.5, 8.0  # inches
HIDDEN = 2.0  # per cent: below it gathers count as hidden


@dataclass(frozen=True)
class Line:
    """Rows of a plan, in the order of ranks."""

    name: str
    colour: str
    ranks: np.ndarray
    step: np.ndarray
    exposed: np.ndarray
    per_rank: np.ndarray
    fits: np.ndarray  # false: known not to


def _plot(axes: Axes, line: Line, values: np.ndarray, what: str, label: str | None) -> None:
    """One column, hollow where it does not fit."""
    (drawn,) = axes.plot(line.ranks, values, color=line.colour, linewidth=1.3, label=label)
    drawn.set_gid(f"{what} of {line.name}")
    for fits, face in ((True, line.colour), (False, "white")):
        here = line.fits == fits
        if not here.any():
            continue
        (points,) = axes.plot(
            line.ranks[here],
            values[here],
            color=line.colour,
            linestyle="",
            marker="o",
            markersize=4,
            markerfacecolor=face,
        )
        points.set_gid(f"{what} that {'fits' if fits else 'does not fit'} of {line.name}")


def draw(lines: list[Line], title: str, below: str, file: BinaryIO, kind: str) -> None:
    """Writes the picture as `png` or `svg`."""
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        FigureCanvasAgg(figure)
        rows = figure.subplots(3, 1, sharex=True)
        for line in lines:
            _plot(rows[0], line, line.step, "step", line.name)
            _plot(rows[1], line, 100 * line.exposed, "exposed", None)
            _plot(rows[2], line, line.per_rank, "tokens/s", None)
        rows[1].axhline(HIDDEN, color="0.5", linewidth=0.8, linestyle="--")
        for axes, label in zip(rows, ("step, s", "exposed, % of step", "tokens/s per rank")):
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0)
            axes.grid(True, linewidth=0.4, alpha=0.5)
            axes.spines[["top", "right"]].set_visible(False)
        ranks = np.unique(np.concatenate([line.ranks for line in lines]))
        rows[2].set_xscale("log", base=2)
        rows[2].xaxis.set_major_locator(FixedLocator(ranks))
        rows[2].xaxis.set_minor_locator(NullLocator())
        rows[2].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
        rows[2].tick_params(axis="x", labelrotation=45)
        rows[2].set_xlabel(f"ranks\n{below}")
        rows[0].legend(frameon=False, fontsize=8)
        if title:
            figure.suptitle(title, fontsize=11)
        facts = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
        figure.savefig(file, format=kind, dpi=150, metadata=facts)
