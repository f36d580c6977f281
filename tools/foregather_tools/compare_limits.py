# SPDX-License-Identifier: Apache-2.0
"""The figures of two runs side by side, and the limits within which they may differ.

Decides how each limit is judged; what is read and how it is shown is decided in the tool.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass

import h5py
import numpy as np

from .array_changes import ArrayChange
from .results_file import attribute, columns, emulated_rate, prefetches, resumed

MIB = 2**20


@dataclass(frozen=True)
class Figure:
    """A number of both runs; None where a file has none. `limit` names its option."""

    name: str
    unit: str
    a: float | None
    b: float | None
    limit: str = ""

    @property
    def change(self) -> float | None:
        """B - A."""
        return None if self.a is None or self.b is None else self.b - self.a


def read_figures(file: h5py.File) -> dict[tuple[str, str, str], float | None]:
    """(name, unit, limit) -> value, for one file."""
    found: dict[tuple[str, str, str], float | None] = {
        (name, unit, ""): attribute(file, "score", name.replace(" ", "_"))
        for name, unit in (
            ("loss", "nat"),
            ("perplexity", ""),
            ("bits per byte", ""),
            ("scored tokens", ""),
        )
    }
    found |= training_figures(file)
    ranks, phases = columns(file.get("timing/ranks")), columns(file.get("timing/phases"))
    names = list(map(str, phases.get("name", ())))
    run = dict(zip(names, phases.get("seconds_max", ()))).get("run")
    passes = attribute(file, "timing/phases", "passes")
    step = attribute(file, "timing/phases", "step_seconds_median")
    if step is None and run is not None and passes:
        step = float(run) / passes
    found["ranks", "", ""] = float(len(ranks["tokens"])) if "tokens" in ranks else None
    tokens = ranks.get("tokens")
    found["tokens computed", "", ""] = None if tokens is None else float(tokens.sum())
    found["tokens/s", "", ""] = attribute(file, "timing/phases", "tokens_per_second")
    found["run", "s", "time"] = None if run is None else float(run)
    found["step", "s", "step"] = step
    for entry in prefetches(file):
        found[f"exposed, {entry.direction}", "s", "exposed"] = entry.exposed_s
        found[f"overlapped, {entry.direction}", "s", ""] = entry.overlapped_s
    reduce = dict(zip(names, phases.get("seconds_mean", ()))).get("exposed reduce")
    found["exposed, reduce", "s", "exposed"] = None if reduce is None else float(reduce)
    for name, column in (
        ("peak resident", "peak_host_bytes"),
        ("proportional", "proportional_bytes"),
        ("on the device", "device_bytes"),
    ):
        limit = "" if name == "proportional" else "memory"
        there = len(ranks.get(column, ())) > 0
        found[f"memory, {name}", "MiB", limit] = ranks[column].max() / MIB if there else None
    found["link emulated", "Gb/s", ""] = emulated_rate(file) * 8e-9
    return found


def training_figures(file: h5py.File) -> dict[tuple[str, str, str], float | None]:
    """The same of what was learned: of the first and the last step, and the last evaluation."""
    found: dict[tuple[str, str, str], float | None] = {}
    for name, column, unit, row in (
        ("loss of the first step", "train/loss", "nat", 0),
        ("loss of the last step", "train/loss", "nat", -1),
        ("norm of the last step", "train/gradient_norm", "", -1),
        ("loss of the last evaluation", "evaluation/loss", "nat", -1),
    ):
        values = file[column][()] if column in file else ()
        found[name, unit, ""] = float(values[row]) if len(values) else None
    return found


def side_by_side(a: h5py.File, b: h5py.File) -> list[Figure]:
    """The figures that at least one of the files has, without what neither uses."""
    one, two = read_figures(a), read_figures(b)
    keys = list(dict.fromkeys([*one, *two]))
    figures = [Figure(*key[:2], one.get(key), two.get(key), key[2]) for key in keys]
    return [
        figure
        for figure in figures
        if figure.a or figure.b or (figure.limit in ("exposed", "time") and figure.change == 0)
    ]


def array_faults(changes: list[ArrayChange]) -> Iterator[str]:
    """What no option allows: other shapes, other documents, a score that only one file has."""
    for change in changes:
        if change.fault:
            yield f"{change.name}: {change.fault}"
        elif change.unmatched:
            yield f"{change.name}: {change.unmatched} entries are a number in one file only"
        elif change.name == "/score/offsets" and change.differ:
            yield f"{change.name}: {change.differ} entries differ: these are other documents"


def loss_faults(a: h5py.File, b: h5py.File) -> Iterator[str]:
    """What no option allows either: a loss that is no finite number, in whichever file."""
    for name, file in (("A", a), ("B", b)):
        loss = attribute(file, "score", "loss")
        if loss is not None and not math.isfinite(loss):
            yield f"loss: {loss:g} in {name} is not a number"
        steps = file["train/loss"][()] if "train/loss" in file else np.zeros(0)
        bad = np.flatnonzero(~np.isfinite(steps))
        if bad.size:
            yield f"/train/loss: {bad.size} entries in {name} are not a number, first {bad[0]}"


def resumed_notes(a: h5py.File, b: h5py.File) -> list[str]:
    """Which of the runs have times of a part of their work only."""
    return [
        f"{name} was resumed: its times cover part of the work"
        for name, file in (("A", a), ("B", b))
        if resumed(file)
    ]


def score_faults(
    changes: list[ArrayChange], figures: list[Figure], options: argparse.Namespace
) -> Iterator[str]:
    """What is past the limits on numbers."""
    by_name = {change.name: change for change in changes if not change.fault}
    logprob, greedy = by_name.get("/score/logprob"), by_name.get("/score/greedy")
    limit = options.max_logprob_difference
    if limit is not None:
        if logprob is None:
            yield "--max-logprob-difference: there is no /score/logprob in both files to judge"
        elif logprob.largest > limit:
            yield (
                f"--max-logprob-difference {limit:g}: |difference| {logprob.largest:.6g} nat at "
                f"token {logprob.at[0]}"
            )
    limit = options.max_greedy_flips
    if limit is not None and (greedy is None or greedy.differ > limit):
        said = "no /score/greedy to judge" if greedy is None else f"{greedy.differ} flips"
        yield f"--max-greedy-flips {limit:g}: {said}"
    limit = options.max_loss_difference
    if limit is not None:
        yield from _loss_faults(by_name.get("/train/loss"), figures, limit)


def _loss_faults(train: ArrayChange | None, figures: list[Figure], limit: float) -> Iterator[str]:
    """The loss of a score, and of each step of a training."""
    losses = [figure.change for figure in figures if figure.name == "loss"]
    if train is not None:
        losses.append(train.largest)
    if not losses:
        yield f"--max-loss-difference {limit:g}: the files have no loss to judge"
    for change in losses:
        if change is None or math.isnan(change) or abs(change) > limit:
            said = "there is no loss in both files to judge"
            if change is not None:
                said = f"changed by {change:+.6g} nat"
                said = "a loss is not a number" if math.isnan(change) else said
            yield f"--max-loss-difference {limit:g}: {said}"


def _slack_of_a_step(figures: dict[str, Figure], seconds: float) -> float:
    """The share of a slack of the whole run that falls on one of its steps."""
    run, step = figures.get("run"), figures.get("step")
    known = run is not None and step is not None and run.a and step.a
    return seconds * min(1.0, step.a / run.a) if known else seconds


def other_work_of(figures: dict[str, Figure]) -> str:
    """Why times of the two runs are not of the same work, empty if they are."""
    tokens, link = figures.get("tokens computed"), figures.get("link emulated")
    if tokens is None or tokens.change != 0:
        return "the runs computed other tokens"
    if link is not None and link.change != 0:
        return f"the runs' links were emulated at {link.a:.4g} and {link.b:.4g} Gb/s (0: were not)"
    return ""


def increase_faults(
    figures: list[Figure], resumed: list[str], options: argparse.Namespace
) -> Iterator[str]:
    """What has grown past the limits on times and memory: A x PERCENT / 100 and the slack. Times
    of a part of the work (`resumed` says of which file) or of other work cannot be judged.
    """
    by_name = {figure.name: figure for figure in figures}
    limits = {
        "exposed": (options.max_exposed_increase, options.slack_seconds),
        "time": (options.max_time_increase, options.slack_seconds),
        "step": (options.max_step_increase, _slack_of_a_step(by_name, options.slack_seconds)),
        "memory": (options.max_memory_increase, options.slack_mib),
    }
    other_work = other_work_of(by_name)
    for kind, (percent, slack) in limits.items():
        if percent is None:
            continue
        option = f"--max-{kind}-increase {percent:g}"
        bounded = [figure for figure in figures if figure.limit == kind]
        if not bounded:
            yield f"{option}: the files have no such figure to judge"
            continue
        if kind != "memory" and resumed:
            yield from (f"{option}: {note}" for note in resumed)
            continue
        if kind != "memory" and other_work:
            yield f"{option}: {other_work}, so their times cannot be compared"
            continue
        for figure in bounded:
            if figure.change is None:
                yield f"{option}: {figure.name} stands in one file only"
            elif figure.change > figure.a * percent / 100 + slack:
                yield (
                    f"{option}: {figure.name} grew from {figure.a:.4g} to {figure.b:.4g} "
                    f"{figure.unit}, by more than {percent:g} % and {slack:.3g} {figure.unit}"
                )
