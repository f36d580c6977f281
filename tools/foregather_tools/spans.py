# SPDX-License-Identifier: Apache-2.0
"""The spans of a results file: rows of /timing/spans, which of them are asked for, and which gather
brought the weights of which compute.

Decides how a gather and its computes are paired; how spans are shown is decided elsewhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from .command_line import Refusal
from .results_file import deck, packs_before, text


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


# The columns, in the order of Span's fields.
COLUMNS = (
    *("rank", "stream", "kind", "unit", "step", "pass", "direction", "sequence", "slot"),
    *("issued_ns", "begin_ns", "end_ns", "bytes"),
)


@dataclass(frozen=True)
class SpanTable:
    """All spans that a run kept, as columns: rows become Spans when they are asked for, since a
    large run has millions of them.
    """

    columns: dict[str, np.ndarray]

    @property
    def ranks(self) -> list[int]:
        """The ranks that have spans."""
        return np.unique(self.columns["rank"]).tolist()

    @property
    def passes(self) -> list[int]:
        """The passes whose spans were kept."""
        return np.unique(self.columns["pass"]).tolist()

    def select(self, ranks: Sequence[int], passes: Sequence[int]) -> list[Span]:
        """The spans of these ranks and passes, in the order of the file."""
        wanted = np.isin(self.columns["rank"], list(ranks))
        wanted &= np.isin(self.columns["pass"], list(passes))
        picked = [self.columns[name][wanted].tolist() for name in COLUMNS]
        return [
            Span(*(text(v) if isinstance(v, bytes) else v for v in row)) for row in zip(*picked)
        ]


def read_spans(path: Path, file: h5py.File) -> SpanTable:
    """All spans that the run kept; refused if it kept none."""
    group = file.get("timing/spans")
    if group is None and "plan" in file:
        raise Refusal(f"{path} is of a plan, which runs nothing: there are no spans to draw")
    if group is None or not len(group["rank"]):
        said = deck(file).get("output.timeline")
        marks = file.get("provenance/packs_done")
        if said == "true" and marks is not None and 0 < len(marks) <= packs_before(file):
            raise Refusal(
                f"{path} holds no spans: its run was resumed when every pack was in the file "
                "already, so nothing was computed that could be shown"
            )
        why = f" (its deck says output.timeline = {said})" if said else ""
        raise Refusal(f"{path} holds no spans{why}: run with output.timeline = true")
    return SpanTable({name: group[name][()] for name in COLUMNS})


def pass_range(path: Path, kept: list[int], words: str | None) -> list[int]:
    """Numbers of the kept passes in FIRST:LAST (both included, either may be left out), or in one
    number; all if words is None.
    """
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
    ranks: dict[int, list[Span]] = {}
    for span in spans:
        if span.kind in ("gather", "compute"):
            ranks.setdefault(span.rank, []).append(span)
    for _, mine in sorted(ranks.items()):
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
