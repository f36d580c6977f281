# SPDX-License-Identifier: Apache-2.0
"""What a training step is: its loss, its norm, its batch, whoever computes it and in which type.

Decides numbers that can be worked out by hand, and which runs must agree; interrupted runs are
test_training_restart.py's.
"""

import json
import math

import fixtures
import numpy as np
import pytest
from run_foregather import Foregather
from training import deck, state, step_file, steps_in, taken, tensors

LN2 = math.log(2)
STILL = 1e-12  # A learning rate that leaves weights where they are.
SPREADS = [
    pytest.param(1, {}, id="1"),
    pytest.param(1, {"batch.tokens": 4, "train.accumulate": 2}, id="1-accumulated"),
    pytest.param(2, {"comm.transport": "mpi"}, id="2"),
    pytest.param(3, {}, id="3-one-idle"),
    pytest.param(4, {"mesh.shard": 2}, id="2-x-2"),
    pytest.param(8, {}, id="8"),
]
# Norms of the gradient of A and B together, by which tensors they come from.
PARTS = {"lm_head": 0.625, "model.norm": 0.203197, "model.embed": 0.000390, "model.layers": 0}
NORM, LIMIT = 0.657202, 0.1


@pytest.mark.parametrize("ranks, changes", SPREADS)
def test_t01_t03_loss_norm_and_clipping_are_those_of_all_targets(
    ranks, changes, bigram, run, tmp_path
):
    log = tmp_path / "log.jsonl"
    asked = {"train.gradient_clip_norm": LIMIT, "output.log": log}
    asked |= {"checkpoint.directory": tmp_path / "kept"}
    result = run(deck(bigram / "w.h5", bigram / "ab.h5") | asked | changes, ranks)
    (loss,), (norm,) = result.read("/train/loss"), result.read("/train/gradient_norm")
    assert result.read("/train/tokens").tolist() == [4]
    assert loss == pytest.approx(1.5 * LN2, rel=1e-6)
    assert norm == pytest.approx(NORM, rel=1e-5)
    (step,) = [o for o in map(json.loads, log.read_text().splitlines()) if o["event"] == "step"]
    assert (step["loss"], step["gradient_norm"]) == (loss, norm)
    assert f"loss {loss:.4f}  norm {norm:.3g}" in result.stdout
    moments = tensors(step_file(tmp_path / "kept", 1), "optimizer/first_moment")
    factor = LIMIT / (norm + 1e-6)  # 0.152160
    for part, wanted in PARTS.items():
        squares = [(m.astype(float) ** 2).sum() for n, m in moments.items() if n.startswith(part)]
        assert math.sqrt(sum(squares)) / (0.1 * factor) == pytest.approx(wanted, abs=1e-6), part
    assert result.key("train.gradient_clip_norm")["observed"] == "1 of 1 steps were scaled down"


@pytest.mark.parametrize("ranks", (1, 2, 3))
def test_i5_last_incomplete_batch_is_trained_on(ranks, run, tmp_path):
    fixtures.bigram(tmp_path / "w.h5")
    five = fixtures.write_tokens(tmp_path / "five.h5", [fixtures.A] * 4 + [fixtures.B])
    asked = {"train.batch_documents": 2, "train.steps": 4, "train.learning_rate": STILL}
    result = run(deck(tmp_path / "w.h5", five) | asked | {"train.evaluate": five}, ranks)
    assert taken(result) == [[0, 1], [2, 3], [4], [0, 1]]
    tokens, loss = result.read("/train/tokens"), result.read("/train/loss")
    assert tokens.tolist() == [6, 6, 1, 6]
    assert (tokens * loss)[:3].sum() == pytest.approx(15 * LN2, rel=1e-6)
    assert result.read("/evaluation/tokens").tolist() == [13]
    (held_out,) = result.read("/evaluation/loss")
    assert math.exp(held_out) == pytest.approx(2 ** (15 / 13), rel=1e-6)


@pytest.fixture(scope="module")
def odd(tmp_path_factory) -> dict:
    """A model whose sizes nothing divides, and documents for three steps of four."""
    folder = tmp_path_factory.mktemp("odd")
    shape = {"hidden_size": 12, "intermediate_size": 51, "vocab_size": 97, "head_dim": 6}
    weights = fixtures.random_llama(folder / "w.h5", **shape)
    tokens = fixtures.random_documents(folder / "t.h5", 97, [9, 30, 2, 17, 5, 21, 13, 8, 1, 12, 40])
    return deck(weights, tokens, train__steps=4, train__batch_documents=4)


@pytest.fixture(scope="module")
def losses(odd, tmp_path_factory):
    """losses(ranks, changes): those of the four steps; equal calls share one run."""
    runner = Foregather(tmp_path_factory.mktemp("runs"))
    known: dict[str, np.ndarray] = {}

    def call(ranks: int, changes: dict | None = None) -> np.ndarray:
        name = repr((ranks, changes))
        if name not in known:
            known[name] = runner(odd | (changes or {}), ranks).read("/train/loss")
        return known[name]

    return call


