# SPDX-License-Identifier: Apache-2.0
"""A rank of a training run that dies or stops ends the job, and its last checkpoint stays (T21).

Decides the moments; faults.py makes the faults. All jobs run side by side, since they mostly wait.
"""

import signal
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import fixtures
import h5py
import numpy as np
import pytest
from faults import Job, library
from said import messages
from training import deck, notes, state, step_file

RANKS, EVERY = 3, 5
SLOW = {"comm.transport": "mpi", "comm.link_rate": "0.02 MB/s"}
FLUSHED = {"output.flush_every": 0.001}
# The deck, what befalls rank 1 (a signal in step 7, or a fault there or in the second save), and what the
# one line of foregather's own names; a rank that is killed is named by the launcher.
DEATHS = {
    "killed_in_a_step": (SLOW | FLUSHED, signal.SIGKILL, ()),
    "killed_in_a_save": (FLUSHED, "die-in-write", ()),
    "stopped_in_a_step": (SLOW, "stop-in-send", ("rank 1", "did not arrive")),
    "stopped_where_weights_are_shared": (
        {"comm.transport": "shared", "comm.link_rate": 0, "batch.tokens": 4096},
        signal.SIGSTOP,
        ("rank 1",),
    ),
    "stopped_in_a_save": ({}, "stop-in-write", ("rank 1",)),
    "never_comes_to_an_exchange": (
        {},
        "sleep-in-exchange",
        ("rank 1", "did not arrive within", "to gather", "last heard of in step"),
    ),
    "exchange_that_is_lost": ({}, "lose-exchange", ("rank 0", "all ranks arrived to gather")),
}

ARMED = ("stop-in-send", "sleep-in-exchange", "lose-exchange")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """F-BG, documents for it, and the library of faults."""
    folder = tmp_path_factory.mktemp("inputs")
    fixtures.bigram(folder / "w.h5")
    fixtures.random_documents(folder / "t.h5", 4, [600] * 40)
    library(folder)
    return folder


@pytest.fixture(scope="module")
def asked(inputs) -> dict:
    """Steps for a minute and more."""
    changes = {
        "train.steps": 100000,
        "train.batch_documents": 3,
        "checkpoint.every": EVERY,
        "checkpoint.keep": 2,
        "comm.timeout": "3 s",
    }
    return deck(inputs / "w.h5", inputs / "t.h5") | changes


def play(inputs: Path, asked: dict, folder: Path, befalls: signal.Signals | str) -> Job:
    """A job that is hurt, and has ended."""
    log = folder / "log.jsonl"
    env = {"LD_PRELOAD": inputs / "faults.so", "FAULT": befalls, "FAULT_RANK": "1"}
    env |= {"FAULT_FILE": "step-00000010", "FAULT_AT": "2", "FAULT_WHEN": folder / "now"}
    own = {"checkpoint.directory": folder / "kept", "output.log": log}
    job = Job(folder, asked | own, RANKS, env if isinstance(befalls, str) else None)
    try:
        job.all_there()
        if befalls in ARMED:  # In the midst of a gather or a reduction, or between steps.
            job.stepped(log, EVERY + 2)
            (folder / "now").touch()
        elif not isinstance(befalls, str):
            job.stepped(log, EVERY + 2)
            job.send(1, befalls)
        job.end(40)
    finally:
        job.clear()
    return job


@pytest.fixture(scope="module")
def ended(inputs, asked, tmp_path_factory):
    """Those jobs: name: future of the ended one."""
    with ThreadPoolExecutor(len(DEATHS)) as pool:
        jobs: dict[str, Future] = {}
        for name, (changes, befalls, _) in DEATHS.items():
            folder = tmp_path_factory.mktemp(name)
            jobs[name] = pool.submit(play, inputs, asked | changes, folder, befalls)
        yield jobs


@pytest.mark.parametrize("name", DEATHS)
def test_t21_rank_that_dies_or_stops_ends_the_job_and_the_checkpoint_stays(name, ended):
    changes, _, words = DEATHS[name]
    job = ended[name].result()
    assert job.seconds < 25 and job.process.returncode != 0
    if words:
        assert job.process.returncode == 1
        said, *more = messages(job.stderr)
        assert not more, job.stderr
        missing = [word for word in (*words, "comm.timeout = 3 s") if word not in said]
        assert not missing, f"{missing} not in: {said}"
    else:
        assert "rank 1" in job.stderr
    kept = job.path.parent / "kept"
    newest = sorted(kept.glob("step-*.h5"))[-1]
    with h5py.File(newest) as file:
        assert file.attrs["complete"] == 1
        steps = file["train/step"][()]
        assert newest == step_file(kept, steps[-1]) and len(steps) == steps[-1]
    with h5py.File(job.part) as file:  # With the steps that were brought to disk.
        stored = file["train/step"][()]
        stored = stored[stored > 0]
        assert len(stored) >= (EVERY if FLUSHED.items() <= changes.items() else 0)
        assert np.isfinite(file["train/loss"][: len(stored)]).all()


def test_t21_dead_run_is_resumed_by_its_deck_to_the_bits_of_an_unbroken_one(
    asked, ended, inputs, run, tmp_path
):
    job = ended["killed_in_a_save"].result()
    kept = job.path.parent / "kept"
    own = asked | {"train.steps": 12, "checkpoint.directory": kept, "output.file": job.path}
    result = run(own, RANKS)  # What it left unfinished needs no output.existing.
    assert f"training goes on from {step_file(kept, 5)}" in notes(result)
    assert not [note for note in notes(result) if "was replaced" in note]
    assert result.read("/train/step").tolist() == list(range(1, 13))
    assert result.table("/provenance/runs")["ranks"].tolist() == [RANKS, RANKS]
    run(own | {"checkpoint.directory": tmp_path / "kept", "output.file": tmp_path / "r.h5"}, RANKS)
    assert state(step_file(kept, 12)) == state(step_file(tmp_path / "kept", 12))
