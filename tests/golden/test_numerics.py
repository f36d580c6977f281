# SPDX-License-Identifier: Apache-2.0
"""Answers worked out by hand, or by a plain forward pass in float64, at many rank counts.

Decides the expected numbers; models and documents are those of tests/support/fixtures.py, the plain
forward pass is tests/support/reference.py.
"""

import math
from pathlib import Path

import fixtures
import h5py
import numpy as np
import pytest
import reference
from fixtures import A, B, W
from run_foregather import Result

NEAR = 5e-5  # |difference| to the float64 reference, nat.
LN2 = math.log(2)


def scored(result: Result) -> np.ndarray:
    """The log-probabilities that are there."""
    logprob = result.read("/score/logprob")
    return logprob[~np.isnan(logprob)]


def totals(result: Result) -> tuple[int, float]:
    """Number of scored tokens and perplexity."""
    return result.attribute("scored_tokens"), result.attribute("perplexity")


@pytest.fixture
def bigram(tmp_path):
    """bigram(documents) is a deck of F-BG and these documents."""

    def deck(documents: list[list[int]], **changes) -> dict:
        return {
            "model.weights": fixtures.bigram(tmp_path / "bigram.h5", **changes),
            "data.tokens": fixtures.write_tokens(tmp_path / "documents.h5", documents),
        }

    return deck


@pytest.mark.parametrize(
    "document, costs",
    [(A, [1, 1, 1]), (B, [3]), (W, [1, 1, 1, 3, 1, 1, 1, 3, 1])],
    ids=["A", "B", "W"],
)
def test_bigram_costs_are_powers_of_two(document, costs, bigram, run):
    result = run(bigram([document]))
    assert np.abs(scored(result) + LN2 * np.array(costs)).max() <= 1e-6
    count, perplexity = totals(result)
    assert count == len(costs)
    assert math.isclose(perplexity, 2 ** (sum(costs) / len(costs)), rel_tol=1e-6)


@pytest.mark.parametrize(
    "ranks, settings",
    [
        pytest.param(1, {}, id="1-rank"),
        pytest.param(2, {"batch.tokens": 4}, id="one-document-a-rank"),
        pytest.param(1, {"batch.tokens": 1}, id="batch-1"),
        pytest.param(3, {"batch.tokens": 4, "comm.transport": "mpi"}, id="one-rank-idle"),
    ],
)
def test_t01_c6_loss_is_a_mean_over_all_tokens(ranks, settings, bigram, run):
    result = run(bigram([A, B]) | settings, ranks)
    count, perplexity = totals(result)
    assert count == 4
    assert math.isclose(result.read("/score/document_nll").sum(), 4.1588831, rel_tol=1e-6)
    assert math.isclose(result.attribute("loss"), 1.0397208, rel_tol=1e-6)
    assert math.isclose(perplexity, 2.8284271, rel_tol=1e-6)
    packs = result.table("/timing/ranks")["packs"].tolist()
    assert packs == {1: [len(settings) + 1], 2: [1, 1], 3: [1, 1, 0]}[ranks]


@pytest.mark.parametrize("ranks", (1, 2, 3))
def test_i5_last_batch_is_neither_dropped_nor_padded(ranks, bigram, run):
    result = run(bigram([A, A, A, A, B]) | {"batch.tokens": 8}, ranks)
    count, perplexity = totals(result)
    assert count == 13
    assert math.isclose(result.read("/score/document_nll").sum(), 15 * LN2, rel_tol=1e-6)
    assert abs(perplexity - 2 ** (15 / 13)) <= 2e-6
    assert result.read("/score/document_scored_tokens").tolist() == [3, 3, 3, 3, 1]


@pytest.mark.parametrize(
    "ranks, dtype, transport",
    [
        (1, "float32", "auto"),
        (2, "float32", "mpi"),
        (3, "bfloat16", "mpi"),
        (4, "float32", "shared"),
        (4, "bfloat16", "shared"),
        (8, "float32", "mpi"),
        (8, "bfloat16", "auto"),
    ],
)
def test_t17_c11_padded_rows_are_nobodys_tokens(ranks, dtype, transport, run, tmp_path):
    deck = {
        "model.weights": fixtures.uniform(tmp_path / "uniform.h5", 97, dtype),
        "data.tokens": fixtures.write_tokens(tmp_path / "documents.h5", [list(range(97))]),
        "comm.transport": transport,
    }
    for piece in ("0", "64"):  # One piece, and rows of 16 bytes cut into pieces of four.
        result = run(deck | {"fsdp.piece_bytes": piece}, ranks)
        assert result.read("/score/logprob").dtype == np.float32
        assert np.abs(scored(result) + 4.5747110).max() <= 1e-5
        count, perplexity = totals(result)
        assert count == 96 and abs(perplexity - 97) <= 1e-3


