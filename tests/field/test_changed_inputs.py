# SPDX-License-Identifier: Apache-2.0
"""Inputs that somebody changes while they are read: nothing computed from them counts.

Decides which file is changed, how and when; faults.py makes the change at a read of the program's
own.
"""

import os
from pathlib import Path

import fixtures
import pytest
from faults import Job, library
from said import messages
from training import deck as training_deck
from training import step_file


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A model of more than one read a tensor, documents, and the library of faults."""
    folder = tmp_path_factory.mktemp("inputs")
    size = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 2}
    fixtures.random_llama(folder / "w.h5", vocab_size=512, num_attention_heads=4, **size)
    fixtures.random_documents(folder / "t.h5", 512, [40] * 4)
    fixtures.random_documents(folder / "many.h5", 512, [512] * 400)
    library(folder)
    return folder


@pytest.fixture
def own(inputs, tmp_path) -> Path:
    """A copy of the weights, to be changed."""
    path = tmp_path / "own.h5"
    path.write_bytes((inputs / "w.h5").read_bytes())
    return path


def fault(inputs: Path, name: str, file: str) -> dict[str, str]:
    """The environment of a run in which rank 1 finds that file changed at its first large read."""
    library_path = str(inputs / "faults.so")
    return {"LD_PRELOAD": library_path, "FAULT": name, "FAULT_RANK": "1", "FAULT_FILE": file}


def failure(code: int, stderr: str, path: Path, how: str) -> None:
    """A run that failed with nothing but what became of the file; each rank that finds it may tell,
    as ranks that compute or load for themselves do not wait for each other.
    """
    said = messages(stderr)
    assert code == 1 and 1 <= len(said) <= 2, stderr
    assert all(f"{path} {how}" in message and "start again" in message for message in said), stderr


def failed_run(result, path: Path, how: str) -> None:
    """A run that failed so and left no results."""
    failure(result.code, result.stderr, path, how)
    assert not result.path.exists()


CHANGES = {"shrink-in-load": "became shorter (from ", "rewrite-in-load": "was written to while"}


@pytest.mark.parametrize("transport", ["mpi", "shared"])
@pytest.mark.parametrize("name", CHANGES)
def test_weights_that_are_changed_while_they_load_are_not_scored(
    name, transport, inputs, own, run
):
    deck = {"model.weights": own, "data.tokens": inputs / "t.h5", "comm.transport": transport}
    result = run(deck, 2, env=fault(inputs, name, "own.h5"), expect=None)
    failed_run(result, own, CHANGES[name])


def test_weights_that_are_changed_while_training_or_bench_load_them_end_the_run(
    inputs, own, run, tmp_path
):
    whole = own.read_bytes()
    train = training_deck(own, inputs / "t.h5")
    bench = {"job.name": "bench", "model.weights": own, "data.tokens": inputs / "t.h5"}
    for deck in (train, bench | {"bench.pairs": 3, "bench.tokens": 32}):
        own.write_bytes(whole)
        result = run(deck, 2, env=fault(inputs, "shrink-in-load", "own.h5"), expect=None)
        failed_run(result, own, CHANGES["shrink-in-load"])


@pytest.mark.parametrize("name", CHANGES)
def test_checkpoint_that_is_changed_while_it_is_resumed_ends_the_run(name, inputs, run, tmp_path):
    kept = tmp_path / "kept"
    deck = training_deck(inputs / "w.h5", inputs / "t.h5") | {"checkpoint.directory": kept}
    run(deck)
    more = deck | {"train.steps": 2}
    result = run(more, 2, env=fault(inputs, name, "step-00000001.h5"), expect=None)
    failed_run(result, step_file(kept, 1), CHANGES[name])
    assert list(kept.iterdir()) == [step_file(kept, 1)]


def test_tokens_that_are_changed_while_they_are_scored_end_the_run(inputs, tmp_path):
    tokens = tmp_path / "tokens.h5"
    tokens.write_bytes((inputs / "many.h5").read_bytes())
    deck = {"model.weights": inputs / "w.h5", "data.tokens": tokens, "batch.tokens": 512}
    job = Job(tmp_path, deck, 2)
    try:
        job.scored()
        os.truncate(tokens, tokens.stat().st_size // 2)
        job.end(15)
    finally:
        job.clear()
    failure(job.process.returncode, job.stderr, tokens, CHANGES["shrink-in-load"])
    assert not job.path.exists()


def test_input_that_is_read_or_renamed_meanwhile_is_no_other(inputs, own, run, tmp_path):
    moved = tmp_path / "moved.h5"
    deck = {"model.weights": own, "data.tokens": inputs / "t.h5"}
    result = run(deck, 2, env=fault(inputs, "rename-in-load", "own.h5"))
    assert moved.exists() and not own.exists()
    wanted = run(deck | {"model.weights": inputs / "w.h5"}, 2)
    assert result.score_bytes() == wanted.score_bytes()
