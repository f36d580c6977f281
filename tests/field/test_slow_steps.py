# SPDX-License-Identifier: Apache-2.0
"""A step far slower than those before is told while it lasts, with what each rank is at; the run
goes on.

Decides what makes one rank slow; faults.py makes it so. All jobs run side by side.
"""

import json
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fixtures
import pytest
from faults import Job, library
from run_foregather import read
from training import deck

HOST = socket.gethostname()
LATE = {"FAULT": "slow-in-write", "FAULT_RANK": "1", "FAULT_AT": "120", "FAULT_FILE": "results"}
# The job, and what befalls rank 1: a signal that stops it for a while, a fault, or nothing.
SLOW = {
    "a_rank_of_a_step_stopped": ("train", "stop"),
    "a_rank_of_a_pass_stopped": ("score", "stop"),
    "a_rank_slow_to_write": ("score", LATE),
    "nothing": ("train", None),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A small model, documents for it, and the library of faults."""
    folder = tmp_path_factory.mktemp("inputs")
    shape = {"hidden_size": 24, "intermediate_size": 51, "vocab_size": 97, "head_dim": 12}
    fixtures.random_llama(folder / "w.h5", **shape)
    fixtures.random_documents(folder / "t.h5", 97, [40, 24] * 600)
    library(folder)
    return folder


def asked(inputs: Path, job: str, folder: Path) -> dict:
    """Some seconds of steps or passes of some hundredths."""
    common = {
        "comm.transport": "mpi",
        "comm.link_rate": "2 MB/s",
        "comm.timeout": "20 s",
        "output.log": folder / "log.jsonl",
    }
    if job == "score":
        given = {"model.weights": inputs / "w.h5", "data.tokens": inputs / "t.h5"}
        return given | {"batch.tokens": 64, "output.flush_every": 0.2} | common
    return deck(inputs / "w.h5", inputs / "t.h5") | {"train.steps": 60} | common


def events(folder: Path) -> list[dict]:
    """The objects of the log."""
    log = folder / "log.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def play(inputs: Path, name: str, folder: Path) -> Job:
    """One of those jobs, ended."""
    kind, befalls = SLOW[name]
    env = {"LD_PRELOAD": inputs / "faults.so"} | befalls if isinstance(befalls, dict) else None
    job = Job(folder, asked(inputs, kind, folder), 3, env)
    try:
        job.all_there()
        if befalls == "stop":
            if kind == "train":
                job.stepped(folder / "log.jsonl", 20)
            else:
                job.scored()
                time.sleep(1)
            job.send(1, signal.SIGSTOP)
            time.sleep(6.5)
            job.send(1, signal.SIGCONT)
        job.end(60)
    finally:
        job.clear()
    return job


@pytest.fixture(scope="module")
def ended(inputs, tmp_path_factory):
    """name: future of the ended job."""
    with ThreadPoolExecutor(len(SLOW)) as pool:
        yield {
            name: pool.submit(play, inputs, name, tmp_path_factory.mktemp(name)) for name in SLOW
        }


def slow_notes(job: Job) -> list[str]:
    """Notes of slow work on stdout, which the log and the results must hold too."""
    assert job.process.returncode == 0, job.stderr
    notes = [line for line in job.stdout.splitlines() if line.startswith("note: ")]
    told = [line.removeprefix("note: ") for line in notes if "the median is" in line]
    told_again = [e["text"] for e in events(job.path.parent) if e["event"] == "note"]
    assert [note for note in told_again if "the median is" in note] == told
    report = read(job.path, "/provenance/report")
    assert all(note in report for note in told)
    return told


@pytest.mark.parametrize("name", ["a_rank_of_a_step_stopped", "a_rank_of_a_pass_stopped"])
def test_t21_slow_step_is_told_while_it_lasts_with_the_phase_of_each_rank(name, ended):
    job = ended[name].result()
    told = slow_notes(job)
    assert told, job.stdout
    kind = "step" if SLOW[name][0] == "train" else "pass"
    assert told[0].startswith(kind) and " by now, the median is 0." in told[0]
    assert "gather of " in told[0] or "reduction of " in told[0] or "waiting for" in told[0]
    assert f"rank 1 ({HOST}): silent for " in told[0] and f"last in {kind} " in told[0]
    again = [line for line in job.stdout.splitlines() if "is heard of again" in line]
    assert any(re.search("rank 1.* stood still for [67]", line) for line in again), job.stdout


def test_slow_write_of_one_rank_is_told_as_its_phase(ended):
    (told,) = slow_notes(ended["a_rank_slow_to_write"].result())
    assert f"rank 1 ({HOST}): writing scores to " in told
    assert "ranks 0, 2: " in told, "those that wait for it are told together"


def test_ordinary_run_has_no_slow_step(ended):
    assert slow_notes(ended["nothing"].result()) == []
