# SPDX-License-Identifier: Apache-2.0
"""A GGUF file becomes the weights file that its Hugging Face original would give.

Decides what is undone (row order), rebuilt (config, tokenizer) and refused; dequantisation is the
gguf package's.
"""

import json

import gguf
import h5py
import numpy as np
import pytest
import reference
from checkpoints import write_folder
from conftest import GOLDEN
from fixtures import llama_config, random_arrays, write_tokens
from foregather_tools.gguf_rope import llama3_factors
from gguf_files import write_gguf
from tokenizers import Tokenizer

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 40,
}
BYTE_TOKENS = {
    "model": "gpt2",
    "pre": "gpt-2",
    "tokens": ["<|end|>", "a", "b", "c", "Ġ", "ab", "1", "Ġa", "ca"],
    "token_type": [3, 1, 1, 1, 1, 1, 1, 1, 1],
    "merges": ["a b", "Ġ a"],
    "bos_token_id": 0,
    "eos_token_id": 0,
}


def qwen(family: str, **changes):
    """A Qwen2 or Qwen3 config with every key that its import records."""
    config = llama_config(**(SIZES | changes)) | {
        "model_type": family,
        "architectures": [f"Q{family[1:]}ForCausalLM"],
        "use_sliding_window": False,
        "sliding_window": 4096,
        "max_window_layers": 28,
    }
    # Qwen2 has biases of q, k and v whatever its config says, and says nothing.
    for key in ("mlp_bias",) if family == "qwen3" else ("mlp_bias", "attention_bias"):
        del config[key]
    return config


def both(tool, tmp_path, seed=1, config=None, extra=None, **changes):
    """The same random model, a Llama unless a config is given, imported from a folder and from
    GGUF.
    """
    config = config or llama_config(**(SIZES | changes))
    arrays = random_arrays(config, seed)
    paths = tmp_path / "folder.h5", tmp_path / "gguf.h5"
    folder = write_folder(tmp_path / "m", config, arrays)
    file = write_gguf(
        tmp_path / "m.gguf", config, arrays, architecture=config["model_type"], extra=extra
    )
    for source, path in zip((folder, file), paths):
        said = tool("import_model", source, path)
        assert said.status == 0, said.err
    return paths


def assert_same(paths) -> None:
    """Both weights files hold the same config and the same tensors."""
    configs = [reference.read_weights(path)[0] for path in paths]
    assert configs[0] == configs[1]
    hashes = []
    for path in paths:
        with h5py.File(path) as file:
            hashes.append(file.attrs["content_sha256"])
    assert hashes[0] == hashes[1]


def refused(tool, tmp_path, config=None, arrays=None, **options) -> str:
    """What is said when the GGUF file is refused."""
    config = config or llama_config(**SIZES)
    arrays = arrays or random_arrays(config, 1)
    file = write_gguf(tmp_path / "m.gguf", config, arrays, **options)
    said = tool("import_model", file, tmp_path / "w.h5")
    assert said.status == 2 and list(tmp_path.glob("w.h5*")) == []
    return said.err


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"attention_bias": True, "mlp_bias": True},
        {"head_dim": 16, "rope_theta": 5e5, "rms_norm_eps": 1e-6},
    ],
)
def test_h4_gguf_and_folder_give_the_same_weights_and_config(tool, tmp_path, changes):
    assert_same(both(tool, tmp_path, **changes))


@pytest.mark.parametrize(
    "family, changes",
    [
        ("qwen2", {}),
        ("qwen2", {"tie_word_embeddings": True, "rope_theta": 1e6}),
        ("qwen3", {"head_dim": 12}),
        ("qwen3", {"attention_bias": True, "tie_word_embeddings": True}),
    ],
)
def test_h4_qwen_rows_are_not_permuted(tool, tmp_path, family, changes):
    paths = both(tool, tmp_path, config=qwen(family, **changes))
    assert_same(paths)
    _, arrays = reference.read_weights(paths[1])
    kinds = {name.split("self_attn.")[1] for name in arrays if ".layers.0.self_attn." in name}
    assert ("q_norm.weight" in kinds) == (family == "qwen3")
    assert ("k_proj.bias" in kinds) == (family == "qwen2" or "attention_bias" in changes)