@pytest.mark.parametrize("eps, wanted", [(1e-5, -1.2550639), (1e-6, -1.0329637)])
def test_t14_d8_norm_epsilon_comes_from_the_config(eps, wanted, run, tmp_path):
    deck = {
        "model.weights": fixtures.epsilon(tmp_path / "epsilon.h5", eps),
        "data.tokens": fixtures.write_tokens(tmp_path / "documents.h5", [[0, 1]]),
    }
    assert abs(scored(run(deck))[0] - wanted) <= 1e-5


@pytest.mark.parametrize("case, wanted", [("i", -0.4064344), ("ii", -1.3862944)])
def test_d4_t12_heads_share_kv_heads_in_blocks_of_their_own_head_dim(case, wanted, run, tmp_path):
    deck = {
        "model.weights": fixtures.head_dim(tmp_path / "head-dim.h5", case),
        "data.tokens": fixtures.write_tokens(tmp_path / "documents.h5", [[0, 2]]),
    }
    assert abs(scored(run(deck))[0] - wanted) <= 1e-6


ODD = {
    "hidden_size": 24,
    "intermediate_size": 51,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "vocab_size": 97,
}


def against_reference(result: Result, weights: Path, tokens: Path) -> float:
    """The largest difference to the float64 forward pass; NaN must be in the same places."""
    config, arrays = reference.read_weights(weights)
    documents = [ids for ids in reference.read_documents(tokens) if len(ids)]
    wanted = np.concatenate([reference.forward(config, arrays, ids).logprob for ids in documents])
    logprob = result.read("/score/logprob")
    assert np.array_equal(np.isnan(logprob), np.isnan(wanted))
    return float(np.nanmax(np.abs(logprob - wanted)))


def test_c4_sizes_that_no_rank_count_divides(run, tmp_path):
    weights = fixtures.random_llama(tmp_path / "odd.h5", **ODD)
    tokens = fixtures.random_documents(tmp_path / "tokens.h5", 97, [40, 7, 1, 23, 64, 2])
    deck = {"model.weights": weights, "data.tokens": tokens, "batch.tokens": 48}
    alone = run(deck)
    assert against_reference(alone, weights, tokens) <= NEAR
    for ranks, transport in ((2, "mpi"), (3, "shared"), (5, "mpi"), (7, "mpi")):
        result = run(deck | {"comm.transport": transport}, ranks)
        difference = scored(result) - scored(alone)
        assert np.abs(difference).max() <= 1e-6


BIASES = {"attention_bias": True, "mlp_bias": True}


def heads(query: int, key: int, size: int) -> dict[str, int]:
    """Config keys of so many heads of a size."""
    return {"num_attention_heads": query, "num_key_value_heads": key, "head_dim": size}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"attention_bias": True}, id="attention-bias"),
        pytest.param({"mlp_bias": True}, id="mlp-bias"),
        pytest.param(BIASES | {"tie_word_embeddings": True}, id="both-biases-tied"),
        pytest.param(heads(6, 3, 10), id="wide-heads"),
        pytest.param(heads(4, 4, 6), id="own-kv-heads"),
        pytest.param({"rope_theta": 300.0, "rms_norm_eps": 0.1}, id="theta-and-eps"),
    ],
)
def test_random_models_score_as_the_float64_forward_pass(changes, run, tmp_path):
    weights = fixtures.random_llama(tmp_path / "random.h5", seed=7, **(ODD | changes))
    tokens = fixtures.random_documents(tmp_path / "tokens.h5", 97, [30, 64, 3, 0, 90], seed=3)
    deck = {"model.weights": weights, "data.tokens": tokens, "fsdp.piece_bytes": "2 KiB"}
    assert against_reference(run(deck, ranks=2), weights, tokens) <= NEAR


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def test_d1_llama3_rope_is_right_at_far_positions(run, tmp_path):
    config = ODD | {"rope_scaling": LLAMA3}
    weights = fixtures.random_llama(tmp_path / "scaled.h5", **config)
    plain = fixtures.random_llama(tmp_path / "plain.h5", **ODD)
    tokens = fixtures.random_documents(tmp_path / "tokens.h5", 97, [320])
    result = run({"model.weights": weights, "data.tokens": tokens}, ranks=2)
    last = slice(-40, None)
    found = result.read("/score/logprob")[last]
    (wanted,), (unscaled,) = (reference.score(model, tokens) for model in (weights, plain))
    assert np.abs(found - wanted.logprob[last]).max() <= NEAR
    assert np.abs(found - unscaled.logprob[last]).max() > 100 * NEAR


def test_i6_document_longer_than_the_positions_is_refused(bigram, run):
    deck = bigram([A, W[:9]], max_position_embeddings=8)
    for ranks in (1, 3):
        result = run(deck, ranks, expect=2)
        assert "document 1 has 9 tokens" in result.stderr and "8 positions" in result.stderr
        assert result.stderr.count("8 positions") == 1
        assert not result.path.exists() and not result.part_left()
    assert totals(run(bigram([A, W[:8]], max_position_embeddings=8)))[0] == 10


