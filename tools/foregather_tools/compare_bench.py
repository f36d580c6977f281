# SPDX-License-Identifier: Apache-2.0
"""The rows of two benches side by side: what a depth cost at a transport and number of tokens.

Decides which rows are the same and when one has become slower; what the columns mean is decided by
the program that writes them.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass

import h5py

from .compare_limits import Figure
from .results_file import columns

DEPTHS = "bench/depths"
# By column: the words and the limit of its figure.
FIGURES = {
    "step_s": ("step", "bench step"),
    "forward_exposed_s": ("exposed, forward", "bench exposed"),
    "backward_exposed_s": ("exposed, backward", "bench exposed"),
    "exposed_reduce_s": ("exposed, reduce", "bench exposed"),
}
LIMITS = {"bench step": "max_step_increase", "bench exposed": "max_exposed_increase"}
CONFIGURATIONS = "bench/configurations"
LINK = "link_rate_bytes_per_s"


@dataclass(frozen=True)
class Row:
    """A row: its figures by column, and the share of the step by which its interval reaches below
    and above it.
    """

    values: dict[str, float]
    verdict: str
    below: float
    above: float

    def interval(self) -> tuple[float, float]:
        """In which the step lies, in seconds."""
        step = self.values["step_s"]
        return step * (1 - self.below), step * (1 + self.above)


def read_rows(file: h5py.File) -> dict[str, Row]:
    """The rows by what tells them apart, in words; none if the file is of no bench."""
    table = columns(file.get(DEPTHS))
    rows = {}
    for at in range(len(table.get("depth", ()))):
        name = f"{table['transport'][at]}, {table['tokens'][at]} tokens, depth {table['depth'][at]}"
        ratio, low, high = (float(table[c][at]) for c in ("ratio", "ratio_low", "ratio_high"))
        known = ratio > 0 and low <= ratio <= high  # Not where nothing was measured: then NaN.
        below, above = ((ratio - low) / ratio, (high - ratio) / ratio) if known else (0.0, 0.0)
        values = {column: float(table[column][at]) for column in FIGURES if column in table}
        rows[name] = Row(values, str(table["verdict"][at]), below, above)
    return rows


def bench_figures(a: h5py.File, b: h5py.File) -> list[Figure]:
    """Steps and exposed times of all rows; those that are 0 in both files are left out."""
    one, two = read_rows(a), read_rows(b)
    found = []
    for name in dict.fromkeys([*one, *two]):
        left, right = one.get(name), two.get(name)
        for column, (words, limit) in FIGURES.items():
            values = [None if row is None else row.values.get(column) for row in (left, right)]
            if any(value for value in values if value is not None and math.isfinite(value)):
                found.append(Figure(f"{words}, {name}", "s", *values, limit))
    return found


def bench_faults(a: h5py.File, b: h5py.File, options: argparse.Namespace) -> Iterator[str]:
    """Rows that have grown past a limit; a step only if the intervals that the benches store, of
    its ratio to the reference depth, do not overlap either. Figures are of one step, and so is
    the slack: the share that falls on each of a row's.
    """
    asked = {limit: getattr(options, name) for limit, name in LIMITS.items()}
    if all(percent is None for percent in asked.values()):
        return
    told = [file[CONFIGURATIONS].attrs for file in (a, b)]
    rates = [float(attributes.get(LINK, 0)) for attributes in told]
    steps = int(told[0].get("steps", 1)) * int(told[0].get("pairs", 1))
    slack = options.slack_seconds / max(steps, 1)
    if rates[0] != rates[1]:
        said = " and ".join(f"{rate * 8e-9:.4g}" for rate in rates)
        yield f"/bench: links were emulated at {said} Gb/s (0: were not): other times"
        return
    one, two = read_rows(a), read_rows(b)
    for name in one.keys() & two.keys() if options.gate else ():
        if two[name].verdict == "not observed" != one[name].verdict:
            yield f"--gate: the verdict of {name} became `not observed`"
    for figure in bench_figures(a, b):
        percent = asked[figure.limit]
        if percent is None:
            continue
        option = f"--{LIMITS[figure.limit].replace('_', '-')} {percent:g}"
        if figure.change is None:
            yield f"{option}: {figure.name} stands in one file only"
            continue
        name = figure.name.removeprefix("step, ")
        if figure.limit == "bench step" and two[name].interval()[0] <= one[name].interval()[1]:
            continue
        if not figure.change <= figure.a * percent / 100 + slack:
            yield (
                f"{option}: {figure.name} grew from {figure.a:.4g} to {figure.b:.4g} s, by more "
                f"than {percent:g} % and {slack:.3g} s"
            )
