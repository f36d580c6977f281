# SPDX-License-Identifier: Apache-2.0
"""The whole program, built with a sanitizer, does its ordinary work and reports nothing.

Decides which runs reach the threads of a rank and what ranks share; the results themselves are
judged elsewhere.
"""

import signal
from pathlib import Path

import fixtures
import pytest
from faults import Job
from run_foregather import Foregather, Result
from training import deck, steps_in

LENGTHS = [40, 7, 33, 2, 64, 16, 55, 21]
STOPPED = 75
# Ranks, transport, layers gathered ahead; windows that are shared are read in place.
RUNS = [(2, "mpi", 0), (3, "mpi", 1), (2, "shared", 0), (3, "shared", 1)]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A small model and documents for it."""
    folder = tmp_path_factory.mktemp("inputs")
    shape = {"hidden_size": 24, "intermediate_size": 51, "vocab_size": 97, "head_dim": 12}
    fixtures.random_llama(folder / "w.h5", num_hidden_layers=3, **shape)
    fixtures.random_documents(folder / "t.h5", 97, LENGTHS)
    fixtures.random_documents(folder / "long.h5", 97, LENGTHS * 10)
    return folder


@pytest.fixture
def run(tmp_path) -> Foregather:
    """Runs whose decks and results lie in this test's folder."""
    return Foregather(tmp_path)


def silent(result: Result) -> None:
    """No sanitizer had a word."""
    assert "Sanitizer" not in result.stdout + result.stderr and "runtime error" not in result.stderr


@pytest.mark.parametrize("ranks, transport, depth", RUNS)
def test_a_score_runs_without_a_report(ranks, transport, depth, inputs, run):
    silent(
        run(
            {
                "model.weights": inputs / "w.h5",
                "data.tokens": inputs / "t.h5",
                "batch.tokens": 64,
                "comm.transport": transport,
                "fsdp.forward_prefetch": depth,
                "device.threads": 2,
            },
            ranks,
        )
    )


@pytest.mark.parametrize("ranks, transport, depth", RUNS)
def test_training_runs_and_goes_on_without_a_report(ranks, transport, depth, inputs, run, tmp_path):
    asked = deck(inputs / "w.h5", inputs / "t.h5", train__steps=2, train__batch_documents=6)
    asked |= {
        "comm.transport": transport,
        "fsdp.forward_prefetch": depth,
        "fsdp.backward_prefetch": depth,
        "checkpoint.directory": tmp_path / "kept",
        "device.threads": 2,
    }
    silent(run(asked, ranks))
    silent(run(asked | {"train.steps": 3}, ranks))
    assert steps_in(tmp_path / "kept")[-1] == 3


def test_a_signal_stops_a_score_without_a_report(inputs, tmp_path):
    asked = {
        "model.weights": inputs / "w.h5",
        "data.tokens": inputs / "long.h5",
        "batch.tokens": 64,
        "comm.transport": "mpi",
        "comm.link_rate": "0.05 MB/s",
        "output.log": tmp_path / "log.jsonl",
    }
    job = Job(tmp_path, asked, 2)
    try:
        job.scored()
        job.send(1, signal.SIGUSR1)
        job.end(60)
    finally:
        job.clear()
    assert job.process.returncode == STOPPED, job.stderr
    assert "Sanitizer" not in job.stdout + job.stderr
