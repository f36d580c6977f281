# SPDX-License-Identifier: Apache-2.0
"""The spans of a results file: rows of /timing/spans, which of them are asked for, and which gather
brought the weights of which compute.

Decides how a gather and its computes are paired; how spans are shown is decided elsewhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py

from .command_line import Refusal
from .results_file import columns, deck


@dataclass(frozen=True)
class Span:
    """One row of the table. Times are in ns on rank 0's clock, from the first span kept."""

    rank: int
    stream: str
    kind: str
    unit: str
    step: int
    pass_: int
    direction: str
    sequence: int
    slot: int
    issued: int
    begin: int
    end: int
    bytes: int


FIELDS = {
    "rank": int,
    "stream": str,
    "kind": str,
    "unit": str,
    "step": int,
    "pass": int,
    "direction": str,
    "sequence": int,
    "slot": int,
    "issued_ns": int,
    "begin_ns": int,
    "end_ns": int,
    "bytes": int,
}


def read_spans(path: Path, file: h5py.File) -> list[Span]:
    """All spans that the run kept; refused if it kept none."""
    table = columns(file.get("timing/spans"))
    if not table or not len(next(iter(table.values()))):
        said = deck(file).get("output.timeline")
        why = f" (its deck says output.timeline = {said})" if said else ""
        raise Refusal(f"{path} holds no spans{why}: run with output.timeline = true")
    rows = zip(*(map(convert, table[name].tolist()) for name, convert in FIELDS.items()))
    return [Span(*row) for row in rows]


def pass_range(path: Path, spans: Sequence[Span], words: str | None) -> list[int]:
    """Numbers of the kept passes in FIRST:LAST (both included, either may be left out), or in one
    number; all if words is None.
    """
    kept = sorted({span.pass_ for span in spans})
    if words is None:
        return kept
    first, colon, last = words.partition(":")
    low = int(first) if first else kept[0]
    high = int(last) if last else kept[-1] if colon else low
    chosen = [number for number in kept if low <= number <= high]
    if not chosen:
        raise Refusal(f"--passes {words}: {path} kept the spans of passes {numbers(kept)} only")
    return chosen


def numbers(values: Sequence[int]) -> str:
    """Sorted numbers as people write them: 0-3, 7."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


def flows(spans: Sequence[Span]) -> Iterator[tuple[Span, Span]]:
    """(gather, compute that read what it brought), for all ranks, in the order of enqueuing.

    A slot holds what the last gather before brought, so a compute belongs to the last gather of its
    slot. Where passes in between were not kept, a slot's content is unknown until its next gather.
    """
    for rank in sorted({span.rank for span in spans}):
        mine = [span for span in spans if span.rank == rank and span.kind in ("gather", "compute")]
        # The gather comes first where both have a place in the same slot.
        mine.sort(key=lambda span: span.sequence)
        in_slot: dict[int, Span] = {}
        newest = None
        for span in mine:
            if newest is not None and span.pass_ > newest + 1:
                in_slot.clear()
            newest = span.pass_ if newest is None else max(newest, span.pass_)
            if span.kind == "gather":
                in_slot[span.slot] = span
            elif span.slot in in_slot and in_slot[span.slot].unit == span.unit:
                yield in_slot[span.slot], span


def overlap_ns(spans: Sequence[Span], kind: str, begin: int, end: int) -> int:
    """Time within [begin, end) that the spans of a kind cover, of one rank: their union."""
    covered, reached = 0, begin
    for span in sorted((s for s in spans if s.kind == kind), key=lambda s: s.begin):
        first, last = max(span.begin, reached), min(span.end, end)
        if last > first:
            covered += last - first
            reached = last
    return covered
