# SPDX-License-Identifier: Apache-2.0
"""Runs that are asked to stop early end in order, all ranks at the same step, and go on later (g8).

Decides who asks, and how; what a resumed run must equal is that of test_resume.py and
test_training_restart.py.
"""

import json
import re
import signal
import time
from pathlib import Path

import fixtures
import numpy as np
import pytest
from faults import Job, alive, library, until
from run_foregather import Foregather, Result, deck_text, read
from said import lines
from training import deck, state, step_file, steps_in

STOPPED = 75
LENGTHS = [40, 7, 33, 2, 64, 16, 55, 21] * 4
# Gathers over a link that makes a pass last some tenths of a second.
SLOW = {"comm.transport": "mpi", "comm.link_rate": "0.6 MB/s"}
SLOWER = SLOW | {"comm.link_rate": "0.08 MB/s"}
STEPS = 12


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A small model and documents for it."""
    folder = tmp_path_factory.mktemp("inputs")
    shape = {"hidden_size": 24, "intermediate_size": 51, "vocab_size": 97, "head_dim": 12}
    fixtures.random_llama(folder / "w.h5", **shape)
    fixtures.random_documents(folder / "t.h5", 97, LENGTHS)
    fixtures.random_llama(folder / "large.h5", **shape | {"vocab_size": 4096})
    library(folder)
    return folder


@pytest.fixture(scope="module")
def score(inputs) -> dict:
    """The deck of scores."""
    given = {"model.weights": inputs / "w.h5", "data.tokens": inputs / "t.h5", "batch.tokens": 64}
    return given | SLOW | {"output.existing": "resume"}


@pytest.fixture(scope="module")
def train(inputs) -> dict:
    """The deck of training runs: nothing is saved but at a stop or the end."""
    changes = {"train.steps": STEPS, "train.batch_documents": 2, "train.shuffle": True}
    return deck(inputs / "w.h5", inputs / "t.h5") | changes | SLOW


@pytest.fixture(scope="module")
def whole_score(score, tmp_path_factory) -> Result:
    """The score that nobody stops."""
    fast = score | {"comm.link_rate": 0}
    return Foregather(tmp_path_factory.mktemp("whole-score"))(fast, ranks=2)


@pytest.fixture(scope="module")
def whole_train(train, tmp_path_factory) -> Path:
    """The checkpoints of the training that nobody stops."""
    folder = tmp_path_factory.mktemp("whole-train")
    Foregather(folder)(train | {"comm.link_rate": 0, "checkpoint.directory": folder}, ranks=2)
    return folder


def stopped(job: Job, reason: str, seconds: float = 20) -> str:
    """Waits for the end; the one line that told it."""
    job.end(seconds)
    assert job.process.returncode == STOPPED, job.stderr
    (told,) = [line for line in job.stdout.splitlines() if line.startswith("stopped after")]
    assert f"({reason})" in told
    return told


def at_work(folder: Path, asked: dict, ranks: int, event: str = "pass", env=None) -> Job:
    """A job that has written a line of progress, or has scores in its file."""
    job = Job(folder, asked | {"output.log": folder / "log.jsonl"}, ranks, env)
    if event == "step":
        job.stepped(folder / "log.jsonl", 2)
    else:
        job.scored()
    return job


@pytest.mark.parametrize("ranks, rank, number", [(2, 1, "SIGUSR1"), (3, 0, "SIGTERM")])
def test_g8_a_signal_to_one_rank_stops_a_score_that_resumes_to_the_same_bytes(
    ranks, rank, number, score, whole_score, run, tmp_path
):
    job = at_work(tmp_path, score, ranks)
    try:
        job.send(rank, signal.Signals[number])
        told = stopped(job, number)
    finally:
        job.clear()
    assert "output.existing = resume" in told and not job.path.exists()
    done = read(job.part, "/provenance/packs_done")
    assert 0 < done.sum() < len(done)
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "stopped" and last["reason"] == number
    assert last["passes_done"] * ranks >= done.sum() > (last["passes_done"] - 1) * ranks
    again = run(score | {"comm.link_rate": 0, "output.file": job.path}, ranks=2)
    assert again.score_bytes() == whole_score.score_bytes()
    assert f"resumed: {done.sum()} of {len(done)} packs" in again.stdout


@pytest.mark.parametrize("depth", [0, 2])
def test_g8_stopped_training_saves_and_goes_on_bit_for_bit(depth, train, whole_train, run, tmp_path):
    kept = {"checkpoint.directory": tmp_path / "kept"}
    ahead = {"fsdp.forward_prefetch": depth, "fsdp.backward_prefetch": depth}
    job = at_work(tmp_path, train | kept | ahead, 2, "step")
    try:
        job.send(0, signal.SIGUSR1)
        told = stopped(job, "SIGUSR1")
    finally:
        job.clear()
    (step,) = steps_in(tmp_path / "kept")
    assert 2 <= step < STEPS
    assert str(step_file(tmp_path / "kept", step)) in told
    assert f"stopped after step {step} of {STEPS}" in told
    again = run(train | kept | {"comm.link_rate": 0, "output.file": job.path}, ranks=2)
    last = step_file(tmp_path / "kept", STEPS)
    assert state(last) == state(step_file(whole_train, STEPS))
    assert np.array_equal(again.read("/train/step"), np.arange(1, STEPS + 1))


def is_held(job: Job, rank: int) -> bool:
    """Whether a rank was stopped by a SIGSTOP."""
    stat = Path(f"/proc/{job.pids[rank]}/stat").read_text()
    return stat.rsplit(")", 1)[1].split()[0] == "T"


def ask_while_held(job: Job, rank: int) -> str:
    """SIGUSR1 to a rank that a fault holds, which then goes on each time that it is held again."""
    job.all_there()
    until(lambda: is_held(job, rank), 20, "the fault")
    job.send(rank, signal.SIGUSR1)
    while job.process.poll() is None and alive(job.pids[rank]):
        job.send(rank, signal.SIGCONT)
        time.sleep(0.02)
    return stopped(job, "SIGUSR1")


def held(inputs: Path, fault: str, at: int = 0, file: str = "") -> dict[str, str]:
    """The environment in which rank 1 is held."""
    preload = {"LD_PRELOAD": str(inputs / "faults.so"), "FAULT": fault, "FAULT_RANK": "1"}
    return preload | {"FAULT_AT": str(at), "FAULT_FILE": file}


# When a signal comes to a rank: the weights, and the fault that holds it then.
MOMENTS = {
    "in_the_load": ("large.h5", ("stop-in-load",)),
    "in_a_save": ("w.h5", ("stop-in-write", 2)),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_g8_signal_during_load_or_flush_stops_a_score_that_resumes(
    moment, score, inputs, run, tmp_path
):
    weights, fault = MOMENTS[moment]
    asked = score | {"model.weights": inputs / weights, "comm.link_rate": 0}
    whole = run(asked, ranks=2)
    job = Job(tmp_path, asked, 2, held(inputs, *fault, file="results.h5"))
    try:
        ask_while_held(job, 1)
    finally:
        job.clear()
    assert not read(job.part, "/provenance/packs_done").all() and not job.path.exists()
    again = run(asked | {"output.file": job.path}, ranks=2)
    assert again.score_bytes() == whole.score_bytes()


@pytest.mark.parametrize("moment", MOMENTS)
def test_g8_signal_during_load_or_save_stops_training_that_goes_on(
    moment, train, inputs, run, tmp_path
):
    weights, fault = MOMENTS[moment]
    few = {"train.steps": 4, "checkpoint.every": 2, "comm.link_rate": 0}
    asked = train | few | {"model.weights": inputs / weights}
    run(asked | {"checkpoint.directory": tmp_path / "whole"}, ranks=2)
    kept = {"checkpoint.directory": tmp_path / "kept"}
    job = Job(tmp_path, asked | kept, 2, held(inputs, *fault, file="step-"))
    try:
        ask_while_held(job, 1)
    finally:
        job.clear()
    assert steps_in(tmp_path / "kept") == ([1] if moment == "in_the_load" else [2, 3])
    run(asked | kept | {"output.file": job.path}, ranks=2)
    last = step_file(tmp_path / "kept", 4)
    assert state(last) == state(step_file(tmp_path / "whole", 4))


def test_stopped_training_without_a_checkpoint_folder_fails_and_says_what_is_lost(train, tmp_path):
    job = at_work(tmp_path, train, 2, "step")
    try:
        job.send(1, signal.SIGTERM)
        job.end(20)
    finally:
        job.clear()
    assert job.process.returncode == 1
    (told,) = [line for line in lines(job.stderr) if "SIGTERM" in line]
    assert "checkpoint.directory is empty, so nothing is kept" in told


def test_second_signal_ends_the_job_at_once(score, tmp_path):
    job = at_work(tmp_path, score | SLOWER, 2)
    try:
        job.send(1, signal.SIGUSR1)
        job.send(1, signal.SIGTERM)  # Two of one kind might come as one.
        job.end(10)
    finally:
        job.clear()
    assert job.process.returncode not in (0, STOPPED)


def test_stop_file_beside_the_results_stops_the_run_and_is_taken_away(score, run, tmp_path):
    job = at_work(tmp_path, score | SLOWER, 2)
    stop = tmp_path / "results.h5.stop"
    try:
        stop.touch()
        stopped(job, "the stop file is there")
    finally:
        job.clear()
    assert not stop.exists() and job.part.exists()
    stop.touch()
    refused = run(score | {"output.file": job.path}, ranks=2, expect=2)
    (said,) = lines(refused.stderr)
    assert "results.h5.stop is there" in said and "remove it" in said


def test_run_stops_before_its_time_limit(score, tmp_path):
    job = at_work(tmp_path, score | SLOWER | {"job.max_time": "4 s"}, 2)
    try:
        stopped(job, "the time limit is near")
    finally:
        job.clear()
    assert "note: the job ends at most 4 s after its start (job.max_time)" in job.stdout


@pytest.mark.parametrize("job", ["score", "train", "bench"])
def test_check_tells_when_a_run_would_end_and_what_is_kept(job, score, train, run, tmp_path):
    given = train if job == "train" else score | {"output.existing": "refuse", "job.name": job}
    given = given | {"output.file": tmp_path / "results.h5", "job.max_time": "10 min"}
    path = tmp_path / "job.deck"
    path.write_text(deck_text(given))

    def said(end: str | None) -> list[str]:
        result = run.words(["--check", str(path)], env={"SLURM_JOB_END_TIME": end})
        assert result.code == 0, result.stderr
        return [line for line in result.stdout.splitlines() if line.startswith("time: ")]

    begin = "time: begun now, the run ends at most "
    ends = "60 s or more of these are kept for saving, so the last step ends within"
    assert said(None) == [f"{begin}600 s after its start (job.max_time); {ends} 540 s"]
    assert said("") == said(None)
    (line,) = said(str(int(time.time()) + 100))  # Of a limit this near a quarter is kept.
    kept = re.search(r"\(SLURM_JOB_END_TIME\); ([\d.]+) s or more of these are kept", line)
    assert kept and 24 <= float(kept[1]) <= 25
    path.write_text(deck_text(given | {"job.max_time": 0}))
    assert said(None) == []


@pytest.mark.parametrize("end", ["garbage", "1e9", "-5", "1000000000", "99999999999999999"])
def test_end_that_is_no_time_to_come_is_told_and_kept(end, score, run, tmp_path):
    env = {"SLURM_JOB_END_TIME": end}
    result = run(score | {"job.max_time": "1 h"}, ranks=2, env=env)
    told = f"note: SLURM_JOB_END_TIME={end} is not a time to come, in seconds since 1970: this run"
    assert told in result.stdout and "(job.max_time)" in result.stdout
    assert result.rows("/provenance/environment", "name")["SLURM_JOB_END_TIME"]["value"] == end
    path = tmp_path / "job.deck"
    path.write_text(deck_text(score | {"output.file": tmp_path / "other.h5"}))
    assert told in run.words(["--check", str(path)], env=env).stdout


def test_bench_that_meets_its_limit_ends_between_turns_and_keeps_nothing(score, run):
    asked = score | {"job.name": "bench", "output.existing": "refuse", "comm.link_rate": "1 MB/s"}
    asked |= {"bench.pairs": 1000, "job.max_time": "3 s"}
    result = run(asked, ranks=2, expect=STOPPED)
    (told,) = [line for line in result.stdout.splitlines() if line.startswith("stopped after")]
    done, turns = (int(word) for word in told.split() if word.isdigit())
    assert 0 < done < turns and "(the time limit is near)" in told
    assert result.seconds < 6 and not result.path.exists() and not result.part_left()


def test_end_of_the_batch_job_counts_where_it_comes_first(score, tmp_path):
    env = {"SLURM_JOB_END_TIME": str(int(time.time()) + 4)}
    job = at_work(tmp_path, score | SLOWER | {"job.max_time": "1 h"}, 2, env=env)
    try:
        stopped(job, "the time limit is near")
    finally:
        job.clear()
    assert "(SLURM_JOB_END_TIME)" in job.stdout
