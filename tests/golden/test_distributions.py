# SPDX-License-Identifier: Apache-2.0
"""Documents in windows, temperature and top tokens against a plain forward pass over each window.

Decides the documents and strides; the forward pass is tests/support/reference.py, and who scores a
token is worked out here once more, token by token.
"""

import fixtures
import numpy as np
import pytest
import reference
from run_foregather import Result

NEAR = 5e-5  # |difference| to the float64 reference, nat.
SIZE = {
    "hidden_size": 24,
    "intermediate_size": 51,
    "num_attention_heads": 3,
    "head_dim": 8,
    "vocab_size": 97,
    "max_position_embeddings": 16,
}
LENGTHS = [40, 1, 0, 7, 16, 17, 33]
SCORE_FROM = [1, 1, 1, 3, 1, 1, 20]
ASKED = {"score.entropy": True, "score.top_k": 3, "score.logits": True}


def windows(length: int, window: int, stride: int) -> list[tuple[int, int]]:
    """Where the windows of a document begin and end."""
    found = [(0, min(window, length))]
    while found[-1][1] < length:
        begin = found[-1][0] + stride
        found.append((begin, min(begin + window, length)))
    return found


def owner(token: int, spans: list[tuple[int, int]]) -> int:
    """The window that gives a token the longest context."""
    return max(
        (k for k, (begin, end) in enumerate(spans) if begin <= token < end),
        key=lambda k: token - spans[k][0],
    )