@pytest.mark.parametrize(
    "scaling, extra",
    [
        ({"rope_type": "linear", "factor": 4.0}, {"rope.scaling.type": "linear"}),
        ({"rope_type": "linear", "factor": 4.0}, {}),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
            {"rope.scaling.type": "yarn", "rope.scaling.original_context_length": 1024},
        ),
        (
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 4096,
                "beta_fast": 16.0,
                "beta_slow": 0.5,
            },
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.yarn_beta_fast": 16.0,
                "rope.scaling.yarn_beta_slow": 0.5,
            },
        ),
    ],
)
def test_rope_scaling_of_the_metadata_is_recorded(tool, tmp_path, scaling, extra):
    config = qwen("qwen2", rope_scaling=scaling)
    assert_same(both(tool, tmp_path, config=config, extra=extra | {"rope.scaling.factor": 4.0}))


def test_h4_row_order_matters_and_is_undone(tool, tmp_path):
    folder, imported = both(tool, tmp_path)
    tokens = write_tokens(tmp_path / "t.h5", [list(range(12))])
    right = reference.score(folder, tokens)[0].logprob[1:]
    np.testing.assert_allclose(reference.score(imported, tokens)[0].logprob[1:], right, atol=1e-12)
    config, arrays = reference.read_weights(folder)
    from gguf_files import permute

    for name in arrays:
        if ".q_proj." in name:
            arrays[name] = permute(arrays[name], config["num_attention_heads"])
        elif ".k_proj." in name:
            arrays[name] = permute(arrays[name], config["num_key_value_heads"])
    wrong = reference.forward(config, arrays, np.arange(12)).logprob[1:]
    assert np.abs(wrong - right).max() > 0.01


