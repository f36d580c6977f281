# SPDX-License-Identifier: Apache-2.0
"""Training that goes on from a checkpoint: where, with what, what may change, what is refused.

Decides runs that ended between steps; those that were killed are test_training_death.py's.
"""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import fixtures
import h5py
import numpy as np
import pytest
from faults import Job, until
from run_foregather import ROOT, Foregather, Result
from safetensors.numpy import load_file
from said import refusal
from training import deck, notes, state, step_file, steps_in, taken, tensors

STEPS, EVERY = 6, 3


def test_g6_a9_moments_are_loaded_or_not_as_the_deck_says(bigram, run, tmp_path):
    tokens = fixtures.write_tokens(tmp_path / "t.h5", [[0, 1], [0, 0]])
    asked = deck(bigram / "w.h5", tokens, train__batch_documents=1, checkpoint__every=1)
    run(asked | {"train.steps": 2, "checkpoint.directory": tmp_path / "unbroken"})
    heads, told = {}, {}
    for load in (True, False):
        kept = tmp_path / f"loaded-{load}"
        kept.mkdir()
        shutil.copy(step_file(tmp_path / "unbroken", 1), kept)
        more = {"train.steps": 2, "checkpoint.load_optimizer": load, "checkpoint.directory": kept}
        result = run(asked | more)
        told[load] = result.key("checkpoint.load_optimizer")["observed"]
        heads[load] = tensors(step_file(kept, 2))["lm_head.weight"]
    unbroken, loaded = (state(step_file(tmp_path / n, 2)) for n in ("unbroken", "loaded-True"))
    assert loaded == unbroken
    apart = np.abs(heads[True] - heads[False])
    assert apart[1, 0] > 0.005 and apart[0, 0] > 0.003
    assert "weights and both moments" in told[True]
    assert "weights alone, the optimizer starts anew" in told[False]


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> dict:
    """A run of six steps of one document each in a shuffled order, with all that can be kept."""
    folder = tmp_path_factory.mktemp("inputs")
    weights = fixtures.random_llama(folder / "w.h5", vocab_size=50, hidden_size=12, head_dim=6)
    tokens = fixtures.random_documents(folder / "t.h5", 50, [9, 30, 2, 17, 5, 21])
    return deck(weights, tokens) | {
        "train.steps": STEPS,
        "train.shuffle": True,
        "train.schedule": "cosine",
        "train.warmup_steps": 2,
        "train.batch_documents": 1,
        "train.evaluate": fixtures.random_documents(folder / "e.h5", 50, [12, 5], seed=3),
        "train.evaluate_every": 2,
        "checkpoint.every": EVERY,
    }


@pytest.fixture(scope="module")
def unbroken(asked, tmp_path_factory) -> Result:
    """The run of two ranks that nobody stops; its checkpoints lie in kept/ beside its results."""
    folder = tmp_path_factory.mktemp("unbroken")
    own = {"checkpoint.directory": folder / "kept", "output.log": folder / "log.jsonl"}
    return Foregather(folder)(asked | own, ranks=2)


@pytest.fixture
def halfway(unbroken, tmp_path) -> dict:
    """Keys of a run of which the first three steps are done; what it left is in this folder."""
    kept = tmp_path / "kept"
    kept.mkdir()
    shutil.copy(step_file(unbroken.path.parent / "kept", EVERY), kept)
    shutil.copy(unbroken.path, tmp_path / "results.h5")
    shutil.copy(unbroken.path.parent / "log.jsonl", tmp_path)
    return {
        "checkpoint.directory": kept,
        "output.file": tmp_path / "results.h5",
        "output.log": tmp_path / "log.jsonl",
        "output.existing": "replace",
    }


def last_of(result: Result) -> dict[str, bytes]:
    """Weights and moments that the unbroken run ended with."""
    return state(step_file(result.path.parent / "kept", STEPS))


def test_g3_resumed_run_takes_the_documents_that_are_left_to_the_same_end(
    asked, halfway, unbroken, run, tmp_path
):
    result = run(asked | halfway, ranks=2)
    assert state(step_file(tmp_path / "kept", STEPS)) == last_of(unbroken)
    assert taken(result) == taken(unbroken) and sorted(sum(taken(result), [])) == list(range(6))
    for name in ("step", "loss", "gradient_norm", "learning_rate", "tokens"):
        again, whole = (r.read(f"/train/{name}") for r in (result, unbroken))
        assert np.array_equal(again, whole), name
    for name in ("step", "loss"):
        assert np.array_equal(*(r.read(f"/evaluation/{name}") for r in (result, unbroken)))
    assert result.table("/timing/ranks")["steps"].tolist() == [STEPS - EVERY] * 2
    runs = result.table("/provenance/runs")
    assert runs["ranks"].tolist() == [2, 2]
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in log if line["event"] == "step"]
    assert steps == [1, 2, 3, 4, 5, 6, 4, 5, 6]


