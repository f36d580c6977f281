# SPDX-License-Identifier: Apache-2.0
"""Draws loss, gradient norm and learning rate over steps, a row each, a colour for each run.

Decides how it looks; which runs are shown, and how they are named, is decided before.
"""

from dataclasses import dataclass
from typing import BinaryIO

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from . import timeline_style as style
from .training_runs import TrainingRun

WIDTH, HEIGHT = 9.0, 7.2  # inches
# Steps up to which each is a point of its own.
POINTS = 60
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222", "#999999")


@dataclass(frozen=True)
class Curve:
    """A run and what it is called; `mean`: over so many steps the loss is averaged, 1: it is not."""

    run: TrainingRun
    name: str
    colour: str
    mean: int = 1


def running_mean(values: np.ndarray, over: int) -> np.ndarray:
    """Of each value and the over - 1 before it, fewer at the begin; what is not finite is left out
    of the mean.
    """
    finite = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    ends = np.arange(1, values.size + 1)
    begins = np.maximum(ends - over, 0)
    count = counts[ends] - counts[begins]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, (sums[ends] - sums[begins]) / count, np.nan)


def _finite(values: np.ndarray) -> np.ndarray:
    """What can be drawn; gaps elsewhere."""
    return np.where(np.isfinite(values), values, np.nan)


def _line(axes: Axes, curve: Curve, values: np.ndarray, name: str, **looks) -> None:
    """One column of a run."""
    marker = "." if curve.run.step.size <= POINTS else ""
    (line,) = axes.plot(
        curve.run.step, _finite(values), color=curve.colour, marker=marker, **looks
    )
    line.set_gid(f"{name} of {curve.name}")


def _loss(axes: Axes, curve: Curve) -> None:
    """The loss as it was, its mean over it, evaluations as points, steps not applied as crosses."""
    run = curve.run
    faint = curve.mean > 1
    looks = {"linewidth": 0.8 if faint else 1.3, "alpha": 0.35 if faint else 1.0}
    _line(axes, curve, run.loss, "loss", **looks, label=None if faint else curve.name)
    if faint:
        label = f"{curve.name}, mean of {curve.mean} steps"
        mean = running_mean(run.loss, curve.mean)
        _line(axes, curve, mean, "mean loss", linewidth=1.6, label=label)
    if run.evaluation_step.size:
        (points,) = axes.plot(
            run.evaluation_step,
            _finite(run.evaluation_loss),
            color=curve.colour,
            linestyle=":",
            marker="o",
            markerfacecolor="white",
            label=f"{curve.name}, evaluation",
        )
        points.set_gid(f"evaluation of {curve.name}")
    bad = run.step[~run.applied]
    if bad.size:
        (crosses,) = axes.plot(
            bad,
            np.full(bad.size, 0.04),
            color=curve.colour,
            linestyle="",
            marker="x",
            transform=axes.get_xaxis_transform(),
            label=f"{curve.name}, not applied ({bad.size})",
        )
        crosses.set_gid(f"not applied of {curve.name}")


def _look(axes: Axes, label: str) -> None:
    """What all rows have in common."""
    axes.set_ylabel(label)
    axes.grid(True, linewidth=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def draw(curves: list[Curve], title: str, file: BinaryIO, kind: str, log_loss: bool) -> None:
    """Writes the picture as `png` or `svg`."""
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        FigureCanvasAgg(figure)
        rows = figure.subplots(3, 1, sharex=True, height_ratios=(3, 1.4, 1))
        for curve in curves:
            _loss(rows[0], curve)
            _line(rows[1], curve, curve.run.gradient_norm, "norm", linewidth=1.0)
            _line(rows[2], curve, curve.run.learning_rate, "rate", linewidth=1.3)
        if log_loss:
            rows[0].set_yscale("log")
        norms = np.concatenate([curve.run.gradient_norm for curve in curves])
        if np.any(norms[np.isfinite(norms)] > 0):
            rows[1].set_yscale("log")
        for axes, label in zip(rows, ("loss, nat", "gradient norm", "learning rate")):
            _look(axes, label)
        rows[2].set_xlabel("step")
        rows[2].xaxis.set_major_locator(MaxNLocator(integer=True))
        rows[2].set_ylim(bottom=0)
        rows[0].legend(frameon=False, fontsize=8)
        if title:
            figure.suptitle(title, fontsize=11)
        facts = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
        figure.savefig(file, format=kind, dpi=150, metadata=facts)