def test_h4_quantised_rows_stay_close_to_the_original(tool, tmp_path):
    config = llama_config(**SIZES)
    arrays = random_arrays(config, 1)
    file = write_gguf(tmp_path / "m.gguf", config, arrays, kind=gguf.GGMLQuantizationType.Q8_0)
    assert tool("import_model", file, tmp_path / "w.h5").status == 0
    _, stored = reference.read_weights(tmp_path / "w.h5")
    for name in (
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.self_attn.k_proj.weight",
    ):
        left, right = stored[name], arrays[name].astype(np.float64)
        cosine = (
            (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
        )
        assert cosine.min() > 0.99 and (left != right).any()


def test_llama3_factors_are_recognised(tool, tmp_path):
    config = llama_config(**SIZES | {"rope_theta": 5e5, "head_dim": 64})
    factors = llama3_factors(5e5, 64, 8.0, 1.0, 4.0, 8192).astype("<f4")
    assert factors[0] == 1.0 and factors[-1] == 8.0 and len(set(factors)) > 3
    file = write_gguf(
        tmp_path / "m.gguf",
        config,
        random_arrays(config, 1),
        tensors={"rope_freqs.weight": factors},
    )
    said = tool("import_model", file, tmp_path / "w.h5")
    assert said.status == 0 and "rope_freqs.weight" in said.err
    with h5py.File(tmp_path / "w.h5") as stored:
        scaling = json.loads(stored["config"][()])["rope_scaling"]
    assert scaling == {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    full = reference.inverse_frequencies(config | {"rope_scaling": scaling})
    np.testing.assert_allclose(full, reference.inverse_frequencies(config) / factors, rtol=1e-6)


def test_other_factors_are_refused(tool, tmp_path):
    factors = {"rope_freqs.weight": np.array([1, 1, 2, 3], "<f4")}
    assert "not those of llama3 scaling" in refused(tool, tmp_path, tensors=factors)


@pytest.mark.parametrize(
    "extra, said",
    [
        ({"rope.scaling.type": "longrope", "rope.scaling.factor": 4.0}, "rope type longrope"),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, "beside rope.scaling.type no"),
        ({"rope.scaling.attn_factor": 0.5}, "llama.rope.scaling.attn_factor: unknown key"),
        ({"rope.dimension_count": 4}, "llama.rope.dimension_count: 4 differs"),
        ({"attention.value_length": 4}, "llama.attention.value_length: 4 differs"),
        ({"expert_count": 8}, "llama.expert_count: 8 is not supported"),
        ({"logit_scale": 0.5}, "llama.logit_scale: unknown key"),
        ({"attention.sliding_window": 4096}, "llama.attention.sliding_window: unknown key"),
        ({"attention.layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon: missing"),
        ({"attention.head_count_kv": [2, 1]}, "differs from layer to layer"),
        ({"vocab_size": 41}, "llama.vocab_size is 41, token_embd.weight has 40 rows"),
    ],
)
def test_metadata_that_cannot_be_represented_are_refused(tool, tmp_path, extra, said):
    assert said in refused(tool, tmp_path, extra=extra)


def test_other_architectures_parts_and_broken_files_are_refused(tool, tmp_path):
    assert "architecture gemma is not" in refused(tool, tmp_path, architecture="gemma")
    whole = (tmp_path / "m.gguf").read_bytes()
    for broken in (whole[:100], whole[:-200], b"GGML" + whole[4:], b""):
        (tmp_path / "m.gguf").write_bytes(broken)
        said = tool("import_model", tmp_path / "m.gguf", tmp_path / "w.h5")
        assert said.status == 2 and "no whole GGUF file" in said.err


def test_unexpected_tensors_are_refused_under_their_own_name(tool, tmp_path):
    tensors = {"blk.0.attn_sinks.weight": np.ones(8, "<f4")}
    assert "unexpected: blk.0.attn_sinks.weight (8,)" in refused(tool, tmp_path, tensors=tensors)


@pytest.mark.parametrize(
    "name, text, tokens",
    [
        ("gpt-2", "ab a<|end|>c", ["ab", "Ġa", "<|end|>", "c"]),
        ("smollm", "ab11", ["ab", "1", "1"]),
        ("smollm", "ca", ["c", "a"]),
        ("llama-bpe", "ab a1", ["ab", "Ġa", "1"]),
        # Words that are tokens are taken whole, also where no merge leads to them.
        ("llama-bpe", "ca", ["ca"]),
    ],
)
def test_tokenizer_is_built_from_vocabulary_and_merges(tool, tmp_path, name, text, tokens):
    config = llama_config(**SIZES | {"vocab_size": len(BYTE_TOKENS["tokens"])})
    file = write_gguf(
        tmp_path / "m.gguf", config, random_arrays(config, 1), tokenizer=BYTE_TOKENS | {"pre": name}
    )
    assert tool("import_model", file, tmp_path / "w.h5").status == 0
    with h5py.File(tmp_path / "w.h5") as stored:
        tokenizer = Tokenizer.from_str(stored["tokenizer"][()].decode())
        assert json.loads(stored["config"][()])["bos_token_id"] == 0
    encoding = tokenizer.encode(text, add_special_tokens=False)
    assert encoding.tokens == tokens and tokenizer.decode(encoding.ids, False) == text


@pytest.mark.parametrize("change", [{"pre": "default"}, {"pre": "tekken"}, {"model": "llama"}])
def test_tokenizers_that_cannot_be_rebuilt_are_left_out_and_said(tool, tmp_path, change):
    config = llama_config(**SIZES | {"vocab_size": len(BYTE_TOKENS["tokens"])})
    file = write_gguf(
        tmp_path / "m.gguf", config, random_arrays(config, 1), tokenizer=BYTE_TOKENS | change
    )
    said = tool("import_model", file, tmp_path / "w.h5")
    assert said.status == 0 and "no /tokenizer is stored" in said.err
    with h5py.File(tmp_path / "w.h5") as stored:
        assert "tokenizer" not in stored and "tokenizer_sha256" not in stored.attrs


def test_given_tokenizer_is_stored_in_place_of_the_built_one(tool, tmp_path):
    config = llama_config(**SIZES)
    file = write_gguf(tmp_path / "m.gguf", config, random_arrays(config, 1))
    (tmp_path / "tokenizer.json").write_text("{}")
    given = ("--tokenizer", tmp_path / "tokenizer.json")
    assert tool("import_model", file, tmp_path / "w.h5", *given).status == 0
    with h5py.File(tmp_path / "w.h5") as stored:
        assert stored["tokenizer"][()] == b"{}"


def test_h4_smollm2_scores_as_the_reference_says(smollm_weights):
    # In float32, since twice half a gigabyte takes longer to fill than to compute with.
    config, arrays = reference.read_weights(smollm_weights, np.float32)
    assert config["rms_norm_eps"] == 1e-5 and config["rope_theta"] == 1e5
    with h5py.File(GOLDEN / "smollm2-135m" / "expected.h5") as file:
        tokens = file["tokens"][:64].astype(np.int64)
        expected = file["logprob"][:64]
    found = reference.forward(config, arrays, tokens).logprob
    assert np.nanmax(np.abs(found - expected)) < 1e-4
