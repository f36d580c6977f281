# SPDX-License-Identifier: Apache-2.0
"""/timing/spans of one rank as gathers and uses, and what can be read off them.

Decides how spans are paired by slot and sequence, on its own and not as the program does it; tests
decide what must hold.
"""

from dataclasses import dataclass, field

import numpy as np
from run_foregather import Result


@dataclass
class Span:
    """One row of the table."""

    kind: str
    unit: str
    step: int
    sequence: int
    slot: int
    issued: int
    begin: int
    end: int
    bytes: int
    direction: str


@dataclass
class Gathered(Span):
    """A gather with the computes that read what it brought."""

    uses: list[Span] = field(default_factory=list)


@dataclass
class RankSpans:
    """Gathers and computes of a rank in the order in which they were enqueued."""

    gathers: list[Gathered]
    computes: list[Span]
    waits: list[Span]

    def source(self, use: int) -> Gathered:
        """The gather that brought the weights of compute number `use`."""
        (found,) = [g for g in self.gathers if any(c is self.computes[use] for c in g.uses)]
        return found

    def gathered_for(self, use: int) -> bool:
        """Whether a gather was issued for this use, not for an earlier one of the same unit."""
        return self.source(use).uses[0] is self.computes[use]

    def most_alive(self) -> int:
        """The most gathered units at any time, each from its gather's begin to its last use."""
        changes = []
        for gather in self.gathers:
            changes += [(gather.begin, 1), (gather.uses[-1].end, -1)]
        alive = np.cumsum([change for _, change in sorted(changes)])  # An end before a begin.
        return int(alive.max())


def spans_of(result: Result, rank: int) -> RankSpans:
    """A rank's spans. AssertionError if a compute ran on a slot that did not hold its unit."""
    table = result.table("/timing/spans")
    mine = np.flatnonzero(table["rank"] == rank)
    columns = "kind unit step sequence slot issued_ns begin_ns end_ns bytes direction".split()
    rows = [[table[name][i] for name in columns] for i in mine]
    waits = [Span(*row) for row in rows if row[0] == "wait"]
    found = RankSpans([], [], waits)
    in_slot: dict[int, Gathered] = {}
    sequences = set()
    # Reductions have an order of their own.
    apart = ("wait", "reduce")
    for row in sorted((row for row in rows if row[0] not in apart), key=lambda row: row[3]):
        assert row[3] not in sequences, f"two spans have sequence {row[3]}"
        sequences.add(row[3])
        if row[0] == "gather":
            found.gathers.append(Gathered(*row))
            in_slot[row[4]] = found.gathers[-1]
            continue
        assert row[0] == "compute", row
        compute = Span(*row)
        if compute.slot == -1 and compute.direction == "backward":
            continue  # An embedding's gradient needs no weights.
        gather = in_slot[compute.slot]
        assert gather.unit == compute.unit, f"{compute} read a slot that held {gather.unit}"
        gather.uses.append(compute)
        found.computes.append(compute)
    assert all(gather.uses for gather in found.gathers), "a gather that no compute used"
    return found


def exposed_ns(spans: RankSpans) -> int:
    """Time in which compute was idle, since its last use, while the gather of its next one ran."""
    total = 0
    for number, compute in enumerate(spans.computes):
        gather = spans.source(number)
        if gather.uses[0] is compute:
            idle_since = spans.computes[number - 1].end if number else gather.issued
            begin, end = max(idle_since, gather.issued), min(compute.begin, gather.end)
            total += max(end - begin, 0)
    return total


def overlapped_ns(spans: RankSpans) -> int:
    """Length of what gather intervals and compute intervals have in common."""
    return sum(
        max(min(gather.end, compute.end) - max(gather.begin, compute.begin), 0)
        for gather in spans.gathers
        for compute in spans.computes
    )
