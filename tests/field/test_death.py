# SPDX-License-Identifier: Apache-2.0
"""A rank that dies, stops or fails ends the job with one line and leaves files that open.

Decides the moments and the faults; faults.py makes them.
"""

import re
import shutil
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fixtures
import h5py
import numpy as np
import pytest
from faults import Job, has_scores, library
from said import messages

HOST = socket.gethostname()
OLDER = b"older results, not to be touched"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """Models and documents that keep a job busy for a minute, and the library of faults."""
    folder = tmp_path_factory.mktemp("inputs")
    fixtures.bigram(folder / "bigram.h5")
    fixtures.random_documents(folder / "many.h5", 4, [8] * 4000)
    size = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4}
    fixtures.random_llama(folder / "busy.h5", vocab_size=512, num_attention_heads=4, **size)
    fixtures.random_documents(folder / "long.h5", 512, [512] * 400)
    library(folder)
    return folder


def slow_gathers(inputs: Path) -> dict:
    """A deck for a minute of gathers over a slow link."""
    return {
        "model.weights": inputs / "bigram.h5",
        "data.tokens": inputs / "many.h5",
        "batch.tokens": 8,
        "comm.transport": "mpi",
        "comm.link_rate": "0.4 MB/s",
        "comm.timeout": "3 s",
        "output.existing": "replace",
    }


def long_computes(inputs: Path) -> dict:
    """A deck for a minute of computing with weights in a shared window."""
    return {
        "model.weights": inputs / "busy.h5",
        "data.tokens": inputs / "long.h5",
        "batch.tokens": 512,
        "comm.transport": "shared",
        "comm.timeout": "3 s",
        "output.existing": "replace",
    }


def slow_loads(inputs: Path) -> dict:
    """A deck whose ranks wait for each other after loading."""
    return long_computes(inputs) | {"comm.transport": "mpi"}


@pytest.fixture
def job(tmp_path):
    """job(deck, ranks, env): a job that replaces older results; none is left running."""
    begun: list[Job] = []
    (tmp_path / "results.h5").write_bytes(OLDER)

    def begin(deck: dict, ranks: int = 3, env: dict | None = None) -> Job:
        begun.append(Job(tmp_path, deck, ranks, env))
        return begun[-1]

    yield begin
    for one in begun:
        one.clear()


def opens(path: Path, packs_to_do: bool) -> None:
    """A results file can be read by h5py and by HDF5's own tool, all its scores included."""
    with h5py.File(path) as file:
        assert file.attrs["format"] == b"foregather.results" and file.attrs.get("complete", 0) == 0
        assert file["provenance/deck_text"][()]
        assert len(file["score/logprob"][()]) == file["score/offsets"][-1]
        assert file["provenance/packs_done"][()].all() != packs_to_do
    tool = shutil.which("h5dump")
    assert tool, "h5dump is not installed"
    subprocess.run([tool, "-d", "/score/logprob", path], check=True, stdout=subprocess.DEVNULL)


def left_as_promised(job: Job, packs_to_do: bool = True) -> None:
    """The unfinished file opens, and the older results are what they were."""
    opens(job.part, packs_to_do)
    assert job.path.read_bytes() == OLDER


def one_message(job: Job, *words: str) -> str:
    """The only message on stderr, in which each of `words` stands."""
    said = messages(job.stderr)
    assert len(said) == 1, job.stderr
    missing = [word for word in words if word not in said[0]]
    assert not missing, f"{missing} not in: {said[0]}"
    return said[0]


def test_e4_killed_rank_ends_the_job(job, inputs):
    running = job(slow_gathers(inputs))
    running.scored()
    running.send(1, signal.SIGKILL)
    running.end(15)
    assert running.process.returncode != 0
    assert "rank 1" in running.stderr  # Of the launcher: the others are ended at once.
    left_as_promised(running)
    assert has_scores(running.part)


def test_e4_killed_rank_ends_the_job_while_weights_are_shared(job, inputs):
    running = job(long_computes(inputs))
    running.scored()
    running.send(2, signal.SIGKILL)
    running.end(15)
    assert running.process.returncode != 0
    left_as_promised(running)


def test_e4_rank_killed_at_start_up_ends_the_job(job, inputs):
    running = job(slow_gathers(inputs))
    running.starting()
    running.send(1, signal.SIGKILL)
    running.end(15)
    assert running.process.returncode != 0
    assert running.path.read_bytes() == OLDER


# Jobs of which rank 1 stops without a word: the deck, the fault, and what the one line names.
STOPPED = {
    "in_a_gather": (slow_gathers, "stop-in-send", ("did not arrive", "gather of ")),
    "where_nothing_is_gathered": (long_computes, "", ("has been silent",)),
    "while_it_loads": (slow_loads, "stop-in-load", ()),
    "while_it_loads_a_shared_window": (long_computes, "stop-in-load", ("did not load its part",)),
}


