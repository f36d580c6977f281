# SPDX-License-Identifier: Apache-2.0
"""What models and token files mean, and what is refused of them: numbers that can be computed by
hand.

Decides inputs, right ones and faulty ones; where results go is test_files' affair.
"""

import json
import subprocess
import sys
from pathlib import Path

import fixtures
import h5py
import numpy as np
import pytest
from checkpoints import write_folder
from run_foregather import ROOT
from said import refusal

LN2 = np.log(2)


def tool(name: str, *words) -> subprocess.CompletedProcess:
    """Runs one of tools/ with this Python; any status will do."""
    command = [sys.executable, str(ROOT / "tools" / name), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def perplexity(result) -> tuple[float, int]:
    """Perplexity and the number of scored tokens."""
    return pytest.approx(result.attribute("perplexity"), rel=1e-5), result.attribute(
        "scored_tokens"
    )


# Token types and ranges.


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> dict[str, Path]:
    """T24: a model whose vocabulary needs 17 bits as "weights", and token files good and bad."""
    folder = tmp_path_factory.mktemp("wide")
    weights = fixtures.uniform(folder / "weights.h5", vocab=70001, num_hidden_layers=1)
    return {"weights": weights} | fixtures.token_cases(folder)


@pytest.mark.parametrize("dtype", ["int64", "uint32", "int32", "uint16"])
def test_t24_i1_ids_above_16_bits_are_scored_as_they_are(dtype, wide, run):
    result = run({"model.weights": wide["weights"], "data.tokens": wide[f"good-{dtype}"]}, ranks=0)
    assert perplexity(result) == (70001.0, 2)


def test_i1_every_id_above_16_bits_keeps_its_own_score(run, tmp_path):
    # Were 70000 read as 4464, both would cost the same.
    config = fixtures.llama_config(vocab_size=70001, num_hidden_layers=1)
    arrays = fixtures.blank(config)
    arrays["model.embed_tokens.weight"][:, 0] = 1.0
    arrays["lm_head.weight"][70000, 0] = 8.0
    weights = fixtures.write_model(tmp_path / "w.h5", config, arrays)
    tokens = fixtures.write_tokens(tmp_path / "t.h5", [[5, 70000], [5, 4464]], "int64")
    found = run({"model.weights": weights, "data.tokens": tokens}, ranks=2)
    # After the norm the state is close to 2 x a unit vector; this row's logit is 16, all others are
    # 0.
    logit = 8 / np.sqrt(0.25 + config["rms_norm_eps"])
    rest = np.log(np.exp(logit) + 70000)
    assert found.read("/score/document_nll") == pytest.approx([rest - logit, rest], rel=1e-4)


# Which dataset, value, place and limit each refusal must name.
BAD_TOKENS = {
    "bad-negative-int16": ("/tokens[1] is -1", "document 0, token 1", "70001"),
    "bad-float32": ("/tokens", "must hold integers", "float"),
    "bad-id": ("/tokens[3] is 70001", "document 1, token 1", "0 to 70000"),
    "bad-offsets-order": ("/offsets[2] is 2", "below the entry before it, 3"),
    "bad-offsets-end": ("/offsets[1] is 4", "which has 3 entries"),
    "bad-two-dimensions": ("/tokens", "one dimension", "2"),
}


@pytest.mark.parametrize("case", BAD_TOKENS)
def test_t24_faulty_tokens_are_refused_once_on_four_ranks(case, wide, run):
    deck = {"model.weights": wide["weights"], "data.tokens": wide[case]}
    refusal(run(deck, ranks=4, expect=None), str(wide[case]), *BAD_TOKENS[case])


def test_t24_cases_are_all_looked_at(wide):
    assert {name for name in wide if name.startswith("bad-")} == set(BAD_TOKENS)


def test_i1_tokenize_refuses_16_bits_for_that_vocabulary(tmp_path):
    (tmp_path / "ids.txt").write_text("5 70000 5\n")
    words = [tmp_path / "t.h5", tmp_path / "ids.txt", "--ids", "--vocab-size", 70001]
    refused = tool("tokenize", *words, "--dtype", "uint16")
    assert refused.returncode == 2 and "70001" in refused.stderr and "uint16" in refused.stderr
    assert not (tmp_path / "t.h5").exists()
    assert tool("tokenize", *words).returncode == 0
    with h5py.File(tmp_path / "t.h5") as file:
        assert file["tokens"][()].tolist() == [5, 70000, 5]


def test_i3_id_equal_to_the_vocabulary_is_refused_once_with_its_place(run, bigram, tmp_path):
    documents = [[0, 1], [], [2], [3, 0, 1, 4]]
    tokens = fixtures.write_tokens(tmp_path / "t.h5", documents)
    result = run({"model.weights": bigram / "w.h5", "data.tokens": tokens}, ranks=4, expect=None)
    refusal(result, "/tokens[6] is 4", "document 3, token 3", "4 ids, 0 to 3", str(tokens))


def test_documents_of_no_and_of_one_token_score_nothing(run, bigram, tmp_path):
    documents = [[], fixtures.A, [], [2], fixtures.B, []]
    tokens = fixtures.write_tokens(tmp_path / "t.h5", documents)
    deck = {"model.weights": bigram / "w.h5", "data.tokens": tokens, "batch.tokens": 2}
    result = run(deck, ranks=2)
    assert perplexity(result) == (2**1.5, 4)
    assert result.read("/score/document_scored_tokens").tolist() == [0, 3, 0, 0, 1, 0]
    assert result.read("/score/document_nll") == pytest.approx([0, 3 * LN2, 0, 0, 3 * LN2, 0])
    assert np.isnan(result.read("/score/logprob")).tolist() == [1, 0, 0, 0, 1, 1, 0]


@pytest.mark.parametrize("documents", [[[], [1], []], []])
def test_tokens_of_which_none_can_be_scored_are_refused(documents, run, bigram, tmp_path):
    tokens = fixtures.write_tokens(tmp_path / "t.h5", documents)
    result = run({"model.weights": bigram / "w.h5", "data.tokens": tokens}, ranks=2, expect=None)
    refusal(result, str(tokens))


def test_score_from_leaves_context_unscored(run, bigram, tmp_path):
    tokens = fixtures.write_tokens(tmp_path / "t.h5", [fixtures.A, fixtures.B], score_from=[3, 0])
    result = run({"model.weights": bigram / "w.h5", "data.tokens": tokens}, ranks=0)
    assert perplexity(result) == (4.0, 2)  # 1 bit and 3 bits.


# The protocol of perplexity.


@pytest.mark.parametrize("batch", [4, 2048])
def test_d10_every_token_but_the_first_is_scored_whatever_the_batch(batch, run, bigram):
    deck = {"model.weights": bigram / "w.h5", "data.tokens": bigram / "w-document.h5"}
    result = run(deck | {"batch.tokens": batch}, ranks=0)
    assert perplexity(result) == (2 ** (13 / 9), 9)
    costs = np.array([1, 1, 1, 3, 1, 1, 1, 3, 1]) * LN2
    assert -result.read("/score/logprob")[1:] == pytest.approx(costs, abs=1e-6)


def test_d11_bos_is_scored_after_only_when_it_was_asked_for(run, bigram, tmp_path):
    ids, tokens = tmp_path / "ids.txt", tmp_path / "t.h5"
    words = (tokens, ids, "--ids", "--vocab-size", 4, "--replace")
    deck = {"model.weights": bigram / "w.h5", "data.tokens": tokens}

    def scored(text: str, *more) -> tuple[float, int]:
        ids.write_text(text)
        assert tool("tokenize", *words, *more).returncode == 0
        return perplexity(run(deck, ranks=0))

    assert scored("0 1 2 3\n") == (2.0, 3)
    assert scored("0 1 2 3\n", "--add-bos", "--bos-id", 0) == (2.0, 3)  # It is there already.
    assert scored("0 1 2 3\n", "--add-bos", "--bos-id", 1) == (2.8284271, 4)
    assert scored("0 0 1 2 3\n") == (2.8284271, 4)


@pytest.mark.parametrize(("eps", "wanted"), [(1e-5, -1.2550639), (1e-6, -1.0329637)])
def test_t14_d8_epsilon_of_the_norm_comes_from_the_config(eps, wanted, run, tmp_path):
    weights = fixtures.epsilon(tmp_path / "w.h5", eps)
    tokens = fixtures.write_tokens(tmp_path / "t.h5", [[0, 1]])
    result = run({"model.weights": weights, "data.tokens": tokens}, ranks=0)
    assert result.read("/score/logprob")[1] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("positions", [8, 10])
def test_i6_document_beyond_the_models_positions_is_refused(positions, run, bigram, tmp_path):
    weights = fixtures.bigram(tmp_path / "w.h5", max_position_embeddings=positions)
    deck = {"model.weights": weights, "data.tokens": bigram / "w-document.h5"}
    result = run(deck, ranks=0, expect=None)
    if positions == 10:
        assert perplexity(result) == (2 ** (13 / 9), 9)
    else:
        refusal(result, "document 0 has 10 tokens", "8 positions")


def test_f3_tensor_above_one_piece_is_the_same_on_three_ranks_as_on_one(run, tmp_path):
    size = {"hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32}
    weights = fixtures.random_llama(tmp_path / "w.h5", vocab_size=7168, **size, **heads)
    with h5py.File(weights) as file:
        assert file["weights/lm_head/weight"].size * 4 == 3.5 * 2**20
    tokens = fixtures.random_documents(tmp_path / "t.h5", 7168, [30, 50, 20])
    deck = {"model.weights": weights, "data.tokens": tokens, "fsdp.piece_bytes": "1 MiB"}
    one = run(deck, ranks=0)
    three = run(deck | {"comm.transport": "mpi"}, ranks=3)
    assert one.score_bytes() == three.score_bytes()
    assert one.attribute("loss") != pytest.approx(np.log(7168), abs=1e-3)
    read = three.table("/timing/ranks")["bytes_read"]
    assert read.sum() == one.table("/timing/ranks")["bytes_read"].sum() and read.min() > 1e6


# Weights that are not whole.


def rename(weights: Path, old: str, new: str) -> None:
    """Moves a tensor to another name."""
    with h5py.File(weights, "r+") as file:
        file.move(f"weights/{old.replace('.', '/')}", f"weights/{new.replace('.', '/')}")


def test_h1_deleted_shard_is_refused_by_the_import(tmp_path):
    arrays = fixtures.bigram_arrays(fixtures.llama_config())
    folder = write_folder(tmp_path / "hf", fixtures.llama_config(), arrays, shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    done = tool("import_model", folder, tmp_path / "w.h5")
    assert done.returncode == 2 and "model-00002-of-00002.safetensors" in done.stderr
    assert not (tmp_path / "w.h5").exists()


def test_h1_missing_renamed_added_and_misshaped_tensors_are_listed_at_once(run, ab, tmp_path):
    weights = fixtures.bigram(tmp_path / "w.h5")
    rename(weights, "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_projection.weight")
    with h5py.File(weights, "r+") as file:
        file["weights/model/layers/7/mlp/up_proj/weight"] = np.zeros((4, 4), "<f4")
        del file["weights/model/norm/weight"], file["weights/lm_head/weight"]
        file["weights/model/norm/weight"] = np.ones(5, "<f4")
    result = run(ab | {"model.weights": weights}, ranks=3, expect=None)
    message = refusal(result, str(weights), lines_said=None)
    for word in ("missing", "unexpected", "lm_head.weight", "model.layers.7.mlp.up_proj.weight"):
        assert word in message
    assert "model.layers.1.mlp.up_projection.weight" in message
    assert "model.layers.1.mlp.up_proj.weight" in message
    assert "model.norm.weight" in message and "5" in message


# h6: the config's flag (... : none), the head, and what becomes of it.
HEADS = {
    "untied_without_a_head": (False, "absent", None),
    "tied_without_a_head": (True, "absent", "embedding"),
    "tied_with_an_equal_head": (True, "equal", "embedding"),
    "tied_with_another_head": (True, "another", None),
    "no_flag_with_a_head": (..., "another", "head"),
    "untied_with_a_head": (False, "another", "head"),
}


@pytest.mark.parametrize("case", HEADS)
def test_h6_tie_and_head_are_settled_from_import_to_score(case, run, tmp_path):
    flag, head, used = HEADS[case]
    config = fixtures.llama_config(tie_word_embeddings=flag)
    if flag is ...:
        del config["tie_word_embeddings"]
    arrays = fixtures.bigram_arrays(fixtures.llama_config(), embedding=1.0)
    if head == "absent":
        del arrays["lm_head.weight"]
    elif head == "equal":
        arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"].copy()
    weights = tmp_path / "w.h5"
    imported = tool("import_model", write_folder(tmp_path / "hf", config, arrays), weights)
    if used is None:
        assert imported.returncode == 2 and "lm_head.weight" in imported.stderr
        assert not weights.exists()
        return
    assert imported.returncode == 0, imported.stderr
    assert ("lm_head.weight" in imported.stderr) == (head == "equal")
    assert ("tie_word_embeddings is absent" in imported.stderr) == (flag is ...)
    tokens = fixtures.write_tokens(tmp_path / "t.h5", [[0, 1]])
    result = run({"model.weights": weights, "data.tokens": tokens}, ranks=2)
    # The state is close to 2 x the token's unit vector, which the embedding as head holds against 1
    # 0 0 0.
    wanted = np.log(0.5) if used == "head" else -np.log(np.exp(2) + 3)
    assert result.read("/score/logprob")[1] == pytest.approx(wanted, abs=1e-4)


def test_h6_untied_weights_without_a_head_are_refused_by_score_too(run, ab, tmp_path):
    weights = fixtures.bigram(tmp_path / "w.h5")
    with h5py.File(weights, "r+") as file:
        del file["weights/lm_head"]
    refusal(run(ab | {"model.weights": weights}, 2, expect=None), "lm_head.weight", lines_said=None)


def test_h6_config_without_a_flag_is_the_familys_default_and_told(run, ab, tmp_path):
    weights = fixtures.bigram(tmp_path / "w.h5")
    with h5py.File(weights, "r+") as file:
        config = json.loads(file["config"][()])
        del config["tie_word_embeddings"], file["config"]
        file["config"] = json.dumps(config)
    result = run(ab | {"model.weights": weights}, ranks=0, expect=(0, 2))
    if result.code == 2:
        refusal(result, "tie_word_embeddings", lines_said=None)
    else:
        assert "tie_word_embeddings" in result.read("/provenance/report")
        assert perplexity(result) == (2**1.5, 4)


# The right file in the wrong place.


@pytest.mark.parametrize("kind", ["folder", "safetensors", "gguf", "tokens", "text"])
def test_weights_of_another_kind_are_refused_with_the_tool_that_makes_them(kind, run, ab, tmp_path):
    arrays = fixtures.bigram_arrays(fixtures.llama_config())
    path = write_folder(tmp_path / "hf", fixtures.llama_config(), arrays)
    if kind == "safetensors":
        path = path / "model.safetensors"
    elif kind == "tokens":
        path = ab["data.tokens"]
    elif kind != "folder":
        path = tmp_path / f"model.{kind}"
        path.write_bytes(b"GGUF" + bytes(64) if kind == "gguf" else b"not weights")
    result = run(ab | {"model.weights": path}, ranks=0, expect=None)
    refusal(result, str(path), "tools/import_model", lines_said=None)


@pytest.mark.parametrize("kind", ["weights", "text"])
def test_tokens_of_another_kind_are_refused_with_the_tool_that_makes_them(kind, run, ab, tmp_path):
    path = ab["model.weights"]
    if kind == "text":
        path = tmp_path / "text.txt"
        path.write_text("Once upon a time")
    result = run(ab | {"data.tokens": path}, ranks=0, expect=None)
    refusal(result, str(path), "tools/tokenize", lines_said=None)


def test_other_tokenizer_is_refused_with_what_to_do_or_overridden_and_recorded(
    run, bigram, tmp_path
):
    paths = fixtures.bigram(tmp_path / "w.h5"), tmp_path / "t.h5"
    fixtures.write_tokens(paths[1], [fixtures.A])
    for path, digest in zip(paths, ("a" * 64, "b" * 64)):
        with h5py.File(path, "r+") as file:
            file.attrs["tokenizer_sha256"] = digest
    deck = {"model.weights": paths[0], "data.tokens": paths[1]}
    refused = run(deck, ranks=2, expect=None)
    refusal(refused, *map(str, paths), "aaaaaaaa", "bbbbbbbb", "data.any_tokenizer = true")
    result = run(deck | {"data.any_tokenizer": True}, ranks=2)
    assert perplexity(result) == (2.0, 3)
    for text in (result.stdout, result.read("/provenance/report")):
        assert "another tokenizer" in text and "data.any_tokenizer = true" in text


def test_tokenizer_that_is_not_told_is_said(run, ab):
    result = run(ab, ranks=0)
    assert f"{ab['data.tokens']} does not say which tokenizer" in result.stdout