def test_deck_that_started_a_run_resumes_it_without_warnings(asked, halfway, unbroken, run):
    first, again = notes(unbroken), notes(run(asked | halfway, ranks=2))
    assert first.pop(0).startswith("no complete checkpoint in ")
    assert again.pop(0).startswith("training goes on from ")
    assert again == first


def test_finished_run_that_is_submitted_again_has_nothing_left_to_do(
    asked, halfway, unbroken, run, tmp_path
):
    shutil.copy(step_file(unbroken.path.parent / "kept", STEPS), tmp_path / "kept")
    before = [path.read_bytes() for path in sorted(tmp_path.glob("*.*"))]
    result = run(asked | halfway | {"output.existing": "refuse"}, ranks=2)
    assert f"nothing is left to do: {tmp_path / 'kept'}" in result.stdout
    assert result.stderr == ""
    result.deck.unlink()
    assert [path.read_bytes() for path in sorted(tmp_path.glob("*.*"))] == before
    assert steps_in(tmp_path / "kept") == [EVERY, STEPS]


def test_changed_keys_are_refused_by_name_with_both_values(asked, halfway, run, tmp_path):
    other = fixtures.random_documents(tmp_path / "other.h5", 50, [9, 30, 2, 17, 5, 21], seed=2)
    changes = {
        "train.learning_rate": 0.02,
        "train.beta1": 0.8,
        "train.seed": 7,
        "train.steps": 8,
        "data.tokens": other,
    }
    before = (tmp_path / "results.h5").read_bytes()
    result = run(asked | halfway | changes, ranks=2, expect=2)
    for key, words in {
        "train.learning_rate": "train.learning_rate was 0.01, is 0.02",
        "train.beta1": "train.beta1 was 0.9, is 0.8",
        "train.seed": "train.seed was 0, is 7",
        "train.steps": "train.steps that train.schedule is laid out over was 6, is 8",
        "data.tokens": "tokens was sha256 ",
    }.items():
        assert result.stderr.count(words) == 1, key
    assert (tmp_path / "results.h5").read_bytes() == before and result.stdout == ""
    assert steps_in(tmp_path / "kept") == [EVERY] and not result.part_left()


def test_what_changes_no_number_may_change_and_is_told(asked, halfway, unbroken, run, tmp_path):
    changes = {"train.recompute": "none", "fsdp.backward_prefetch": 0, "checkpoint.keep": 1}
    result = run(asked | halfway | changes, ranks=2)
    assert any("train.recompute was layer, is none" in note for note in notes(result))
    assert any("fsdp.backward_prefetch was 1, is 0" in note for note in notes(result))
    assert steps_in(tmp_path / "kept") == [STEPS]
    assert state(step_file(tmp_path / "kept", STEPS)) == last_of(unbroken)


def test_run_goes_on_from_the_checkpoint_that_is_named(asked, halfway, unbroken, run, tmp_path):
    named = step_file(tmp_path / "kept", EVERY)
    elsewhere = {"checkpoint.directory": tmp_path / "elsewhere", "checkpoint.resume": named}
    result = run(asked | halfway | elsewhere, ranks=2)
    assert f"note: training goes on from {named}" in result.stdout
    assert steps_in(tmp_path / "elsewhere") == [STEPS]
    assert state(step_file(tmp_path / "elsewhere", STEPS)) == last_of(unbroken)


def test_checkpoints_of_another_run_are_never_written_over(asked, halfway, run, tmp_path):
    newer = asked | halfway | {"checkpoint.resume": "none"}
    said = refusal_beside_results(run(newer, ranks=2, expect=2))
    assert "checkpoint.resume = none" in said and str(step_file(tmp_path / "kept", EVERY)) in said
    shutil.move(tmp_path / "kept", tmp_path / "older")
    anew = run(newer | {"train.steps": 1, "checkpoint.every": 1}, ranks=2)
    assert steps_in(tmp_path / "kept") == [1] and len(anew.read("/train/step")) == 1
    named = {"checkpoint.resume": step_file(tmp_path / "older", EVERY)}
    said = refusal_beside_results(run(asked | halfway | named, ranks=2, expect=2))
    assert "would take their place" in said
    assert steps_in(tmp_path / "kept") == [1]


def refusal_beside_results(result: Result) -> str:
    """The message of a refusal that touches nothing; older results lie there."""
    before = result.path.read_bytes()
    result.path.rename(f"{result.path}.aside")
    said = refusal(result, lines_said=None)
    Path(f"{result.path}.aside").rename(result.path)
    assert result.path.read_bytes() == before
    return said


