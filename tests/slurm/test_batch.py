# SPDX-License-Identifier: Apache-2.0
"""The scripts of jobs/ under a real Slurm: results, exit statuses, time limits, requeues, signals.

Decides what is submitted and how it must end; each job is two ranks on this machine's one node.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import fixtures
import h5py
import pytest
from cluster import Cluster, Job, until
from run_foregather import PROGRAM, ROOT, Foregather, Result, deck_text, group_bytes, read
from training import state, step_file, steps_in

SIZE = ["--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1", "--time=10"]
SLOW = {"comm.transport": "mpi", "comm.link_rate": "0.15 MB/s"}
STEPS = 8


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A small model and documents for it."""
    folder = tmp_path_factory.mktemp("inputs")
    shape = {"hidden_size": 24, "intermediate_size": 51, "vocab_size": 97, "head_dim": 12}
    fixtures.random_llama(folder / "w.h5", **shape)
    fixtures.random_documents(folder / "t.h5", 97, [40, 7, 33, 2, 64, 16, 55, 21] * 4)
    return folder


@pytest.fixture(scope="module")
def score(inputs) -> dict:
    """Keys of all scores."""
    named = {"job.name": "score", "model.weights": inputs / "w.h5", "data.tokens": inputs / "t.h5"}
    return named | {"batch.tokens": 64}


@pytest.fixture(scope="module")
def whole(score, tmp_path_factory) -> Result:
    """The score without Slurm."""
    return Foregather(tmp_path_factory.mktemp("whole"))(score, ranks=2)


class Submitted:
    """A deck in a folder of its own, submitted with one of the scripts."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        script: str,
        asked: dict,
        *words: str,
        env: dict[str, str] | None = None,
    ):
        self.cluster = cluster
        self.results = folder / "results.h5"
        self.part = folder / "results.h5.part"
        self.said = folder / "said.txt"
        deck = folder / "job.deck"
        deck.write_text(deck_text({"output.file": self.results} | asked))
        where = ["--chdir", ROOT, "--output", self.said]
        self.number = cluster.submit(
            *SIZE, *where, ROOT / "jobs" / script, deck, *words, env=env
        )

    def wait(self, seconds: float = 60) -> Job:
        """The job when it is over; no rank of it is left."""
        job = self.cluster.wait(self.number, seconds)
        until(lambda: not ranks_of(self.number), 15, "the end of all ranks")
        return job

    def text(self) -> str:
        """What the job has printed so far."""
        return self.said.read_text() if self.said.exists() else ""


def ranks_of(number: int) -> dict[int, int]:
    """The processes of a job's ranks."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "exe") == str(PROGRAM.resolve()):
                words = (entry / "environ").read_bytes().decode().split("\0")
                if f"SLURM_JOB_ID={number}" in words:
                    (rank,) = [w.split("=")[1] for w in words if w.startswith("SLURM_PROCID=")]
                    found[int(rank)] = int(entry.name)
        except OSError:
            continue
    return found


@pytest.fixture
def submit(cluster, tmp_path) -> Iterator:
    """submit(script, deck, words): a job that does not outlive its test."""
    jobs = []

    def one(script: str, asked: dict, *words: str, env: dict[str, str] | None = None) -> Submitted:
        jobs.append(Submitted(cluster, tmp_path, script, asked, *words, env=env))
        return jobs[-1]

    yield one
    for job in jobs:
        if not cluster.job(job.number).over:
            cluster.run("scancel", job.number)
            cluster.wait(job.number, 30)


def scored(job: Submitted) -> bool:
    """Whether the job's file, which may be in the making, holds scores."""
    try:
        return bool(read(job.part, "/provenance/packs_done").sum() > 1)
    except OSError:
        return False


def test_score_runs_and_its_check_comes_first(submit, score, whole):
    job = submit("score.sbatch", score)
    ended = job.wait()
    assert (ended.state, ended.exit_code) == ("COMPLETED", 0), job.text()
    assert group_bytes(job.results, "/score") == whole.score_bytes()
    said = job.text()
    assert said.index("work: 32 documents") < said.index("---- score: 2 ranks on 1 node")
    assert f"job {job.number}: 2 ranks, 2 a node" in said
    with h5py.File(job.results) as file:
        hosts = file["provenance/hosts/rank"][()]
    assert hosts.tolist() == [0, 1]


def test_a_deck_that_is_refused_costs_no_time_and_passes_its_status_on(submit, score):
    job = submit("score.sbatch", score, "--fsdp.forward_prefech=1")
    ended = job.wait(20)
    assert (ended.state, ended.exit_code) == ("FAILED", 2)
    assert "did you mean fsdp.forward_prefetch?" in job.text()
    assert "---- score" not in job.text() and not job.part.exists()


