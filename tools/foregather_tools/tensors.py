# SPDX-License-Identifier: Apache-2.0
"""A tensor that can be read in pieces, and the change from one float type to another.

Decides what a source of weights must offer and how values are rounded; not where they come from or
go.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# How each type's elements are held in memory here: bfloat16 as its bits, since numpy has no such
# type.
RAW_TYPES = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
}

# Twice as fast as 64 MiB on a Zen 4 core: blocks of this size are used again by malloc, larger ones
# are given back to the system each time.
PIECE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Tensor:
    """One tensor of a checkpoint, not yet read.

    `read(begin, end)` gives rows [begin, end) of the first dimension as an array of
    RAW_TYPES[dtype]; begin is a multiple of `row_group`, as is end unless it is the last row.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    read: Callable[[int, int], np.ndarray]
    row_group: int = 1

    @property
    def elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def bytes_as(self, dtype: str) -> int:
        """The size in bytes if stored as `dtype`."""
        return self.elements * RAW_TYPES[dtype].itemsize

    def pieces(self, limit: int = PIECE_BYTES):
        """Yields (begin, end) row ranges that cover the tensor, each at most `limit` bytes as
        float32 where rows allow.
        """
        rows = self.shape[0]
        row_bytes = max(1, self.elements // max(rows, 1)) * 4
        step = max(1, limit // (row_bytes * self.row_group)) * self.row_group
        for begin in range(0, rows, step):
            yield begin, min(begin + step, rows)


def from_array(name: str, array: np.ndarray, dtype: str | None = None) -> Tensor:
    """A tensor that lies in memory. `dtype` is needed for bfloat16 bits only (uint16); else it is
    the array's own.
    """
    own = dtype or array.dtype.name
    raw = np.ascontiguousarray(array, dtype=RAW_TYPES[own])
    return Tensor(name, own, raw.shape, lambda begin, end: raw[begin:end])


def bfloat16_to_float32(bits: np.ndarray) -> np.ndarray:
    """Exact: the upper half of a float32."""
    return (bits.astype("<u4") << 16).view("<f4")


def float32_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Rounds to nearest, ties to even; a NaN stays a (quiet) NaN."""
    values = np.ascontiguousarray(values, dtype="<f4")
    bits = values.view("<u4")
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
    nan = np.isnan(values)
    rounded[nan] = ((bits[nan] >> 16) | 0x40).astype("<u2")
    return rounded


def convert(raw: np.ndarray, source: str, target: str) -> np.ndarray:
    """Values held as RAW_TYPES[source] in the form RAW_TYPES[target]."""
    if source == target:
        return raw
    wide = bfloat16_to_float32(raw) if source == "bfloat16" else raw.astype("<f4")
    return float32_to_bfloat16(wide) if target == "bfloat16" else wide.astype(RAW_TYPES[target])