@pytest.mark.parametrize("ranks", (2, 3, 5, 7))
def test_c4_sizes_that_nothing_divides_are_trained_and_saved_unpadded(
    ranks, losses, odd, run, tmp_path
):
    kept = tmp_path / "kept"
    result = run(odd | {"checkpoint.directory": kept}, ranks)
    assert np.allclose(result.read("/train/loss"), losses(1), rtol=1e-6, atol=0)
    wanted = {name: tensor.shape for name, tensor in tensors(odd["model.weights"]).items()}
    for group in ("weights", "optimizer/first_moment", "optimizer/second_moment"):
        found = tensors(step_file(kept, 4), group)
        assert {name: tensor.shape for name, tensor in found.items()} == wanted
        assert all(np.isfinite(tensor).all() for tensor in found.values())


@pytest.mark.parametrize("shard", (1, 2, 4))
def test_replicas_take_the_steps_of_one_rank(shard, losses):
    assert np.allclose(losses(4, {"mesh.shard": shard}), losses(1), rtol=1e-6, atol=0)


def test_accumulated_packs_are_one_batch(odd, run, tmp_path):
    alike = fixtures.random_documents(tmp_path / "alike.h5", 97, [16] * 12)
    asked = odd | {"data.tokens": alike, "batch.tokens": 16, "train.batch_documents": 0}
    accumulated = run(asked | {"train.accumulate": 4})
    assert taken(accumulated)[1] == [4, 5, 6, 7]
    assert accumulated.table("/timing/ranks")["passes"].tolist() == [16]
    spread = run(asked | {"train.accumulate": 2}, ranks=2)
    counted = run(odd | {"data.tokens": alike}, ranks=2)
    assert taken(accumulated) == taken(spread) == taken(counted)
    for other in (spread, counted):
        wanted = accumulated.read("/train/loss")
        assert np.allclose(other.read("/train/loss"), wanted, rtol=1e-6, atol=0)


def test_bf16_weights_have_fp32_masters_and_nearly_the_same_losses(odd, losses, run, tmp_path):
    small = {"train.learning_rate": 1e-5, "fsdp.param_dtype": "bf16"}
    result = run(odd | small | {"checkpoint.directory": tmp_path}, ranks=2)
    before, after = tensors(odd["model.weights"]), tensors(step_file(tmp_path, 4))
    for name, tensor in after.items():
        assert tensor.dtype == np.float32
        moved = np.abs(tensor - before[name]).max()  # Less than bf16 could tell of most.
        assert 3e-6 < moved < 1e-4, name
    assert (before["lm_head.weight"].view(np.uint32) & 0xFFFF).any()
    exact = losses(2, {"train.learning_rate": 1e-5})
    difference = np.abs(result.read("/train/loss") - exact)
    assert 1e-6 < difference.max() <= 0.02
    assert "multiplied as bf16" in result.key("fsdp.param_dtype")["observed"]


def test_gradients_that_travel_as_bf16_are_rounded_and_near(odd, run):
    asked = odd | {"comm.transport": "mpi"}
    exact, rounded = (run(asked | {"fsdp.reduce_dtype": t}, ranks=2) for t in ("fp32", "bf16"))
    norms = [r.read("/train/gradient_norm") for r in (exact, rounded)]
    assert norms[0][0] != norms[1][0] and np.allclose(*norms, rtol=0.01)
    assert exact.read("/train/loss")[0] == rounded.read("/train/loss")[0]
    sent = [r.table("/timing/ranks")["bytes_reduced"][0] for r in (exact, rounded)]
    assert sent[0] == 2 * sent[1]


def test_shuffled_order_is_the_seeds_alone_and_takes_each_document_once(odd, run):
    asked = odd | {"train.shuffle": True, "train.steps": 6}  # Two epochs.
    orders = [
        taken(run(asked | {"train.seed": seed}, ranks)) for seed, ranks in [(1, 1), (1, 3), (2, 2)]
    ]
    assert orders[0] == orders[1] != orders[2]
    for order in orders:
        epochs = [sum(order[:3], []), sum(order[3:], [])]
        assert [len(step) for step in order] == [4, 4, 2] * 2
        for epoch in epochs:
            assert sorted(epoch) == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10]  # 8 has no target.
        assert epochs[0] != epochs[1] and sorted(epochs[0]) not in epochs


def test_evaluation_is_what_score_says_of_the_checkpoint(odd, run, tmp_path):
    held_out = fixtures.random_documents(tmp_path / "held-out.h5", 97, [30, 1, 7, 16, 25], seed=9)
    asked = {"train.evaluate": held_out, "train.evaluate_every": 2, "train.steps": 5}
    kept = {"checkpoint.directory": tmp_path / "kept", "checkpoint.every": 2}
    result = run(odd | asked | kept | {"train.learning_rate": 0.003, "batch.tokens": 40}, ranks=3)
    assert result.read("/evaluation/step").tolist() == [2, 4, 5]
    assert result.read("/evaluation/tokens").tolist() == [74] * 3
    for step, loss in zip((2, 4, 5), result.read("/evaluation/loss")):
        weights = step_file(tmp_path / "kept", step)
        scored = run({"model.weights": weights, "data.tokens": held_out}, ranks=1)
        assert scored.attribute("scored_tokens") == 74
        assert scored.attribute("loss") == pytest.approx(loss, rel=1e-6)
    told = [line for line in result.stdout.splitlines() if line.startswith("evaluation after")]
    assert len(told) == 3 and told[0].startswith("evaluation after step 2/5")


