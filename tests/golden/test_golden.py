# SPDX-License-Identifier: Apache-2.0
"""The program against what transformers and PyTorch computed in float32 for the same checkpoints.

Decides how near is near enough: 5e-5 for tiny models, 1e-3 for a real one; the numbers themselves
lie in data/.
"""

import math
from pathlib import Path

import fixtures
import h5py
import numpy as np
import pytest
import reference
from golden_models import GOLDEN, call_tool
from run_foregather import Foregather, Result

MODELS = ("llama", "llama-tied-odd", "llama3-rope", "mistral-window", "qwen2", "qwen3")
NEAR = 5e-5  # |difference| of a log-probability in float32, nat.
DETAILED = 1  # The document whose logits are known.

SMALL_PACKS = {"batch.tokens": 64}
SMALL_PIECES = {"fsdp.piece_bytes": "1 KiB"}
MPI = {"comm.transport": "mpi"}
CHOICES = [
    pytest.param(1, {}, id="1-rank"),
    pytest.param(1, SMALL_PACKS | SMALL_PIECES, id="1-rank-small-packs-and-pieces"),
    pytest.param(2, SMALL_PACKS | MPI, id="2-ranks-small-packs-mpi"),
    pytest.param(3, SMALL_PIECES, id="3-ranks-small-pieces"),
    pytest.param(3, SMALL_PACKS, id="3-ranks-small-packs"),
    pytest.param(4, SMALL_PACKS | SMALL_PIECES | MPI, id="4-ranks-small-packs-and-pieces-mpi"),
    pytest.param(4, MPI, id="4-ranks-mpi"),
]


def expected(name: str) -> h5py.File:
    """The reference of a golden folder."""
    return h5py.File(GOLDEN / name / "expected.h5")


def near(found: Result, name: str, tolerance: float) -> None:
    """Every column of /score and its sums are those of the reference, NaN exactly where it is."""
    with expected(name) as file:
        wanted = {key: file[key][()] for key in ("logprob", "document_nll")}
        count = file["document_scored_tokens"][()]
        total = dict(file.attrs)
    logprob = found.read("/score/logprob")
    assert logprob.dtype == np.float32
    assert np.array_equal(np.isnan(logprob), np.isnan(wanted["logprob"]))
    assert np.nanmax(np.abs(logprob - wanted["logprob"])) <= tolerance
    assert not found.read("/score/greedy")[np.isnan(logprob)].any()
    assert np.array_equal(found.read("/score/document_scored_tokens"), count)
    nll = found.read("/score/document_nll")
    assert np.all(np.abs(nll - wanted["document_nll"]) <= tolerance * np.maximum(count, 1))
    assert np.array_equal(found.read("/score/document_status"), np.where(count > 0, 0, 1))
    assert found.attribute("scored_tokens") == total["scored_tokens"]
    assert abs(found.attribute("loss") - total["loss"]) <= min(tolerance, 1e-5)
    assert math.isclose(found.attribute("perplexity"), math.exp(found.attribute("loss")))


# Llama at every choice; families that differ in what a layer computes at one choice a rank count.
RUNS = [(name, choice) for name in MODELS[:3] for choice in CHOICES]
RUNS += [(name, CHOICES[number]) for name in MODELS[3:] for number in (1, 2, 3, 5)]


@pytest.mark.parametrize(
    "name, ranks, settings",
    [pytest.param(name, *choice.values, id=f"{name}-{choice.id}") for name, choice in RUNS],
)
def test_tiny_models_score_as_in_pytorch(name, ranks, settings, golden_weights, run):
    deck = {"model.weights": golden_weights(name), "data.tokens": GOLDEN / name / "tokens.h5"}
    found = run(deck | settings, ranks)
    near(found, name, NEAR)
    transport = found.rows("/provenance/choices", "name")["transport"]["value"]
    assert transport == ("none" if ranks == 1 else settings.get("comm.transport", "shared"))


