# SPDX-License-Identifier: Apache-2.0
"""Windows and the memory of gathers as users meet them: what is scored, clamped, refused, told.

Decides the decks; the numbers of the bigram model are worked out by hand.
"""

import math

import fixtures
import numpy as np
import pytest
from run_foregather import Result
from said import bare, prefetch, refusal


def perplexity(result: Result) -> tuple[int, float]:
    """Scored tokens and perplexity."""
    return result.attribute("scored_tokens"), result.attribute("perplexity")


@pytest.mark.parametrize("ranks, batch", [(1, 2048), (2, 4), (3, 1)])
def test_d10_windows_carry_a_token_and_score_all_but_the_first(ranks, batch, run, bigram):
    deck = {"model.weights": bigram / "w.h5", "data.tokens": bigram / "w-document.h5"}
    result = run(deck | {"data.window": 4, "batch.tokens": batch}, ranks)
    count, found = perplexity(result)
    assert count == 9 and math.isclose(found, 2.7215800, rel_tol=1e-6)
    assert result.read("/score/document_nll").tolist() == pytest.approx([13 * math.log(2)])
    assert result.key("data.stride")["observed"].startswith("windows start 3 tokens apart")


def test_i6_a_window_scores_what_the_positions_would_not_hold(run, bigram, tmp_path):
    weights = fixtures.bigram(tmp_path / "w.h5", max_position_embeddings=8)
    tokens = fixtures.write_tokens(tmp_path / "nine.h5", [fixtures.W[:9]])
    deck = {"model.weights": weights, "data.tokens": tokens}
    message = refusal(run(deck, ranks=2, expect=2), "document 0 has 9 tokens", "8 positions")
    assert "data.window = 8" in message
    assert perplexity(run(deck | {"data.window": 8}, ranks=2))[0] == 8
    refused = run(deck | {"data.window": 9}, ranks=2, expect=2)
    refusal(refused, "data.window = 9", "8 positions")


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_t17_c10_uniform_scores_are_exact_at_any_temperature(kind, run, tmp_path):
    deck = {
        "model.weights": fixtures.uniform(tmp_path / "uniform.h5", 97, "bfloat16"),
        "data.tokens": fixtures.write_tokens(tmp_path / "documents.h5", [list(range(97))]),
        "score.entropy": True,
        "score.temperature": 0.5,
        "fsdp.param_dtype": kind,
    }
    result = run(deck, ranks=4)
    logprob, entropy = result.read("/score/logprob"), result.read("/score/entropy")
    assert logprob.dtype == entropy.dtype == np.float32
    assert np.nanmax(np.abs(logprob + 4.5747110)) <= 1e-5
    assert np.abs(entropy - 4.5747110).max() <= 1e-5
    assert perplexity(result)[1] == pytest.approx(97, abs=1e-3)


def test_stride_without_a_window_is_inert_told_and_refused_when_strict(tiny):
    result = tiny({"data.stride": 2})
    row = result.key("data.stride")
    assert row["state"] == "inert" and "data.window = 0" in row["reason"]
    assert "data.stride = 2 is inert" in result.stdout
    refusal(tiny({"data.stride": 2, "job.strict": True}), "data.stride", lines_said=None)


def test_gather_memory_clamps_the_depth_and_is_told(tiny):
    free = tiny({"fsdp.forward_prefetch": 2})
    assert prefetch(free)[0] == 2
    slot = int(free.table("/timing/prefetch")["slot_bytes"][0])
    for slots in (1, 2):
        limit = {"fsdp.forward_prefetch": 2, "fsdp.gather_memory": (slots + 1) * slot - 1}
        result = tiny(limit)
        table = result.table("/timing/prefetch")
        assert (table["depth"][0], table["slots"][0]) == (slots - 1, slots)
        row = result.key("fsdp.forward_prefetch")
        assert (row["state"], row["observed"]) == ("clamped", str(slots - 1))
        assert "fsdp.gather_memory" in row["reason"] and row["reason"] in result.stdout
        assert f"= {slots * slot} bytes" in result.key("fsdp.gather_memory")["observed"]
        assert result.score_bytes() == free.score_bytes()
    refusal(tiny(limit | {"job.strict": True}), "fsdp.forward_prefetch", lines_said=None)
    told = tiny({"fsdp.gather_memory": slot}).stdout  # The default depth is clamped as well.
    assert "fsdp.forward_prefetch = 1 is clamped to 0" in told


def test_gather_memory_below_one_unit_is_refused_with_the_numbers(run, tiny, tmp_path):
    refusal(tiny({"fsdp.gather_memory": 5119}), "layer.0", "5119 bytes", "5120 bytes")
    wide = fixtures.random_llama(tmp_path / "wide.h5", vocab_size=4096)
    deck = {
        "model.weights": wide,
        "data.tokens": fixtures.random_documents(tmp_path / "t.h5", 4096, [20]),
        "comm.transport": "mpi",
        "fsdp.gather_memory": "6 KiB",
    }
    message = refusal(run(deck, ranks=2, expect=2), "embedding", "fsdp.piece_bytes")
    assert "5120 bytes" in message
    result = run(deck | {"fsdp.piece_bytes": "5120"}, ranks=2)
    assert result.table("/timing/prefetch")["slots"].tolist() == [1]


def test_gather_memory_is_inert_where_nothing_is_gathered(tiny):
    result = tiny({"comm.transport": "shared", "fsdp.gather_memory": 1})
    assert result.key("fsdp.gather_memory")["state"] == "inert"


def test_check_counts_windows_slots_and_what_is_asked_for(run, bigram, tmp_path):
    def check(*words) -> str:
        done = bare("--check", deck, "--ranks", "2", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    deck = tmp_path / "check.deck"
    deck.write_text(
        f"[job]\nname = score\n[model]\nweights = {bigram / 'w.h5'}\n[data]\n"
        f"tokens = {bigram / 'w-document.h5'}\n[comm]\ntransport = mpi\n[output]\n"
        f"file = {tmp_path / 'r.h5'}\n"
    )
    plain = check()
    assert "10 tokens" in plain and "what is asked for" not in plain
    asked = check("--data.window=4", "--score.logits=true", "--score.top_k=2")
    assert "1 documents, 3 windows, 12 tokens" in asked
    # Four logits, two ids, two log-probabilities of 10 rows, three times.
    assert f"{10 * 8 * 4 * 3} B" in asked
    limited = check("--fsdp.gather_memory=5120")
    assert "1 x 5120 B" in limited and "is clamped to 0" in limited
