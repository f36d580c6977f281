# SPDX-License-Identifier: Apache-2.0
"""Opens results files and reads what the tools ask of them: columns, the deck, figures of the run.

Decides what counts as a results file that can be read; what is done with its figures is decided in
each tool.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from .command_line import Refusal

FORMAT = "foregather.results"
FORMAT_VERSION = 1


def text(value) -> str:
    """A string of the file, fixed or variable length, as str."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


@contextmanager
def open_results(path: Path) -> Iterator[h5py.File]:
    """Opens a whole results file for as long as the body runs.

    What is no such file, or cannot be read while the body runs, is a Refusal.
    """
    if not path.is_file():
        raise Refusal(f"{path} does not exist" if not path.exists() else f"{path} is no file")
    try:
        with h5py.File(path) as file:
            form, version = text(file.attrs.get("format", "")), file.attrs.get("format_version", 0)
            if form != FORMAT:
                raise Refusal(f"{path} is no results file: its format is '{form}', not '{FORMAT}'")
            if version != FORMAT_VERSION:
                raise Refusal(f"{path} has format_version {version}, only {FORMAT_VERSION} is read")
            if not file.attrs.get("complete", 0):
                raise Refusal(f"{path} is not complete: its run goes on, or was interrupted")
            yield file
    except OSError as error:
        raise Refusal(f"{path} cannot be read: {error}") from None
    except KeyError as error:
        raise Refusal(f"{path} lacks what a results file has: {error}") from None


def columns(group: h5py.Group | None) -> dict[str, np.ndarray]:
    """The columns of a table, strings as str; empty if the file has no such table."""
    table = {}
    for name, column in group.items() if group is not None else ():
        values = column[()]
        table[name] = np.array(list(map(text, values))) if values.dtype.kind in "SO" else values
    return table


def deck(file: h5py.File) -> dict[str, str]:
    """Every key of the run's deck with its value."""
    table = columns(file.get("provenance/deck"))
    return dict(zip(map(str, table.get("key", ())), map(str, table.get("value", ()))))


@dataclass(frozen=True)
class Prefetch:
    """What the prefetch did in one direction, means over ranks."""

    direction: str
    depth: int
    verdict: str
    exposed_s: float
    overlapped_s: float


def prefetches(file: h5py.File) -> list[Prefetch]:
    """One entry per direction; none if the file has no such table."""
    table = columns(file.get("timing/prefetch"))
    depth = table.get("depth", table.get("requested"))
    return [
        Prefetch(
            direction=str(direction),
            depth=int(depth[row]),
            verdict=str(table["verdict"][row]),
            exposed_s=float(table["exposed_s"][row]),
            overlapped_s=float(table["overlapped_s"][row]),
        )
        for row, direction in enumerate(table.get("direction", ()))
    ]


def attribute(file: h5py.File, group: str, name: str) -> float | None:
    """A number among a group's attributes, None where it is absent."""
    value = file[group].attrs.get(name) if group in file else None
    return None if value is None else float(value)


def packs_before(file: h5py.File) -> int:
    """Packs whose scores an earlier start had stored before the last start of the run: above 0,
    the run was resumed, and its times and spans are of the other packs only.
    """
    rows = columns(file.get("provenance/runs")).get("packs_before", ())
    return max(int(rows[-1]), 0) if len(rows) else 0


def resumed(file: h5py.File) -> bool:
    """Did the last start of the run find packs or steps that an earlier one had done?"""
    steps = columns(file.get("provenance/runs")).get("steps_before", ())
    return packs_before(file) > 0 or (len(steps) > 0 and int(steps[-1]) > 0)


def emulated_rate(file: h5py.File) -> float:
    """Bytes per second to which comm.link_rate slowed the gathers, 0 if it did not."""
    return attribute(file, "timing/phases", "link_rate_emulated") or 0.0