def test_results_that_are_there_are_refused_or_replaced(asked, halfway, run, tmp_path):
    shutil.rmtree(tmp_path / "kept")
    older = (tmp_path / "results.h5").read_bytes()
    for existing in ("refuse", "resume"):
        result = run(asked | halfway | {"output.existing": existing}, ranks=2, expect=2)
        assert "results.h5" in result.stderr and "replace" in result.stderr
        assert (tmp_path / "results.h5").read_bytes() == older
        assert not (tmp_path / "kept").exists() and not result.part_left()
    result = run(asked | halfway | {"train.steps": 1}, ranks=2)
    assert result.read("/train/step").tolist() == [1]
    assert "a file was there and is replaced" in result.key("output.existing")["observed"]
    assert result.table("/provenance/runs")["ranks"].tolist() == [2]


def test_t19_broken_checkpoint_that_is_named_is_refused_with_the_reason(
    asked, halfway, run, tmp_path
):
    path = step_file(tmp_path / "kept", EVERY)
    whole = path.read_bytes()
    for content, reason in (
        (whole[: len(whole) // 2], ""),
        (b"", ""),
        (whole, "complete"),
    ):
        path.write_bytes(content)
        if reason:
            with h5py.File(path, "a") as file:
                file.attrs["complete"] = np.int64(0)
        result = run(asked | halfway | {"checkpoint.resume": path}, ranks=2, expect=2)
        assert f"checkpoint.resume = {path} cannot be resumed: " in result.stderr
        assert reason in result.stderr and result.stdout == ""


def test_folder_that_cannot_be_written_is_refused_before_work(asked, run, tmp_path):
    (tmp_path / "file").write_text("no folder")
    for place in (tmp_path / "file", tmp_path / "file" / "kept", tmp_path / "no" / "such"):
        result = run(asked | {"checkpoint.directory": place}, ranks=2, expect=2)
        assert str(place) in refusal(result, lines_said=None)


def test_folder_that_another_run_writes_is_refused_before_work_until_it_ends(asked, run, tmp_path):
    kept, log = tmp_path / "kept", tmp_path / "log.jsonl"
    there = tmp_path / "first"
    there.mkdir()
    own = asked | {"checkpoint.directory": kept, "train.steps": 100000}
    own |= {"checkpoint.every": 2, "checkpoint.keep": 2}
    job = Job(there, own | {"output.log": log}, 2)
    try:
        job.stepped(log, 3)
        result = run(own, ranks=2, expect=2)
        assert "another run is writing checkpoints" in refusal(result, str(kept), lines_said=None)
        for rank in (0, 1):
            job.send(rank, signal.SIGKILL)
        job.end(15)
    finally:
        job.clear()
    # Nothing is left of the hold of a run that was killed.
    result = run(own | {"job.max_time": "2 s"}, ranks=2, expect=75)
    assert "training goes on from" in result.stdout


def test_checkpoint_is_a_model_that_other_libraries_load(unbroken, tmp_path):
    path = step_file(unbroken.path.parent / "kept", STEPS)
    tool = [sys.executable, ROOT / "tools" / "export_model", path, tmp_path / "model"]
    subprocess.run(tool, check=True, capture_output=True, timeout=60)
    found = load_file(tmp_path / "model" / "model.safetensors")
    wanted = tensors(path)
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert np.array_equal(found[name], tensor), name
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["vocab_size"] == 50 and config["hidden_size"] == 12


def test_starts_before_a_kill_are_known_after_it_however_rarely_results_are_flushed(
    inputs_of_a_long_run, run, tmp_path
):
    kept = tmp_path / "kept"
    asked = inputs_of_a_long_run | {"output.flush_every": 3600, "output.timeline": False}
    asked |= {"checkpoint.directory": kept, "checkpoint.every": 300, "checkpoint.keep": 2}
    asked |= {"train.steps": 50_000}
    job = Job(tmp_path, asked, 1)
    try:
        job.all_there()
        until(lambda: any(kept.glob("step-*.h5")), 30, "a checkpoint")
        job.send(0, signal.SIGKILL)
        job.end(15)
    finally:
        job.clear()
    newest = max(int(path.stem[5:]) for path in kept.glob("step-*.h5"))
    more = {"train.steps": newest + 1, "output.file": job.path}
    result = run(asked | more)
    assert result.table("/provenance/runs")["steps_before"].tolist() == [0, newest]


def test_a_run_of_many_segments_takes_the_steps_of_any_other_cut(inputs_of_a_long_run, run):
    asked = inputs_of_a_long_run | {"train.steps": 1030, "output.timeline": False}
    one = run(asked, ranks=2)
    other = run(asked | {"train.evaluate": asked["data.tokens"], "train.evaluate_every": 500}, 2)
    assert one.read("/train/step").tolist() == list(range(1, 1031))
    assert (one.read("/train/loss") == other.read("/train/loss")).all()


@pytest.fixture
def inputs_of_a_long_run(tmp_path) -> dict:
    tokens = fixtures.write_tokens(tmp_path / "few.h5", [[0, 1], [1, 2, 3]])
    weights = fixtures.bigram(tmp_path / "long.h5")
    return deck(weights, tokens, train__learning_rate=1e-4, train__batch_documents=2)