@pytest.fixture(scope="module")
def stopped(inputs, tmp_path_factory):
    """All these jobs, side by side since they mostly wait: name: future of the ended job."""

    def play(name: str) -> Job:
        deck, fault, _ = STOPPED[name]
        folder = tmp_path_factory.mktemp(name)
        (folder / "results.h5").write_bytes(OLDER)
        env = {"LD_PRELOAD": inputs / "faults.so", "FAULT": fault, "FAULT_RANK": "1"}
        env["FAULT_WHEN"] = folder / "now"
        job = Job(folder, deck(inputs), 3, env if fault else None)
        try:
            if fault == "stop-in-load":
                job.all_there()
            else:
                job.scored()
            if fault == "stop-in-send":  # In the midst of one: else the stop may come between two.
                (folder / "now").touch()
            elif not fault:
                job.send(1, signal.SIGSTOP)
            job.end(30)
        finally:
            job.clear()
        return job

    with ThreadPoolExecutor(len(STOPPED)) as pool:
        yield {name: pool.submit(play, name) for name in STOPPED}


@pytest.mark.parametrize("name", STOPPED)
def test_e4_stopped_rank_is_named_and_ends_the_job(name, stopped):
    job = stopped[name].result()
    assert job.seconds < 20
    assert job.process.returncode == 1
    one_message(job, "rank 1", "comm.timeout = 3 s", *STOPPED[name][2])
    left_as_promised(job)


@pytest.mark.parametrize("victim", [0, 1])
def test_e4_rank_stopped_at_the_end_of_mpi_ends_the_job_whose_results_are_whole(
    victim, job, inputs
):
    fault = {"LD_PRELOAD": inputs / "faults.so", "FAULT": "stop-at-the-end"}
    deck = slow_gathers(inputs) | {"comm.link_rate": 0, "data.max_documents": 40}
    deck |= {"comm.timeout": "2 s"}
    running = job(deck, ranks=3, env=fault | {"FAULT_RANK": str(victim)})
    running.all_there()
    running.end(20)
    assert running.process.returncode == 1
    one_message(running, "MPI's end has lasted longer than 2 s", "a rank is stopped")
    with h5py.File(running.path) as file:
        assert file.attrs["complete"] == 1
    assert not running.part.exists()


def test_j1_disk_that_fails_for_one_rank_is_one_message_with_rank_host_and_cause(job, inputs):
    fault = {"LD_PRELOAD": inputs / "faults.so", "FAULT": "disk-full", "FAULT_RANK": "2"}
    running = job(slow_gathers(inputs) | {"comm.timeout": "120 s"}, ranks=4, env=fault)
    running.all_there()
    running.end(15)
    assert running.process.returncode == 1
    told = one_message(running, f"rank 2 ({HOST})", str(running.part), "/score/logprob")
    told = told.replace(str(running.part), "")
    assert "full" in told or "No space" in told  # The cause, or what to look at.
    left_as_promised(running)


@pytest.mark.parametrize("call", [1, 2, 4])
def test_f4_rank_killed_in_a_flush_leaves_a_file_that_opens(call, job, inputs):
    fault = {"LD_PRELOAD": inputs / "faults.so", "FAULT": "die-in-flush", "FAULT_RANK": "0"}
    deck = slow_gathers(inputs) | {"comm.link_rate": 0, "data.max_documents": 40}
    running = job(deck, ranks=2, env=fault | {"FAULT_AT": str(call)})
    running.end(15)
    assert running.process.returncode != 0, "there was no such flush"
    left_as_promised(running, packs_to_do=call < 4)
    assert has_scores(running.part) == (call > 1)


def test_f4_run_killed_while_it_completes_its_file_leaves_one_that_opens(run, ab, inputs):
    fault = {"LD_PRELOAD": str(inputs / "faults.so"), "FAULT": "count-writes"}
    counted = run(ab, ranks=0, env=fault)
    total = max(map(int, re.findall(r"^writes (\d+)$", counted.stderr, re.MULTILINE)))
    assert total > 200
    for before_the_last in (1, 30, 60):
        fault |= {"FAULT": "die-in-write", "FAULT_AT": str(total - before_the_last)}
        killed = run(ab, ranks=0, env=fault, expect=-signal.SIGKILL)
        with h5py.File(f"{killed.path}.part") as file:
            assert np.isfinite(file["score/logprob"][()]).sum() == 4
            assert file["provenance/packs_done"][()].all()


def test_two_runs_of_one_name_do_not_share_a_file(job, inputs):
    first = job(slow_gathers(inputs))
    first.scored()
    second = job(slow_gathers(inputs))
    second.end(15)
    assert second.process.returncode == 2
    assert "open in another process" in one_message(second, str(second.part))
    assert first.process.poll() is None
    left_as_promised(first)
