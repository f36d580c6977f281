# SPDX-License-Identifier: Apache-2.0
"""Runs of the program on the doubles of CUDA, NCCL and cuBLASLt, and what the doubles say of them.

Decides how many GPUs a run sees and that no run may be reported; each test decides the deck.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from run_foregather import Foregather, Result

GPUS = "FOREGATHER_EMULATION_GPUS"
REPORT = "FOREGATHER_EMULATION_REPORT"
DELAY = "FOREGATHER_EMULATION_DELAY_US"


@dataclass
class Emulated:
    """A run, and the doubles' counters of each of its processes."""

    result: Result
    ranks: list[Counter]

    def total(self, name: str) -> int:
        """A counter's sum over the ranks."""
        return sum(rank[name] for rank in self.ranks)


def counters(file: Path) -> list[Counter]:
    """What each process has written: lines of a name and a number."""
    found = []
    for each in sorted(file.parent.glob(f"{file.name}.*")):
        pairs = (line.split() for line in each.read_text().splitlines())
        found.append(Counter({name: int(number) for name, number in pairs}))
    return found


class OnGpus:
    """on_gpus(deck, ranks) runs on four emulated GPUs and demands that the checker is silent."""

    def __init__(self, run: Foregather):
        self.run = run
        self.number = 0

    def __call__(
        self,
        deck: Mapping[str, Any],
        ranks: int = 1,
        env: Mapping[str, str | None] | None = None,
        reports: int | None = 0,
        kind: str | None = "cuda",
        overrides: Iterable[str] = (),
        expect: int | None = 0,
        timeout: float = 120,
    ) -> Emulated:
        """As Foregather's call. reports: of the checker in all ranks, None for any number."""
        self.number += 1
        file = self.run.folder / f"report{self.number}"
        merged = {GPUS: "4", REPORT: str(file), **(env or {})}
        keys = dict(deck) | ({} if kind is None else {"device.kind": kind})
        result = self.run(keys, ranks, overrides, merged, expect, timeout)
        found = Emulated(result, counters(file))
        if reports is not None:
            assert found.ranks, "no process has written what the doubles counted"
            assert found.total("reports") == reports, result.stderr
        return found


def program() -> Path:
    """The program on the doubles."""
    return Path(os.environ["FOREGATHER"])
