# SPDX-License-Identifier: Apache-2.0
"""A long run holds no more memory at its end than at its beginning.

Decides how long, and what may be added; what a run plans to hold is the memory plan's affair.
"""

import os
import statistics
import time
from pathlib import Path

import fixtures
import h5py
import pytest
from faults import Job, has_scores, until
from training import deck as training_deck

# The least that would be noticed: a kibibyte a pack of each rank, over the 300 and more between the
# first half and the last sixth of the runs below. Allocators and the file's caches settle before.
GROWTH_A_PACK, PACKS_BETWEEN = 1024, 200


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 once it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(found[0]) * 1024 if found else 0


def packs_done(job: Job):
    """A function that counts the marks in the job's file."""
    until(lambda: has_scores(job.part), 20, "first scores written")
    with h5py.File(job.part, locking=False) as file:
        marks = file["provenance/packs_done"]
        place, size = marks.id.get_offset(), marks.nbytes
    file = job.part.open("rb", buffering=0)
    return lambda: os.pread(file.fileno(), size, place).count(1)


def steps_done(job: Job, log: Path):
    """A function that counts the lines of the job's log."""
    job.stepped(log, 1)
    return lambda: log.read_bytes().count(b'"event":"step"')


def samples(job: Job, done) -> list[tuple[int, list[int]]]:
    """(packs or steps that were done, resident bytes of each rank), until the job ends."""
    found = []
    while job.process.poll() is None:
        count, held = done(), [resident(pid) for pid in job.pids.values()]
        if all(held):
            found.append((count, held))
        time.sleep(0.002)
    job.end(10)
    return found


@pytest.mark.parametrize("job", ["score", "train"])
def test_memory_is_the_same_after_hundreds_of_packs(job, bigram, tmp_path):
    log = tmp_path / "log"
    tokens = fixtures.write_tokens(tmp_path / "t.h5", [fixtures.A] * 1200)
    changes = {"comm.transport": "mpi", "comm.link_rate": "1 MB/s"}
    changes |= {"batch.tokens": 4, "output.log": log}
    if job == "score":
        deck = {"model.weights": bigram / "w.h5", "data.tokens": tokens}
        started, count = Job(tmp_path, deck | changes | {"output.flush_every": 0.02}, 2), 1200
        started.all_there()
        found = samples(started, packs_done(started))
    else:
        deck = training_deck(bigram / "w.h5", tokens, train__steps=100, train__batch_documents=8)
        started, count = Job(tmp_path, deck | changes, 2), 100
        found = samples(started, steps_done(started, log))
    assert started.process.returncode == 0, started.stderr
    early = [held for done, held in found if count // 3 <= done < count // 2]
    late = [held for done, held in found if count * 5 // 6 < done < count]  # Before the end's own.
    assert early and late, [done for done, _ in found]
    for before, after in zip(zip(*early), zip(*late)):
        grown = statistics.median(after) - statistics.median(before)
        assert grown <= GROWTH_A_PACK * PACKS_BETWEEN, f"{grown} bytes, of {before[0]}"
