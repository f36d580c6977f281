# SPDX-License-Identifier: Apache-2.0
"""A config is taken and completed, or refused key by key; nothing in it is ignored.

Decides what import_model owes to every kind of config.json; tensors are tested in
test_import_folder.
"""

import json

import h5py
import pytest
from checkpoints import bigram_folder
from fixtures import llama_config
from foregather_tools.command_line import Refusal
from foregather_tools.config_law import LAW, drop_keys, judge, parse_config
from foregather_tools.rope_law import rope_settings

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
NEW_SPELLING = {"rope_theta": ..., "rope_scaling": ...}


def config_with(**changes):
    """F-BG's config, changed; a value of ... removes the key."""
    config = llama_config()
    for key, value in changes.items():
        if value is ...:
            config.pop(key, None)
        else:
            config[key] = value
    return config


def mistral(**changes):
    """A Mistral config without window."""
    base = {
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "sliding_window": None,
        "attention_bias": ...,
        "mlp_bias": ...,
    }
    return config_with(**(base | changes))


@pytest.mark.parametrize(
    "changes, key, reason",
    [
        ({"hidden_act": "gelu"}, "hidden_act", 'only "silu"'),
        ({"quantization_config": {"bits": 4}}, "quantization_config", "only null"),
        ({"sliding_window": 4096}, "sliding_window", "only null"),
        ({"pretraining_tp": 2}, "pretraining_tp", "only 1"),
        ({"pretraining_tp": True}, "pretraining_tp", "only 1"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor", "only 1"),
        ({"rope_interleaved": True}, "rope_interleaved", "only false"),
        ({"attention_multiplier": 0.5}, "attention_multiplier", "might change the mathematics"),
        ({"layer_types": ["full_attention"]}, "layer_types", "might change the mathematics"),
        ({"use_qk_norm": False}, "use_qk_norm", "might change the mathematics"),
        ({"rms_norm_eps": ...}, "rms_norm_eps", "missing"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps", "not a number"),
        ({"rms_norm_eps": -1e-5}, "rms_norm_eps", "not a number"),
        ({"hidden_size": ...}, "hidden_size", "missing"),
        ({"vocab_size": "4"}, "vocab_size", "not a positive whole number"),
        ({"num_hidden_layers": True}, "num_hidden_layers", "not a positive whole number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers", "not a positive whole number"),
        ({"num_key_value_heads": 3}, "num_key_value_heads", "no multiple of 3"),
        ({"head_dim": 3}, "head_dim", "odd"),
        ({"head_dim": ..., "num_attention_heads": 3}, "head_dim", "no multiple of 3"),
        ({"attention_bias": 1}, "attention_bias", "neither true nor false"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings", "neither true nor false"),
        ({"rope_theta": 0}, "rope_theta", "not a number above zero"),
        ({"rope_theta": "10000"}, "rope_theta", "not a number above zero"),
        ({"rope_scaling": 2}, "rope_scaling", "no object"),
        ({"rope_scaling": {"factor": 2.0}}, "rope_scaling", "no rope_type"),
        ({"rope_scaling": {"rope_type": "llama3", "type": "yarn"}}, "rope_scaling", "disagree"),
        ({"rope_scaling": LLAMA3 | {"factor": ...}}, "rope_scaling.factor", "missing"),
        ({"rope_scaling": LLAMA3 | {"beta_fast": 32}}, "rope_scaling.beta_fast", "unknown"),
        ({"rope_scaling": LLAMA3 | {"factor": "8"}}, "rope_scaling.factor", "not a number"),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": 4.0}}, "rope_scaling", "not below"),
        ({"rope_scaling": {"rope_type": "default", "factor": 2.0}}, "rope_scaling.factor", "unkn"),
        (
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
            "rope_parameters.partial_rotary_factor",
            "not supported",
        ),
    ],
)
def test_key_is_refused_by_name_and_reason(changes, key, reason):
    config = config_with(**changes)
    if isinstance(config.get("rope_scaling"), dict):
        scaling = config["rope_scaling"]
        config["rope_scaling"] = {k: v for k, v in scaling.items() if v is not ...}
    with pytest.raises(Refusal) as refusal:
        judge(config)
    lines = [line.strip() for line in str(refusal.value).splitlines()[1:]]
    assert any(line.startswith(f"{key}:") and reason in line for line in lines), lines


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "longrope", "su", "mrope"])
@pytest.mark.parametrize("spelling", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("word", ["rope_type", "type"])
def test_rope_types_that_are_not_computed_are_refused_by_name(kind, spelling, word):
    config = config_with(**{"rope_scaling": ..., spelling: {word: kind, "factor": 2.0}})
    with pytest.raises(Refusal, match=f"{spelling}: rope type {kind} is not supported"):
        judge(config)


@pytest.mark.parametrize(
    "model_type, architecture",
    [
        ("qwen2", "Qwen2ForCausalLM"),
        ("gemma", "GemmaForCausalLM"),
        ("mixtral", "MixtralForCausalLM"),
        ("llama", "MistralForCausalLM"),
        ("llama", "LlamaForSequenceClassification"),
        ("llama", "LlamaModel"),
        (None, None),
    ],
)
def test_other_architectures_are_refused_by_name(model_type, architecture):
    architectures = [architecture] if architecture else None
    with pytest.raises(Refusal) as refusal:
        judge(config_with(model_type=model_type, architectures=architectures))
    assert json.dumps(model_type) in str(refusal.value)
    assert json.dumps(architectures) in str(refusal.value)


def test_all_faults_are_told_at_once():
    with pytest.raises(Refusal) as refusal:
        judge(config_with(hidden_act="gelu", mystery=1, rope_scaling={"type": "yarn"}, head_dim=3))
    for key in ("hidden_act", "mystery", "rope_scaling", "head_dim"):
        assert f"\n  {key}:" in str(refusal.value)


def test_d4_head_dim_is_its_own_number():
    config, notes = judge(config_with(hidden_size=4, num_attention_heads=4, head_dim=2))
    assert config["head_dim"] == 2 and not any("head_dim" in note for note in notes)


def test_defaults_are_made_explicit_and_told():
    absent = dict.fromkeys(
        ("head_dim", "num_key_value_heads", "attention_bias", "mlp_bias", "hidden_act"), ...
    )
    config, notes = judge(config_with(rope_theta=..., architectures=..., **absent))
    assert config["head_dim"] == 2 and config["num_key_value_heads"] == 2
    assert config["rope_theta"] == 10000.0 and config["attention_bias"] is False
    assert config["architectures"] == ["LlamaForCausalLM"]
    for key in (*absent, "rope_theta", "architectures"):
        assert any(note.startswith(f"{key} is absent") for note in notes), key


def test_null_counts_as_absent_for_derived_numbers():
    config, _ = judge(config_with(head_dim=None, num_key_value_heads=None))
    assert config["head_dim"] == 2 and config["num_key_value_heads"] == 2


def test_mistral_without_window_is_taken_and_with_one_refused():
    config, _ = judge(mistral())
    assert config["sliding_window"] is None and config["attention_bias"] is False
    with pytest.raises(Refusal, match="sliding_window: 4096 is not supported"):
        judge(mistral(sliding_window=4096))
    with pytest.raises(Refusal, match=r"sliding_window: 4096 \(the default of mistral\)"):
        judge(mistral(sliding_window=...))
    with pytest.raises(Refusal, match="attention_bias: true is not supported"):
        judge(mistral(attention_bias=True))


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": 5e5, "rope_scaling": LLAMA3},
        {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA3}},
        NEW_SPELLING | {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}},
        {"rope_theta": 5e5, "rope_scaling": ..., "rope_parameters": LLAMA3},
        {
            "rope_theta": 5e5,
            "rope_scaling": LLAMA3,
            "rope_parameters": LLAMA3 | {"rope_theta": 5e5},
        },
    ],
)
def test_both_spellings_of_rope_settings_mean_the_same(changes):
    config, _ = judge(config_with(**changes))
    assert rope_settings(config) == LLAMA3 | {"rope_theta": 5e5}


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        {"rope_scaling": LLAMA3, "rope_parameters": LLAMA3 | {"factor": 4.0}},
        {"rope_scaling": LLAMA3, "rope_parameters": {"rope_type": "default"}},
        {"rope_scaling": None, "rope_parameters": LLAMA3},
    ],
)
def test_spellings_that_disagree_are_refused(changes):
    with pytest.raises(Refusal, match="spellings of rope settings disagree"):
        judge(config_with(**changes))


