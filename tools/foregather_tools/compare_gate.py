# SPDX-License-Identifier: Apache-2.0
"""The limits of compare as a gate against regressions, for those who give none of their own.

Decides the limits and where they have nothing to judge; how a limit is judged is decided in
compare_limits.
"""

import argparse

import h5py

from .array_changes import ArrayChange
from .compare_limits import Figure
from .results_file import prefetches

# In seconds, where there is no gate.
SLACK = 0.05
# Numbers within what separates two orders of the same sums in fp32; of times a tenth must be found,
# on machines whose times of equal runs differ by some percent.
GATE = {
    "max_logprob_difference": 5e-5,
    "max_loss_difference": 5e-5,
    "max_exposed_increase": 5.0,
    "max_step_increase": 5.0,
    "max_memory_increase": 5.0,
    "slack_seconds": 0.02,
}


def option(name: str) -> str:
    """A limit as it stands on the command line."""
    return "--" + name.replace("_", "-")


def gate_text() -> str:
    """The limits of the gate, for people."""
    return ", ".join(f"{option(name)} {value:g}" for name, value in GATE.items())


def gated(
    options: argparse.Namespace, arrays: list[ArrayChange], figures: list[Figure]
) -> tuple[argparse.Namespace, list[str]]:
    """The options with the gate's limits where none is given, and notes of what cannot be judged
    because neither file has it.
    """
    kinds = {figure.limit.removeprefix("bench ") for figure in figures}
    there = {f"max_{kind}_increase" for kind in kinds}
    names = {change.name for change in arrays}
    if "/score/logprob" in names:
        there |= {"max_logprob_difference", "max_loss_difference"}
    if "/train/loss" in names:
        there.add("max_loss_difference")
    limits, notes = argparse.Namespace(**vars(options)), []
    for name, value in GATE.items():
        if getattr(options, name) is not None:
            continue
        if name in there or not name.startswith("max_"):
            setattr(limits, name, value)
        else:
            notes.append(f"not judged, since neither file has such a figure: {option(name)}")
    return limits, notes


def verdict_faults(a: h5py.File, b: h5py.File) -> list[str]:
    """The directions whose prefetch was not observed in B, but not so in A."""
    before = {entry.direction: entry.verdict for entry in prefetches(a)}
    return [
        f"--gate: the verdict of {entry.direction} became `{entry.verdict}`; it was "
        f"`{before.get(entry.direction, '-')}`"
        for entry in prefetches(b)
        if entry.verdict == "not observed" != before.get(entry.direction)
    ]