def test_tokens_before_score_from_are_context_only(run, tmp_path):
    weights = fixtures.random_llama(tmp_path / "random.h5", **ODD)
    lengths, begins = [20, 9, 5, 31], [1, 4, 5, 30]
    generator = np.random.default_rng(5)
    documents = [generator.integers(0, 97, length).tolist() for length in lengths]
    tokens = fixtures.write_tokens(
        tmp_path / "tokens.h5", documents, score_from=np.array(begins, np.int64)
    )
    result = run({"model.weights": weights, "data.tokens": tokens, "batch.tokens": 30}, ranks=2)
    wanted = [one.logprob for one in reference.score(weights, tokens)]
    for logprob, begin in zip(wanted, begins):
        logprob[:begin] = np.nan
    found = result.read("/score/logprob")
    assert np.array_equal(np.isnan(found), np.isnan(np.concatenate(wanted)))
    assert np.nanmax(np.abs(found - np.concatenate(wanted))) <= NEAR
    assert result.read("/score/document_scored_tokens").tolist() == [19, 5, 0, 1]
    assert result.read("/score/document_status").tolist() == [0, 0, 1, 0]
    loss = -np.nansum(np.concatenate(wanted)) / 25
    assert abs(result.attribute("loss") - loss) <= NEAR


@pytest.fixture
def sums(run, tmp_path) -> tuple[Result, np.ndarray]:
    """A run over documents of known size in bytes, of which one has nothing to score; the sizes."""
    size = np.array([50, 17, 3, 200, 9], np.int64)
    path = fixtures.random_documents(tmp_path / "tokens.h5", 97, [20, 6, 1, 60, 4])
    with h5py.File(path, "a") as file:
        file["bytes"] = size
    weights = fixtures.random_llama(tmp_path / "random.h5", **ODD)
    return run({"model.weights": weights, "data.tokens": path, "batch.tokens": 30}, ranks=2), size


def test_sums_follow_from_the_columns(sums):
    result, size = sums
    nll, count = (result.read(f"/score/document_{c}") for c in ("nll", "scored_tokens"))
    status, offsets = result.read("/score/document_status"), result.read("/score/offsets")
    logprob = result.read("/score/logprob").astype(np.float64)
    parts = [logprob[begin:end] for begin, end in zip(offsets[:-1], offsets[1:])]
    assert np.allclose(nll, [-np.nansum(part) for part in parts], rtol=1e-13, atol=0)
    assert count.tolist() == [int((~np.isnan(part)).sum()) for part in parts]
    assert status.tolist() == [0, 0, 1, 0, 0]
    loss = nll.sum() / count.sum()
    assert math.isclose(result.attribute("loss"), loss, rel_tol=1e-14)
    assert math.isclose(result.attribute("perplexity"), math.exp(loss), rel_tol=1e-14)
    used = status == 0
    bits = nll[used].sum() / LN2 / size[used].sum()
    assert math.isclose(result.attribute("bits_per_byte"), bits, rel_tol=1e-14)
    rest = (nll - loss * count)[used]
    error = math.sqrt(used.sum() / (used.sum() - 1) * (rest**2).sum()) / count.sum()
    assert math.isclose(result.attribute("standard_error"), error, rel_tol=1e-12)


@pytest.mark.parametrize("ranks, batch", [(1, 64), (2, 8)])
def test_weight_that_is_not_a_number_marks_only_documents_it_touches(ranks, batch, run, tmp_path):
    config = fixtures.llama_config(**ODD)
    arrays = fixtures.random_arrays(config, 11)
    whole = fixtures.write_model(tmp_path / "whole.h5", config, arrays)
    arrays["model.embed_tokens.weight"][3, 5] = np.nan
    broken = fixtures.write_model(tmp_path / "broken.h5", config, arrays)
    documents = [[1, 2, 4, 5], [7, 3, 8, 9], [10, 3, 11], [12, 13, 14, 15, 16], [17]]
    tokens = fixtures.write_tokens(tmp_path / "tokens.h5", documents)
    deck = {"data.tokens": tokens, "batch.tokens": batch}
    result = run(deck | {"model.weights": broken}, ranks, expect=1)
    clean = run(deck | {"model.weights": whole}, ranks)
    assert result.read("/score/document_status").tolist() == [0, 2, 2, 0, 1]
    assert result.attribute("complete", "/") == 1 and not result.part_left()
    assert "2 documents" in result.stderr and "/score/document_status" in result.stderr
    found, wanted = result.read("/score/logprob"), clean.read("/score/logprob")
    others = np.ones(len(found), bool)
    others[4:11] = False  # Documents 1 and 2 hold token 3.
    assert np.array_equal(found[others], wanted[others], equal_nan=True)
    assert not np.isfinite(found[[6, 7, 10]]).any()  # What follows token 3.
    nll, count = clean.read("/score/document_nll"), clean.read("/score/document_scored_tokens")
    kept = np.array([0, 3])
    assert result.attribute("not_finite_documents") == 2
    assert result.attribute("scored_tokens") == count[kept].sum()
    assert math.isclose(
        result.attribute("loss"), nll[kept].sum() / count[kept].sum(), rel_tol=1e-14
    )