def test_base_is_recorded_in_the_spelling_that_is_used():
    config, notes = judge(config_with(**NEW_SPELLING, rope_parameters={"rope_type": "default"}))
    assert config["rope_parameters"]["rope_theta"] == 10000.0 and "rope_theta" not in config
    assert any("rope_parameters.rope_theta is absent" in note for note in notes)


def test_harmless_keys_are_kept_as_they_are():
    extra = {"bos_token_id": 1, "torch_dtype": "float16", "transformers.js_config": {"dtype": "q4"}}
    config, notes = judge(config_with(**extra))
    assert extra.items() <= config.items() and notes == []


def test_no_key_stands_in_two_lists_and_all_defaults_are_known():
    lists = [LAW["used"], LAW["harmless"], list(LAW["fixed"])]
    keys = [key for group in lists for key in group]
    assert len(keys) == len(set(keys))
    assert set(LAW["required"]) <= set(LAW["used"])
    for family in LAW["families"].values():
        assert set(family["defaults"]) | set(family["fixed"]) <= set(keys)


@pytest.mark.parametrize(
    "text, fault",
    [
        ('{"a": 1, "a": 2}', "stands twice"),
        ('{"rope": {"b": 1, "b": 1}}', "stands twice"),
        ('{"a": NaN}', "NaN is not JSON"),
        ("[1]", "no JSON object"),
        ("{", "not JSON"),
    ],
)
def test_malformed_config_is_refused(text, fault):
    with pytest.raises(Refusal, match=fault):
        parse_config(text, "config.json")


def test_key_is_dropped_on_the_users_word_and_recorded(tool, tmp_path):
    folder = bigram_folder(tmp_path / "m", mystery=3, riddle=4)
    out = tmp_path / "w.h5"
    said = tool("import_model", folder, out)
    assert said.status == 2 and "--drop-config-key mystery" in said.err
    drops = ("--drop-config-key", "riddle", "--drop-config-key", "mystery")
    said = tool("import_model", folder, out, *drops)
    assert said.status == 0 and "left out of the config on your word: mystery, riddle" in said.err
    with h5py.File(out) as file:
        assert file.attrs["dropped_config_keys"] == b"mystery, riddle"
        assert not {"mystery", "riddle"} & json.loads(file["config"][()]).keys()


def test_keys_that_the_model_reads_or_that_are_not_there_cannot_be_dropped():
    with pytest.raises(Refusal) as refusal:
        drop_keys(config_with(), ["rope_scaling", "mistery"])
    assert "rope_scaling: the model reads this key" in str(refusal.value)
    assert "mistery: the config has no such key" in str(refusal.value)
