# SPDX-License-Identifier: Apache-2.0
"""What differs between the arrays of two groups of HDF5 files, read in pieces.

Decides what a difference is (shapes count, a NaN equals a NaN) and how large it is; which
differences are tolerable is decided in the tool.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import h5py
import numpy as np

from .command_line import Refusal, check_stop

PIECE_ELEMENTS = 4 * 1024 * 1024


@dataclass
class ArrayChange:
    """How an array of the first file differs from that of the second.

    `fault` is set where they cannot be compared (absent, other shape, other type). `differ` counts
    entries that are not equal, `unmatched` those of them that are a finite number in one file only;
    `largest` is the largest |difference| of the others, at index `at`.
    """

    name: str
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    fault: str = ""
    differ: int = 0
    unmatched: int = 0
    largest: float | None = None
    at: tuple[int, ...] = ()
    same_bytes: bool = True


def compare_groups(first: h5py.Group | None, second: h5py.Group | None) -> list[ArrayChange]:
    """All arrays of two groups, in the order of their names."""
    one, two = (
        {} if group is None else {n: d for n, d in group.items() if isinstance(d, h5py.Dataset)}
        for group in (first, second)
    )
    return [_compare(name, one.get(name), two.get(name)) for name in sorted(one | two)]


def compare_attributes(first: h5py.Group | None, second: h5py.Group | None) -> list[str]:
    """Names of the numbers among two groups' attributes that differ, if by a bit, or are absent."""
    one, two = (
        {} if group is None else {k: v for k, v in group.attrs.items() if np.isscalar(v)}
        for group in (first, second)
    )
    numbers = [
        name for name in sorted(one | two) if isinstance(one.get(name, two.get(name)), np.number)
    ]
    return [
        name
        for name in numbers
        if name not in one or name not in two or one[name].tobytes() != two[name].tobytes()
    ]


def _compare(name: str, one: h5py.Dataset | None, two: h5py.Dataset | None) -> ArrayChange:
    """One array; either may be absent."""
    present = one if one is not None else two
    change = ArrayChange(present.name, tuple(None if d is None else d.shape for d in (one, two)))
    if one is None or two is None:
        change.fault = f"only in {'B' if one is None else 'A'}"
    elif one.shape != two.shape:
        change.fault = f"shape {shape_text(one.shape)} became {shape_text(two.shape)}"
    elif _kind(one) != _kind(two):
        change.fault = f"{_kind(one)}s became {_kind(two)}s"
    if change.fault:
        change.same_bytes = False
        return change
    change.same_bytes = one.dtype == two.dtype or _kind(one) == "string"
    change.largest = 0.0 if _kind(one) == "float" else None
    for begin, left, right in _pieces(one, two):
        _add_piece(change, begin, left, right)
    return change


def _kind(dataset: h5py.Dataset) -> str:
    """float, integer or string."""
    return {"f": "float", "S": "string", "O": "string"}.get(dataset.dtype.kind, "integer")


def shape_text(shape: tuple[int, ...] | None) -> str:
    """A shape as people write it."""
    return "-" if shape is None else " x ".join(map(str, shape)) or "one"


def _pieces(one: h5py.Dataset, two: h5py.Dataset) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """(first row, rows of each) until both arrays are read, a bounded number at once."""
    if not one.shape:
        yield 0, np.atleast_1d(_read(one, ())), np.atleast_1d(_read(two, ()))
        return
    step = max(1, PIECE_ELEMENTS // max(1, int(np.prod(one.shape[1:], dtype=np.int64))))
    for begin in range(0, one.shape[0], step):
        check_stop()
        rows = slice(begin, begin + step)
        yield begin, _read(one, rows), _read(two, rows)


def _read(dataset: h5py.Dataset, rows: slice | tuple) -> np.ndarray:
    """Some rows, or a refusal that says of which file they are."""
    try:
        return dataset[rows]
    except OSError as error:
        where = f"{dataset.file.filename}: {dataset.name}"
        raise Refusal(f"{where} cannot be read: {error}") from None


def _add_piece(change: ArrayChange, begin: int, left: np.ndarray, right: np.ndarray) -> None:
    """Counts what differs in one piece."""
    if change.largest is None:
        unequal = int(np.count_nonzero(left != right))
        change.differ += unequal
        change.same_bytes &= unequal == 0
        return
    change.same_bytes &= left.tobytes() == right.tobytes()
    equal = (left == right) | (np.isnan(left) & np.isnan(right))
    change.differ += int(np.count_nonzero(~equal))
    finite = np.isfinite(left) & np.isfinite(right)
    change.unmatched += int(np.count_nonzero(~equal & ~finite))
    # In double, since two finite numbers may be further apart than their own type can say.
    wide = np.where(finite, left, 0).astype(np.float64)
    wide = np.abs(wide - np.where(finite, right, 0))
    if wide.size and wide.max() > change.largest:
        place = np.unravel_index(int(wide.argmax()), wide.shape)
        change.largest = float(wide[place])
        change.at = (begin + int(place[0]), *map(int, place[1:]))
