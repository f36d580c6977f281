# SPDX-License-Identifier: Apache-2.0
"""A rank that is killed or stopped at start-up, in a step or in a save ends a job of 2 and of 4
ranks with one line, and the checkpoints stay (T21). Steps and saves of 3: test_training_death.py.

Decides the moments, rank 0's among them; faults.py makes the faults.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import fixtures
import h5py
import pytest
from faults import Job, library
from said import messages
from training import deck

EVERY = 4
TIMEOUT_S = 2
# A silent rank is given up 1.25 x comm.timeout + 5 s after its last word; all end within 10 s more.
STOP_LIMIT_S = 1.25 * TIMEOUT_S + 5 + 10
# Who is hurt, and what the one line must name beside it where it is stopped. In a start nothing
# waits in a gather yet.
VICTIMS = {
    2: {"start": 1, "step": 1, "save": 0},
    3: {"start": 1},
    4: {"start": 2, "step": 0, "save": 3},
}
NAMED = {
    "start": ("has been silent",),
    "step": (" did not arrive", "step ", " stream)"),
    "save": ("has been silent", "This rank was in save 8"),
}
CASES = [
    (ranks, where, blow)
    for ranks, victims in VICTIMS.items()
    for where, blow in product(victims, ("die", "stop"))
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A model whose parts are read in pieces that the faults know, and documents."""
    folder = tmp_path_factory.mktemp("inputs")
    size = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 2, "head_dim": 64}
    fixtures.random_llama(folder / "w.h5", vocab_size=512, **size)
    fixtures.random_documents(folder / "t.h5", 512, [24] * 16)
    library(folder)
    return folder


def play(inputs: Path, folder: Path, ranks: int, where: str, blow: str) -> Job:
    """One job, hurt and ended."""
    log = folder / "log.jsonl"
    asked = deck(inputs / "w.h5", inputs / "t.h5") | {
        "train.steps": 100000,
        "train.batch_documents": ranks,
        "checkpoint.every": EVERY,
        "checkpoint.keep": 2,
        "checkpoint.directory": folder / "kept",
        "comm.transport": "mpi",
        "comm.link_rate": "40 MB/s",
        "comm.timeout": f"{TIMEOUT_S} s",
        "output.log": log,
    }
    victim = VICTIMS[ranks][where]
    # In a step: in the midst of a gather or a reduction, of which others wait for a part.
    call = {"start": "load", "step": "send", "save": "write"}[where]
    fault = {"LD_PRELOAD": inputs / "faults.so", "FAULT_RANK": str(victim), "FAULT_AT": "2"}
    fault |= {"FAULT": f"{blow}-in-{call}", "FAULT_FILE": "step-00000008"}
    job = Job(folder, asked, ranks, fault | {"FAULT_WHEN": folder / "now"})
    try:
        job.all_there()
        if where == "step":
            job.stepped(log, EVERY + 2)
            (folder / "now").touch()
        job.end(40)
    finally:
        job.clear()
    return job


@pytest.fixture(scope="module")
def ended(inputs, tmp_path_factory):
    """case: future of the ended job; some at a time, since they mostly wait."""
    with ThreadPoolExecutor(4) as pool:
        yield {
            case: pool.submit(play, inputs, tmp_path_factory.mktemp("job"), *case) for case in CASES
        }


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_t21_rank_hurt_anywhere_ends_a_job_of_any_size_and_the_checkpoint_stays(case, ended):
    ranks, where, blow = case
    job = ended[case].result()
    victim = f"rank {VICTIMS[ranks][where]}"
    if blow == "die":
        assert job.process.returncode != 0 and victim in job.stderr
    else:
        assert job.process.returncode == 1
        assert where != "step" or job.seconds < STOP_LIMIT_S
        said, *more = messages(job.stderr)
        assert not more, job.stderr
        missing = [w for w in (victim, f"= {TIMEOUT_S} s", *NAMED[where]) if w not in said]
        assert not missing, f"{missing} not in: {said}"
    kept = sorted((job.path.parent / "kept").glob("step-*.h5"))
    names = [path.name for path in kept]
    assert bool(names) == (where != "start")
    assert where != "save" or names == ["step-00000004.h5"]
    for path in [*kept, job.part]:
        with h5py.File(path) as file:
            assert path == job.part or file.attrs["complete"] == 1
