# SPDX-License-Identifier: Apache-2.0
"""Requests that are packed, scored by the program and unpacked have the answers of their
definitions; so have the batches for trainers.

Decides which requests are put to it; what each must cost is decided in request_files.py.
"""

import importlib

import h5py
import numpy as np
import pytest
import request_files as rf

REQUESTS = [
    {"id": "blank moves", "context": "b ", "continuation": "a"},
    {"id": 7, "context": "", "continuation": "ab"},
    {"id": "begins with the prefix", "context": "", "continuation": "ba"},
    {"id": "greedy", "context": "a", "continuation": "b a b"},
    {"id": "cut", "context": "ab" * 6, "continuation": "ab a"},
    {"id": "ids", "tokens": [0, 1, 2, 3, 2, 3, 0], "score_from": 3},
    {"id": "all of the limit", "context": "b", "continuation": "ababab b"},
]
TEXTS = [
    {"id": "three windows", "text": "abab a aab ba b  a ba"},
    {"id": "nothing", "text": ""},
    {"id": "one token", "text": "a"},
    {"id": "just one window", "text": "abababab"},
]


def call(*words) -> int:
    """Calls the tool in this process."""
    module = importlib.import_module("foregather_tools.score_requests")
    return module.main([str(word) for word in words])


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """F-BG with 9 positions, so that documents have at most 9 tokens."""
    path = tmp_path_factory.mktemp("requests") / "w.h5"
    return rf.bigram_with_tokenizer(path, max_position_embeddings=9)


def answered(run, folder, weights, requests, *words):
    """The answers to requests, and the files on the way to them."""
    lines, tokens = rf.write_lines(folder / "requests.jsonl", requests), folder / "tokens.h5"
    assert call("pack", lines, tokens, "--weights", weights, *words) == 0
    deck = {"model.weights": weights, "data.tokens": tokens, "batch.tokens": 16}
    deck |= {"score.entropy": True}
    results = run(deck, ranks=2).path
    assert call("unpack", lines, tokens, results, folder / "answers.jsonl") == 0
    return rf.read_lines(folder / "answers.jsonl"), tokens, results


def same(answers, expected):
    """Asserts that sums are equal to float32's rounding, all else exactly."""
    sums = [answer.pop("logprob") for answer in answers]
    assert sums == pytest.approx([answer.pop("logprob") for answer in expected], rel=1e-6)
    assert answers == expected


def test_loglikelihood_is_the_sum_over_the_continuation_and_responses_hold_its_parts(
    run, tmp_path, weights
):
    answers, tokens, results = answered(run, tmp_path, weights, REQUESTS)
    assert {answer["is_greedy"] for answer in answers} == {False, True}
    same(answers, [rf.loglikelihood(request) for request in REQUESTS])
    batch = tmp_path / "batch.h5"
    assert call("responses", results, tokens, batch) == 0
    with h5py.File(batch) as file:
        logprobs, mask = file["logprobs"][()], file["response_mask"][()]
        lengths = [answer["tokens"] for answer in answers]
        assert logprobs.shape == (len(REQUESTS), max(lengths)) and file["temperature"][()] == 1
        assert mask.sum(1).tolist() == file["response_lengths"][()].tolist() == lengths
        sums = [rf.loglikelihood(request)["logprob"] for request in REQUESTS]
        np.testing.assert_allclose(logprobs.sum(1), sums, rtol=1e-6)
        # One distribution for every context: 1/2, 1/4, 1/8, 1/8.
        np.testing.assert_allclose(file["entropies"][()][mask == 1], 1.75 * np.log(2), rtol=1e-6)


def test_loglikelihood_rolling_scores_every_token_once_over_all_windows(run, tmp_path, weights):
    answers, tokens, _ = answered(run, tmp_path, weights, TEXTS, "--rolling")
    with h5py.File(tokens) as file:
        assert file["request"][()].tolist() == [0, 0, 0, 2, 3]
    same(answers, [rf.rolling(text) for text in TEXTS])
