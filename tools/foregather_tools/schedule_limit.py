# SPDX-License-Identifier: Apache-2.0
"""The time that a recorded schedule needs at least: replayed without anything in its way.

Decides the replay; the spans are those of a results file, the rate of the link is the caller's.
"""

from collections.abc import Sequence

from .spans import Span


def schedule_limit(spans: Sequence[Span], bytes_per_second: float) -> tuple[float, float]:
    """Seconds that one rank's spans took, and that their schedule takes when replayed.

    The replay keeps the order in which gathers and computes were issued, one at a time on each
    stream; a gather waits until its slot was last computed from, and takes its bytes at
    `bytes_per_second`; a compute waits for the gather of its slot, and takes as long as it did.
    Spans must begin with the run and have no gaps.
    """
    gathering = computing = 0.0
    gathered: dict[int, float] = {}
    computed: dict[int, float] = {}
    work = sorted((s for s in spans if s.kind in ("gather", "compute")), key=lambda s: s.sequence)
    for span in work:
        if span.kind == "gather":
            begin = max(gathering, computed.get(span.slot, 0.0))
            gathering = gathered[span.slot] = begin + span.bytes / bytes_per_second
        else:
            begin = max(computing, gathered.get(span.slot, 0.0))
            computing = computed[span.slot] = begin + (span.end - span.begin) * 1e-9
    took = max(s.end for s in work) - min(s.begin for s in work)
    return took * 1e-9, max(gathering, computing)