@pytest.mark.parametrize("name", MODELS)
def test_greedy_marks_tokens_that_have_the_largest_logit(name, golden_weights, run, tmp_path):
    with expected(name) as file, h5py.File(GOLDEN / name / "tokens.h5") as tokens:
        logits = file[f"logits_document_{DETAILED}"][()].astype(np.float64)
        begin, end = tokens["offsets"][DETAILED : DETAILED + 2]
        document = tokens["tokens"][begin:end].tolist()
    best = logits.argmax(axis=1)
    second = np.argsort(logits, axis=1)[:, -2]
    documents, wanted = [], []
    for t in range(1, len(document)):
        documents += [document[:t] + [int(best[t - 1])], document[:t] + [int(second[t - 1])]]
        logs = logits[t - 1] - np.logaddexp.reduce(logits[t - 1])
        wanted += [(1, logs.max()), (0, logs[second[t - 1]])]
    path = fixtures.write_tokens(tmp_path / "prefixes.h5", documents)
    deck = {"model.weights": golden_weights(name), "data.tokens": path}
    found = run(deck | SMALL_PIECES | SMALL_PACKS, ranks=2)
    last = found.read("/score/offsets")[1:] - 1
    assert found.read("/score/greedy")[last].tolist() == [mark for mark, _ in wanted]
    difference = found.read("/score/logprob")[last] - np.array([logprob for _, logprob in wanted])
    assert np.abs(difference).max() <= NEAR


@pytest.mark.parametrize("ranks, settings", [CHOICES[0], CHOICES[3], CHOICES[5]])
@pytest.mark.parametrize("name", MODELS)
def test_distributions_are_those_of_pytorch(name, ranks, settings, golden_weights, run):
    deck = {"model.weights": golden_weights(name), "data.tokens": GOLDEN / name / "tokens.h5"}
    asked = {"score.entropy": True, "score.logits": True, "score.hidden_states": True}
    found = run(deck | settings | asked, ranks)
    near(found, name, NEAR)
    with expected(name) as file, h5py.File(GOLDEN / name / "tokens.h5") as tokens:
        rows = slice(*tokens["offsets"][DETAILED : DETAILED + 2])
        assert np.abs(found.read("/score/entropy") - file["entropy"][()]).max() <= NEAR
        logits, hidden = found.read("/score/logits"), found.read("/score/hidden_states")
        assert np.abs(logits[rows] - file[f"logits_document_{DETAILED}"][()]).max() <= NEAR
        states = file[f"hidden_document_{DETAILED}"][()]
    last = states.reshape(-1, rows.stop - rows.start, hidden.shape[1])[-1]
    assert np.abs(hidden[rows] - last).max() <= NEAR
    assert not np.isnan(logits).any() and not np.isnan(hidden).any()


@pytest.fixture(scope="module")
def smollm_tokens(smollm_weights, tmp_path_factory):
    """The reference's four texts as the tool tokenizes them, cut to its lengths; its own ids."""
    folder = tmp_path_factory.mktemp("texts")
    with expected("smollm2-135m") as file:
        names = [name.decode() for name in file["texts"][()]]
        ids = reference.read_documents(Path(file.filename))
    texts = [f"/usr/share/common-licenses/{name}" for name in names]
    call_tool("tokenize", folder / "whole.h5", *texts, "--weights", smollm_weights)
    whole = [document.tolist() for document in reference.read_documents(folder / "whole.h5")]
    wanted = [document.tolist() for document in ids]
    cut = [document[: len(want)] for document, want in zip(whole, wanted)]
    return fixtures.write_tokens(folder / "cut.h5", cut), wanted


def test_real_model_scores_as_in_pytorch(smollm_weights, smollm_tokens, tmp_path):
    tokens, wanted = smollm_tokens
    assert [ids.tolist() for ids in reference.read_documents(tokens)] == wanted
    deck = {"model.weights": smollm_weights, "data.tokens": tokens, "batch.tokens": 1300}
    found = Foregather(tmp_path)(deck, ranks=2, timeout=400)
    near(found, "smollm2-135m", 1e-3)
    assert found.table("/timing/ranks")["tokens"].tolist() == [1212, 710]