def test_a_score_near_its_limit_is_put_back_and_ends_in_the_same_bytes(submit, score, whole):
    job = submit("score.sbatch", score | SLOW | {"comm.link_rate": "0.06 MB/s", "job.max_time": "5 s"})
    ended = job.wait(120)
    assert (ended.state, ended.exit_code) == ("COMPLETED", 0), job.text()
    said = job.text()
    assert said.count("stopped early: put back into the queue") >= 1
    assert "resumed: " in said and int(ended.facts["Restarts"]) >= 1
    assert group_bytes(job.results, "/score") == whole.score_bytes()


@pytest.mark.parametrize("ask", ["signal", "limit"])
def test_training_saves_is_put_back_and_goes_on_bit_for_bit(ask, submit, cluster, inputs, tmp_path):
    asked = {
        "job.name": "train",
        "model.weights": inputs / "w.h5",
        "data.tokens": inputs / "t.h5",
        "train.steps": STEPS,
        "train.learning_rate": 0.01,
        "train.batch_documents": 2,
    }
    unbroken = tmp_path / "unbroken"
    Foregather(tmp_path)(asked | {"checkpoint.directory": unbroken}, ranks=2)
    limit = {"job.max_time": "4 s"} if ask == "limit" else {}
    kept = {"checkpoint.directory": tmp_path / "kept"}
    job = submit("train.sbatch", asked | SLOW | kept | limit)
    if ask == "signal":
        until(lambda: "step 2/" in job.text(), 30, "two steps")
        cluster.run("scancel", "--signal=USR1", job.number)
    ended = job.wait(150)
    assert (ended.state, ended.exit_code) == ("COMPLETED", 0), job.text()
    said = job.text()
    reason = "SIGUSR1" if ask == "signal" else "the time limit is near"
    first = re.search(rf"stopped after step (\d+) of {STEPS} \({reason}\)", said)
    assert first and f"/step-{int(first[1]):08}.h5" in said
    assert STEPS in steps_in(tmp_path / "kept")
    assert state(step_file(tmp_path / "kept", STEPS)) == state(step_file(unbroken, STEPS))


def test_the_batch_systems_own_limit_is_known_to_the_run(submit, score):
    job = submit("score.sbatch", score | SLOW)
    job.wait()
    (told,) = re.findall(r"note: the job ends at most (\d+) s after its start", job.text())
    assert 560 < int(told) <= 600


def test_a_cancelled_job_leaves_no_process_and_a_file_that_opens(submit, cluster, score):
    job = submit("score.sbatch", score | SLOW | {"output.flush_every": 0.1})
    until(lambda: scored(job), 40, "scores")
    cluster.run("scancel", job.number)
    assert job.wait(30).state == "CANCELLED"
    assert read(job.part, "/provenance/packs_done").sum() > 1


def test_t21_a_killed_rank_ends_the_job(submit, score):
    slower = SLOW | {"comm.link_rate": "0.06 MB/s", "output.flush_every": 0.1}
    job = submit("score.sbatch", score | slower)
    until(lambda: scored(job), 40, "scores")
    os.kill(ranks_of(job.number)[1], signal.SIGKILL)
    ended = job.wait(20)
    assert ended.state == "FAILED" and ended.exit_code not in (0, 75)
    assert not job.results.exists()


def test_bench_of_pairs_runs(submit, inputs):
    asked = {
        "job.name": "bench",
        "model.weights": inputs / "w.h5",
        "data.tokens": inputs / "t.h5",
        "batch.tokens": 64,
        "bench.depths": "0, 1",
        "bench.pairs": 1,
        "bench.steps": 1,
    }
    job = submit("bench-pairs.sbatch", asked | SLOW | {"comm.link_rate": "2 MB/s"})
    assert job.wait().exit_code == 0, job.text()
    with h5py.File(job.results) as file:
        assert file["bench/depths/depth"][()].tolist() == [0, 1]


def test_scaling_runs_as_many_nodes_as_its_task_says(submit, score, tmp_path):
    env = {"OUTPUT": str(tmp_path / "nodes"), "SBATCH_ARRAY_INX": "1"}
    job = submit("scaling.sbatch", score, env=env)
    assert job.wait().exit_code == 0, job.text()
    assert read(tmp_path / "nodes-1.h5", "/provenance/hosts/rank").tolist() == [0, 1]


def test_scripts_are_clean():
    scripts = [*ROOT.glob("jobs/*.sh"), *ROOT.glob("jobs/*.sbatch")]
    assert len(scripts) == 7
    command = ["shellcheck", "-x", *map(str, scripts)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
