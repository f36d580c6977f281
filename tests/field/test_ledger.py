# SPDX-License-Identifier: Apache-2.0
"""What the ledger says of keys that cannot act, that are clamped, and that the run did not honour.

Decides those cases; that every key acts where it can is test_every_key's affair.
"""

import fixtures
import numpy as np
import pytest
from said import lines, prefetch, refusal

# Keys that cannot act, the deck in which they cannot, the number of ranks, and the reason.
INERT = {
    "one_rank": (
        {"fsdp.forward_prefetch": 2, "comm.link_rate": "1 MB/s"},
        ["fsdp.forward_prefetch", "comm.link_rate", "comm.transport"],
        1,
        "one rank holds all weights: nothing is gathered",
    ),
    "shared": (
        {"fsdp.forward_prefetch": 2, "comm.transport": "shared"},
        ["fsdp.forward_prefetch"],
        2,
        "read where they lie: nothing is gathered",
    ),
    "no_timeline": (
        {"output.timeline": False, "output.timeline_passes": 8},
        ["output.timeline_passes"],
        2,
        "output.timeline = false",
    ),
    "no_tokenizers": (
        {"data.any_tokenizer": True},
        ["data.any_tokenizer"],
        2,
        "do not say which tokenizer",
    ),
}


@pytest.mark.parametrize("case", INERT)
def test_inert_key_is_told_before_the_job_and_recorded(case, tiny):
    changes, keys, ranks, reason = INERT[case]
    result = tiny(changes, ranks)
    assert result.code == 0, result.stderr
    told = result.stdout.splitlines()
    table = next(i for i, line in enumerate(told) if line.startswith("----"))
    for key in keys:
        row = result.key(key)
        assert row["state"] == "inert" and row["observed"] == "" and reason in row["reason"]
        notes = [i for i, line in enumerate(told) if f"{key} = " in line and reason in line]
        assert notes and notes[0] < table
        assert f"{result.deck}:" in told[notes[0]]


@pytest.mark.parametrize("case", INERT)
def test_inert_key_is_refused_by_a_strict_job_with_its_place(case, tiny):
    changes, keys, ranks, reason = INERT[case]
    result = tiny(changes | {"job.strict": True}, ranks)
    said = refusal(result, "job.strict", lines_said=1 + len(keys)).splitlines()
    for key in keys:
        assert [line for line in said if f"{key} = " in line and reason in line]
    assert all(line.startswith(f"{result.deck}:") for line in said[1:])


def test_inert_default_is_recorded_and_no_reason_to_refuse(start):
    deck = {"model.weights": "bigram.h5", "data.tokens": "ab.h5", "job.strict": True}
    result = start(deck)
    for key in ("fsdp.forward_prefetch", "comm.link_rate", "data.any_tokenizer"):
        assert result.key(key)["state"] == "inert" and key not in result.stdout


def test_b4_depth_beyond_the_model_is_clamped_told_and_ends_clean(tiny):
    changes = {"fsdp.forward_prefetch": 64}
    result = tiny(changes)
    row = result.key("fsdp.forward_prefetch")
    assert (result.code, row["state"], row["observed"]) == (0, "clamped", "3")
    assert "4 units" in row["reason"]
    notes = [line for line in result.stdout.splitlines() if line.startswith("note: ")]
    assert [line for line in notes if "fsdp.forward_prefetch = 64 is clamped to 3" in line]
    assert prefetch(result) == (3, 3, 3, 4)
    ranks = result.table("/timing/ranks")
    counts = [ranks[f"gathers_{name}"].tolist() for name in ("issued", "waited", "freed")]
    assert counts[0] == counts[1] == counts[2] == [4, 4]
    assert result.score_bytes() == tiny({"fsdp.forward_prefetch": 0}).score_bytes()
    strict = tiny(changes | {"job.strict": True})
    refusal(strict, "fsdp.forward_prefetch = 64 is clamped to 3", lines_said=2)


def test_b4_one_layer_with_depth_one_frees_every_gather(start, folder):
    fixtures.bigram(folder / "one-layer.h5", num_hidden_layers=1)
    deck = {"model.weights": "one-layer.h5", "data.tokens": "eight.h5", "comm.transport": "mpi"}
    ranks = start(deck | {"batch.tokens": 4}, ranks=2).table("/timing/ranks")
    for name in ("issued", "waited", "freed"):
        assert ranks[f"gathers_{name}"].tolist() == [12, 12]


@pytest.mark.parametrize(
    ("changes", "ranks", "reason"),
    [({}, 1, "one rank"), ({"comm.transport": "shared"}, 2, "nothing is gathered")],
)
def test_witness_is_refused_where_nothing_can_be_witnessed(changes, ranks, reason, tiny):
    result = tiny(changes | {"output.require": "observed"}, ranks)
    message = refusal(result, "output.require = observed", reason)
    assert message.startswith(f"{result.deck}:")


def test_witness_without_a_timeline_is_refused(tiny):
    result = tiny({"output.require": "observed", "output.timeline": False})
    refusal(result, "output.require", "output.timeline")


def test_witness_that_the_clock_does_not_give_ends_with_status_3_and_all_results(tiny):
    result = tiny({"output.require": "observed"})
    assert result.code == 3
    said = lines(result.stderr)
    assert len(said) == 1 and "output.require = observed was not honoured" in said[0]
    assert f"{result.deck}:" in said[0] and "issued" in said[0]
    row = result.key("output.require")
    assert (row["state"], row["observed"]) == ("not honoured", "the verdict is issued")
    assert result.attribute("complete", "/") == 1 and not result.part_left()
    assert result.score_bytes() == tiny({"output.require": "none"}).score_bytes()


def test_auto_is_recorded_with_what_it_became_and_why(start):
    result = start({"model.weights": "bigram.h5", "data.tokens": "ab.h5"}, ranks=2)
    choices = result.rows("/provenance/choices", "name")
    assert result.key("comm.transport")["value"] == "auto"
    assert choices["transport"]["value"] == "shared"
    assert result.key("comm.transport")["observed"].startswith("shared: a window of ")
    for name in ("device", "transport"):
        assert choices[name]["why"] and choices[name]["why"] in result.stdout
    assert result.key("device.kind")["reason"] == choices["device"]["why"]
    assert np.isnan(result.read("/score/logprob")).sum() == 2


def test_piece_smaller_than_a_row_is_clamped_told_and_refused_when_strict(start):
    deck = {"model.weights": "bigram.h5", "data.tokens": "ab.h5", "fsdp.piece_bytes": 1}
    result = start(deck, ranks=2)
    row = result.key("fsdp.piece_bytes")
    assert (row["state"], row["observed"]) == ("clamped", "16 bytes")
    assert "fsdp.piece_bytes" in result.stdout
    assert "fsdp.piece_bytes" in start(deck | {"job.strict": "true"}, ranks=2, expect=2).stderr