@pytest.fixture
def sick(tmp_path):
    """sick(row): F-BG with a NaN in a row of its embedding, for documents that hold that token."""

    def make(row: int):
        config = fixtures.llama_config()
        arrays = fixtures.bigram_arrays(config)
        arrays["model.embed_tokens.weight"][row, 1] = np.nan
        return fixtures.write_model(tmp_path / "sick.h5", config, arrays)

    return make


GOOD, BAD = [0, 1], [3, 0]


@pytest.mark.parametrize("ranks", (1, 3))
def test_steps_that_are_not_finite_are_not_applied_and_told_and_end_the_job(
    ranks, sick, run, tmp_path
):
    documents = [GOOD, BAD, [1, 2], BAD, BAD, BAD, GOOD]
    tokens = fixtures.write_tokens(tmp_path / "t.h5", documents)
    asked = {"train.steps": 7, "train.batch_documents": 1, "train.max_bad_steps": 3}
    kept = tmp_path / "kept"
    asked |= {"checkpoint.directory": kept, "checkpoint.every": 1, "checkpoint.keep": 2}
    result = run(deck(sick(3), tokens) | asked, ranks, expect=1)
    assert result.stdout.count("is not applied: its loss or gradient norm is not finite") == 4
    assert result.stderr.count("training is given up at step 6") == 1
    assert result.attribute("complete", "/") == 1
    assert result.read("/train/step").tolist() == [1, 2, 3, 4, 5, 6, -1]
    finite = np.isfinite(result.read("/train/loss"))
    assert finite.tolist() == [True, False, True, False, False, False, False]
    assert "4 steps were not applied" in result.key("train.max_bad_steps")["observed"]
    assert steps_in(kept) == [1, 3]  # What was saved last stays, whatever checkpoint.keep says.
    clean = fixtures.write_tokens(tmp_path / "clean.h5", [GOOD, [1, 2]])
    asked |= {"checkpoint.directory": tmp_path / "clean", "train.steps": 2}
    run(deck(tmp_path / "sick.h5", clean) | asked, ranks)
    assert state(step_file(kept, 3)) == state(step_file(tmp_path / "clean", 2))


def test_weights_that_explode_end_the_job_and_leave_the_checkpoint_before(odd, run, tmp_path):
    asked = {"train.learning_rate": 1e3, "train.schedule": "linear", "train.warmup_steps": 0}
    asked |= {"train.weight_decay": 100, "train.steps": 60, "checkpoint.every": 1}
    result = run(odd | asked | {"checkpoint.directory": tmp_path / "kept"}, ranks=2, expect=1)
    given_up = int(result.stderr.split("given up at step ")[1].split(":")[0])
    assert steps_in(tmp_path / "kept") == list(range(1, given_up - 2))
    assert np.isnan(result.read("/train/loss")[given_up - 3 : given_up]).all()


@pytest.mark.parametrize("documents, applied", [([BAD, BAD], 0), ([GOOD, BAD], 1)])
def test_a_run_whose_last_steps_were_not_applied_ends_with_1(
    documents, applied, sick, run, tmp_path
):
    tokens = fixtures.write_tokens(tmp_path / "t.h5", documents)
    asked = {"train.steps": 2, "train.batch_documents": 1, "checkpoint.directory": tmp_path / "kept"}
    result = run(deck(sick(3), tokens) | asked, expect=1)
    told = f"the run ends with {2 - applied} steps that were not applied"
    assert result.stderr.count(told) == 1
    assert result.attribute("complete", "/") == 1
    # Weights that no step has changed are no checkpoint of training.
    assert steps_in(tmp_path / "kept") == ([2] if applied else [])


def test_a_config_of_absurdly_many_layers_is_refused_at_once(run, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(fixtures.llama_config(num_hidden_layers=100_000_000)))
    tokens = fixtures.write_tokens(tmp_path / "t.h5", [GOOD])
    asked = deck("", tokens) | {"model.config": config}
    del asked["model.weights"]
    result = run(asked, expect=2, timeout=20)
    assert "model.config" in result.stderr and "100000000 layers" in result.stderr


def test_ranks_without_documents_and_a_warm_up_that_never_ends_are_told(run, tmp_path):
    tokens = fixtures.write_tokens(tmp_path / "t.h5", [GOOD, [1, 2]])
    asked = {"train.batch_documents": 1, "train.steps": 2, "train.warmup_steps": 5}
    result = run(deck(fixtures.bigram(tmp_path / "b.h5"), tokens) | asked, ranks=3)
    assert "2 of 3 ranks had no documents in any step" in result.stdout
    assert "train.warmup_steps = 5 is not less than train.steps = 2" in result.stdout
