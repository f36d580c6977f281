# SPDX-License-Identifier: Apache-2.0
"""Passes that are measured before a run or instead of one, and runs that stop early, on doubles.

Decides that rehearsals, benches and stops order their memory and change no bit of what is computed
later; what is chosen or measured, the tests of the host decide.
"""

import signal
from pathlib import Path

import fixtures
import pytest
from emulated_runs import DELAY, GPUS, REPORT, counters
from faults import Job
from run_foregather import read
from training import state, step_file, steps_in

AUTO = {"fsdp.forward_prefetch": "auto"}
BOTH = AUTO | {"fsdp.backward_prefetch": "auto"}
OFFLOAD = {"fsdp.offload": "params"}
STOPPED = 75  # Exit status of a run that stopped early, in order.
LAYOUTS = {"1": (1, {}), "2": (2, {}), "2-x-2": (4, {"mesh.shard": 2})}


@pytest.fixture
def many(tmp_path) -> dict:
    """A deck of a small model and more documents than a golden model has."""
    shape = {"hidden_size": 24, "intermediate_size": 51, "vocab_size": 97, "head_dim": 12}
    return {
        "model.weights": fixtures.random_llama(tmp_path / "w.h5", **shape),
        "data.tokens": fixtures.random_documents(tmp_path / "t.h5", 97, [40, 7, 33, 2, 64, 16] * 8),
        "batch.tokens": 64,
        "fsdp.forward_prefetch": 2,
    }


@pytest.fixture
def train(many, tmp_path):
    """train(folder, steps): a deck of steps that are saved there."""

    def make(folder: str, steps: int) -> dict:
        return many | {
            "job.name": "train",
            "train.steps": steps,
            "train.learning_rate": 0.003,
            "train.batch_documents": 8,
            "checkpoint.directory": tmp_path / folder,
        }

    return make


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("offload", [{}, OFFLOAD], ids=["", "offload"])
def test_auto_measures_and_scores_as_a_fixed_depth_does(layout, offload, golden, on_gpus):
    ranks, settings = LAYOUTS[layout]
    deck = golden("llama") | settings | offload
    fixed = on_gpus(deck, ranks).result.score_bytes()
    found = on_gpus(deck | AUTO, ranks)
    assert found.result.score_bytes() == fixed
    if ranks > 1 or offload:
        chosen = found.result.table("/timing/choice")
        (depth,) = chosen["forward_depth"][chosen["chosen"] == 1]
        assert found.result.table("/timing/prefetch")["slots"][0] == depth + 1
    assert not any(found.result.table("/timing/ranks")["allocations_while_running"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_auto_measures_and_trains_as_fixed_depths_do(layout, train, on_gpus, tmp_path):
    ranks, settings = LAYOUTS[layout]
    on_gpus(train("fixed", 3) | settings, ranks)
    found = on_gpus(train("auto", 3) | settings | BOTH, ranks).result
    assert state(step_file(tmp_path / "auto", 3)) == state(step_file(tmp_path / "fixed", 3))
    if ranks > 1:
        assert found.table("/timing/choice")["chosen"].sum() == 1
    assert not any(found.table("/timing/ranks")["allocations_while_running"])


@pytest.mark.parametrize(
    "more",
    [
        {},
        OFFLOAD,
        {"bench.job": "train", "train.accumulate": 3},
        {"bench.job": "train", "mesh.shard": 2},
    ],
    ids=["score", "offload", "train", "train-2-x-2"],
)
def test_a_bench_orders_its_passes_and_has_its_rows(more, many, on_gpus):
    quick = {"job.name": "bench", "bench.depths": "0, 2", "bench.pairs": 2, "bench.steps": 2}
    ranks = 4 if "mesh.shard" in more else 2
    found = on_gpus(many | quick | more, ranks).result
    rows = found.table("/bench/depths")
    assert list(rows["depth"]) == [0, 2] and list(rows["slots"]) == [1, 3]
    assert (rows["step_s"] > 0).all()
    assert sorted(found.table("/bench/turns")["depth"]) == ranks * [0, 0] + ranks * [2, 2]
    assert not any(found.table("/timing/ranks")["allocations_while_running"])


def stopped(folder: Path, deck: dict, ranks: int) -> Job:
    """A run on emulated GPUs that a signal to its last rank has stopped at work."""
    report, log = folder / "stopped", folder / "log.jsonl"
    env = {GPUS: "4", REPORT: str(report), DELAY: "1000"}  # to be at work for a while
    job = Job(folder, deck | {"device.kind": "cuda", "output.log": log}, ranks, env)
    try:
        if deck["job.name"] == "train":
            job.stepped(log, 2)
        else:
            job.scored()
        job.send(ranks - 1, signal.SIGUSR1)
        job.end(60)
    finally:
        job.clear()
    assert job.process.returncode == STOPPED, job.stderr
    told = counters(report)
    assert [rank["reports"] for rank in told] == [0] * ranks, job.stderr
    return job


@pytest.mark.parametrize("settings", [{}, OFFLOAD], ids=["", "offload"])
def test_a_score_that_is_stopped_goes_on_to_the_same_bytes(settings, many, on_gpus, tmp_path):
    whole = on_gpus(many | settings, 2).result.score_bytes()
    kept = many | settings | {"job.name": "score", "output.existing": "resume"}
    job = stopped(tmp_path, kept, 2)
    done = read(job.part, "/provenance/packs_done")
    assert 0 < done.sum() < len(done)
    again = on_gpus(kept | {"output.file": job.path}, 2).result
    again.path = job.path
    assert f"resumed: {done.sum()} of {len(done)} packs" in again.stdout
    assert again.score_bytes() == whole


def test_training_that_is_stopped_goes_on_to_the_same_weights(train, on_gpus, tmp_path):
    ahead = {"train.batch_documents": 2, "fsdp.backward_prefetch": 2}
    on_gpus(train("whole", 12) | ahead, 2)
    kept = train("kept", 12) | ahead
    stopped(tmp_path, kept, 2)
    (step,) = steps_in(tmp_path / "kept")
    assert 2 <= step < 12
    on_gpus(kept, 2)
    assert state(step_file(tmp_path / "kept", 12)) == state(step_file(tmp_path / "whole", 12))
