# SPDX-License-Identifier: Apache-2.0
"""Cuts a document's tokens to a length or into pieces, and puts BOS and EOS where they were asked
for.

Decides what each piece holds and how many source bytes it stands for; a pure function of its
arguments.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Cut:
    """How documents are cut. Zero: not at all. `bos` and `eos` are ids, None: not added.

    Both lengths count every token of the stored document, BOS and EOS too. Each piece of a split is
    a document of its own and gets its own BOS; EOS ends the last piece, and is left out where the
    document is cut before its end.
    """

    max_tokens: int = 0
    split_tokens: int = 0
    bos: int | None = None
    eos: int | None = None


def pieces(
    cut: Cut, ids: np.ndarray, ends: np.ndarray | None, byte_count: int | None
) -> Iterator[tuple[np.ndarray, int | None]]:
    """Yields (ids, bytes) of each piece, at least one. `ends` as of TextEncoder, None if nothing
    can be cut off.

    BOS is not put before a piece that begins with it, EOS not after one that ends with it. bytes is
    None where byte_count is (documents without a text).
    """
    text_tokens = len(ids)
    if cut.eos is not None and (text_tokens == 0 or ids[-1] != cut.eos):
        ids = np.append(ids, cut.eos)

    def byte_at(position: int) -> int:
        if position >= text_tokens:
            return byte_count
        return int(ends[position - 1]) if position > 0 else 0

    def with_bos(position: int) -> bool:
        return cut.bos is not None and (position >= len(ids) or ids[position] != cut.bos)

    kept = len(ids)
    if cut.max_tokens:
        kept = min(kept, cut.max_tokens - with_bos(0))
    begin = 0
    while True:
        prefix = [cut.bos] if with_bos(begin) else []
        end = min(kept, begin + cut.split_tokens - len(prefix)) if cut.split_tokens else kept
        size = None if byte_count is None else byte_at(end) - byte_at(begin)
        yield np.concatenate([np.array(prefix, np.int64), ids[begin:end]]), size
        begin = end
        if begin >= kept:
            return