def wanted(weights, documents, score_from, window, stride):
    """logprob [N] and logits [N, V] as the deck's law defines them."""
    config, arrays = reference.read_weights(weights)
    logprob, logits = [], []
    for ids, begin_scoring in zip(documents, score_from):
        spans = windows(len(ids), window, stride)
        scores = [reference.forward(config, arrays, ids[a:b]) for a, b in spans if b > a]
        for t in range(len(ids)):
            k = owner(t, spans)
            scored = t >= max(begin_scoring, 1)
            logprob.append(scores[k].logprob[t - spans[k][0]] if scored else np.nan)
            if t + 1 < len(ids) and t + 1 >= begin_scoring:
                k = owner(t + 1, spans)
            logits.append(scores[k].logits[t - spans[k][0]])
    return np.array(logprob), np.array(logits)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A random model of 16 positions, and documents of all kinds of length."""
    folder = tmp_path_factory.mktemp("windows")
    weights = fixtures.random_llama(folder / "model.h5", **SIZE)
    generator = np.random.default_rng(3)
    documents = [generator.integers(0, 97, n).tolist() for n in LENGTHS]
    tokens = fixtures.write_tokens(
        folder / "tokens.h5", documents, score_from=np.array(SCORE_FROM, np.int64)
    )
    return {"model.weights": weights, "data.tokens": tokens}, documents


def sums_are_right(result: Result) -> None:
    """Sums of documents, also of those in several packs, are those of their tokens in order."""
    logprob, offsets = result.read("/score/logprob"), result.read("/score/offsets")
    for d, nll in enumerate(result.read("/score/document_nll")):
        part = logprob[offsets[d] : offsets[d + 1]].astype(np.float64)
        total = 0.0
        for value in part[~np.isnan(part)]:
            total -= value
        assert nll == total
        assert result.read("/score/document_scored_tokens")[d] == (~np.isnan(part)).sum()
    assert result.read("/score/document_status").tolist() == [0, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("window, stride", [(16, 0), (16, 5), (7, 0), (4, 1), (2, 1)])
def test_windows_score_as_the_float64_forward_pass_over_each(window, stride, inputs, run):
    deck, documents = inputs
    cut = {"data.window": window, "data.stride": stride}
    result = run(deck | cut | ASKED | {"batch.tokens": 2 * window}, ranks=2)
    logprob, logits = wanted(
        deck["model.weights"], documents, SCORE_FROM, window, stride or window - 1
    )
    found = result.read("/score/logprob")
    assert np.array_equal(np.isnan(found), np.isnan(logprob))
    assert np.nanmax(np.abs(found - logprob)) <= NEAR
    assert np.abs(result.read("/score/logits") - logits).max() <= NEAR
    logs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    entropy = -(np.exp(logs) * logs).sum(axis=1)
    assert np.abs(result.read("/score/entropy") - entropy).max() <= NEAR
    assert result.attribute("scored_tokens") == (~np.isnan(logprob)).sum()
    sums_are_right(result)


def test_windows_have_the_same_bytes_on_any_number_of_ranks(inputs, run):
    deck = inputs[0] | ASKED | {"data.window": 7, "batch.tokens": 16, "score.hidden_states": True}
    alone = run(deck)
    for ranks, changes in ((2, {"comm.transport": "mpi"}), (3, {}), (4, {"device.threads": 2})):
        assert run(deck | changes, ranks).score_bytes() == alone.score_bytes()


def test_whole_documents_and_windows_that_cut_none_are_the_same(inputs, run, tmp_path):
    tokens = fixtures.random_documents(tmp_path / "short.h5", 97, [16, 3, 9])
    deck = inputs[0] | {"data.tokens": tokens, "batch.tokens": 20}
    whole, windowed = run(deck), run(deck | {"data.window": 16})
    assert whole.score_bytes() == windowed.score_bytes()
    assert windowed.key("data.window")["observed"].startswith("0 documents cut, 3 windows")


@pytest.mark.parametrize("temperature", (0.25, 0.7, 3.0))
def test_temperature_divides_logits_before_the_softmax(temperature, inputs, run, tmp_path):
    tokens = fixtures.random_documents(tmp_path / "short.h5", 97, [16, 2, 9])
    deck = inputs[0] | ASKED | {"data.tokens": tokens, "score.temperature": temperature}
    result = run(deck | {"fsdp.piece_bytes": "2 KiB"}, ranks=2)
    scores = reference.score(deck["model.weights"], tokens)
    logits = np.concatenate([one.logits for one in scores])
    assert np.abs(result.read("/score/logits") - logits).max() <= NEAR  # Before temperature.
    logs = logits / temperature
    logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
    offsets, ids = result.read("/score/offsets"), np.concatenate(reference.read_documents(tokens))
    near = NEAR / min(temperature, 1.0)
    for begin, end in zip(offsets[:-1], offsets[1:]):
        rows = np.arange(begin, end - 1)
        found = result.read("/score/logprob")[begin + 1 : end]
        assert np.abs(found - logs[rows, ids[begin + 1 : end]]).max() <= near
    entropy = -(np.exp(logs) * logs).sum(axis=1)
    assert np.abs(result.read("/score/entropy") - entropy).max() <= near
    order = np.argsort(-result.read("/score/logits"), axis=1, kind="stable")[:, :3]
    assert np.array_equal(result.read("/score/top_token"), order)
    top = np.take_along_axis(logs, order, axis=1)
    assert np.abs(result.read("/score/top_logprob") - top).max() <= near


def test_top_tokens_reach_from_one_to_the_whole_vocabulary(inputs, run, tmp_path):
    tokens = fixtures.random_documents(tmp_path / "short.h5", 97, [9])
    deck = inputs[0] | {"data.tokens": tokens}
    every = run(deck | {"score.top_k": 97, "score.logits": True}, ranks=2)
    order = np.argsort(-every.read("/score/logits"), axis=1, kind="stable")
    assert np.array_equal(every.read("/score/top_token"), order)
    one = run(deck | {"score.top_k": 1})
    assert np.array_equal(one.read("/score/top_token"), order[:, :1])
    greedy = one.read("/score/greedy")[1:]
    assert np.array_equal(
        greedy, order[:-1, 0] == np.concatenate(reference.read_documents(tokens))[1:]
    )
    refused = run(deck | {"score.top_k": 98}, ranks=2, expect=2)
    assert "score.top_k = 98" in refused.stderr and "97 tokens" in refused.stderr


def test_ties_go_to_the_lower_id(run, tmp_path):
    weights = fixtures.uniform(tmp_path / "uniform.h5", 97)
    tokens = fixtures.write_tokens(tmp_path / "tokens.h5", [[5, 96, 3]])
    deck = {"model.weights": weights, "data.tokens": tokens, "fsdp.piece_bytes": 64}
    result = run(deck | {"score.top_k": 4, "score.entropy": True}, ranks=2)
    assert result.read("/score/top_token").tolist() == [[0, 1, 2, 3]] * 3
    assert np.abs(result.read("/score/entropy") - np.log(97)).max() <= 1e-6


def test_what_was_not_computed_is_marked(inputs, run):
    result = run(inputs[0] | ASKED | {"data.window": 16, "data.max_documents": 2}, ranks=2)
    assert np.isnan(result.read("/score/entropy")[41:]).all()
    assert np.isnan(result.read("/score/logits")[41:]).all()
    assert (result.read("/score/top_token")[41:] == -1).all()
    assert not np.isnan(result.read("/score/entropy")[:41]).any()
