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
from foregather_tools.config_law import LAW, drop_keys, judge, parse_config, tensor_kinds
from foregather_tools.model_tensors import expected_tensors
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


ARCHITECTURES = {
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
SLIDING, FULL = "sliding_attention", "full_attention"


def family(name, **changes):
    """A config of another family, with no key that says what it is anyway."""
    base = {
        "model_type": name,
        "architectures": [ARCHITECTURES[name]],
        "attention_bias": ...,
        "mlp_bias": ...,
    }
    return config_with(**(base | changes))


def faults_of(config) -> list[str]:
    """The lines of the refusal."""
    with pytest.raises(Refusal) as refusal:
        judge(config)
    return [line.strip() for line in str(refusal.value).splitlines()[1:]]


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
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor", "missing"),
        ({"rope_scaling": YARN | {"factor": None}}, "rope_scaling.factor", "not a number"),
        ({"rope_scaling": YARN | {"beta_fast": 0}}, "rope_scaling.beta_fast", "not a number"),
        ({"rope_scaling": YARN | {"mscale": "1"}}, "rope_scaling.mscale", "not a number"),
        ({"rope_scaling": YARN | {"truncate": None}}, "rope_scaling.truncate", "neither true"),
        ({"rope_scaling": YARN | {"beta_fast": 0.5}}, "rope_scaling", "beta_slow 1 is not below"),
        ({"rope_scaling": YARN | {"low_freq_factor": 1}}, "rope_scaling.low_freq_factor", "unkn"),
        ({"rope_scaling": YARN, "rope_theta": 1}, "rope_theta", "not above one"),
        ({"original_max_position_embeddings": 64}, "original_max_position_embeddings", "unknown"),
        ({"use_mrope": True}, "use_mrope", "only false"),
        ({"use_sliding_window": True}, "use_sliding_window", "only false"),
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
    lines = faults_of(config)
    assert any(line.startswith(f"{key}:") and reason in line for line in lines), lines


@pytest.mark.parametrize(
    "name, changes, fault",
    [
        ("mistral", {"sliding_window": 0}, "sliding_window: 0 is neither null nor"),
        ("mistral", {"sliding_window": True}, "sliding_window: true is neither null nor"),
        ("mistral", {"attention_bias": True}, "attention_bias: true is not supported, only false"),
        ("mistral", {"use_sliding_window": False}, "use_sliding_window: false is not supported"),
        ("mistral", {"layer_types": [FULL, FULL]}, "layer_types: unknown key"),
        ("mistral", {"max_window_layers": 1}, "max_window_layers: unknown key"),
        ("qwen2", {"attention_bias": False}, "attention_bias: false is not supported, only true"),
        ("qwen2", {"mlp_bias": True}, "mlp_bias: true is not supported, only false"),
        ("qwen2", {"use_sliding_window": "yes"}, 'use_sliding_window: "yes" is neither true'),
        ("qwen2", {"sliding_window": -1}, "sliding_window: -1 is neither null nor"),
        ("qwen2", {"max_window_layers": -1}, "max_window_layers: -1 is not a whole number"),
        ("qwen2", {"max_window_layers": 1.5}, "max_window_layers: 1.5 is not a whole number"),
        ("qwen3", {"layer_types": FULL}, 'layer_types: "full_attention" is no list of'),
        ("qwen3", {"layer_types": [FULL, "chunked_attention"]}, "layer_types: ["),
        ("qwen3", {"layer_types": [FULL]}, "layer_types: 1 entries, num_hidden_layers is 2"),
        ("qwen3", {"layer_types": [FULL, SLIDING]}, "layer_types: names sliding_attention, but"),
        (
            "qwen2",
            {"layer_types": [FULL, SLIDING], "use_sliding_window": True, "sliding_window": None},
            "layer_types: names sliding_attention, but",
        ),
    ],
)
def test_key_of_a_family_is_refused_by_name_and_reason(name, changes, fault):
    lines = faults_of(family(name, **changes))
    assert len(lines) == 1 and lines[0].startswith(fault), lines


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "su", "mrope", "proportional"])
@pytest.mark.parametrize("spelling", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("word", ["rope_type", "type"])
def test_rope_types_that_are_not_computed_are_refused_by_name(kind, spelling, word):
    config = config_with(**{"rope_scaling": ..., spelling: {word: kind, "factor": 2.0}})
    reasons = {"dynamic": "the base would", "longrope": "frequencies would"}
    (line,) = faults_of(config)
    assert line.startswith(f"{spelling}: rope type {kind} is not supported (")
    assert reasons.get(kind, "") in line


@pytest.mark.parametrize(
    "model_type, architecture",
    [
        ("qwen2_moe", "Qwen2MoeForCausalLM"),
        ("qwen2", "Qwen3ForCausalLM"),
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
        judge(config_with(hidden_act="gelu", mystery=1, rope_scaling={"type": "su"}, head_dim=3))
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


def test_d4_qwen3_has_a_default_head_dim_of_its_own():
    config, notes = judge(family("qwen3", head_dim=...))
    assert config["head_dim"] == 128 and any("head_dim is absent" in note for note in notes)
    assert judge(family("qwen2", head_dim=...))[0]["head_dim"] == 2


@pytest.mark.parametrize("window", [None, 1, 4096])
def test_window_of_mistral_is_kept(window):
    config, notes = judge(family("mistral", sliding_window=window))
    assert config["sliding_window"] == window and config["attention_bias"] is False
    assert not any("sliding_window" in note for note in notes)


def test_default_windows_are_made_explicit():
    config, notes = judge(family("mistral"))
    assert config["sliding_window"] == 4096
    assert any(note.startswith("sliding_window is absent") for note in notes)
    for name in ("qwen2", "qwen3"):
        config, _ = judge(family(name, use_sliding_window=True))
        assert (config["sliding_window"], config["max_window_layers"]) == (4096, 28)
        assert judge(family(name))[0]["use_sliding_window"] is False


@pytest.mark.parametrize(
    "changes",
    [
        {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0},
        {"use_sliding_window": True, "sliding_window": 5, "layer_types": [SLIDING, FULL]},
        {"use_sliding_window": False, "sliding_window": None, "layer_types": [FULL, FULL]},
        {"use_sliding_window": False, "sliding_window": 131072, "layer_types": None},
        {"use_mrope": False, "max_window_layers": 70},
    ],
)
@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_windows_by_layer_are_kept(name, changes):
    config, _ = judge(family(name, **changes))
    assert changes.items() <= config.items()


@pytest.mark.parametrize(
    "config, kinds",
    [
        (config_with(attention_bias=True), {"qkv_bias", "output_bias"}),
        (config_with(mlp_bias=True), {"mlp_bias"}),
        (family("mistral"), set()),
        (family("qwen2"), {"qkv_bias"}),
        (family("qwen2", attention_bias=True), {"qkv_bias"}),
        (family("qwen3"), {"qk_norm"}),
        (family("qwen3", attention_bias=True), {"qkv_bias", "output_bias", "qk_norm"}),
    ],
)
def test_families_have_their_biases_and_norms(config, kinds):
    judged, _ = judge(config)
    assert {kind for kind, there in tensor_kinds(judged).items() if there} == kinds
    names = expected_tensors(judged)
    for part, kind in (
        ("k_proj.bias", "qkv_bias"),
        ("o_proj.bias", "output_bias"),
        ("up_proj.bias", "mlp_bias"),
        ("q_norm.weight", "qk_norm"),
    ):
        assert any(name.endswith(part) for name in names) == (kind in kinds), part


def test_positions_that_stand_for_the_original_ones_are_recorded():
    config, notes = judge(config_with(rope_scaling={"type": "yarn", "factor": 2.0}))
    assert config["rope_scaling"]["original_max_position_embeddings"] == 4096
    assert any("original_max_position_embeddings is absent" in note for note in notes)


def test_what_a_default_says_is_no_disagreement():
    told = YARN | {"beta_fast": 32, "mscale": None, "truncate": True, "rope_theta": 10000.0}
    config, _ = judge(config_with(rope_scaling=YARN, rope_parameters=told))
    assert config["rope_scaling"] == YARN and config["rope_parameters"] == told


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
        {"rope_scaling": YARN, "rope_parameters": YARN | {"beta_fast": 16}},
        {"rope_scaling": YARN, "rope_parameters": {"rope_type": "linear", "factor": 4.0}},
    ],
)
def test_spellings_that_disagree_are_refused_and_both_told(changes):
    (line,) = faults_of(config_with(**changes))
    assert line.startswith("the two spellings of rope settings disagree: rope_")
    new = changes["rope_parameters"]
    old = changes.get("rope_scaling", changes.get("rope_theta"))
    for value in (10000.0, 5e5) if "rope_theta" in new else (json.dumps(old), json.dumps(new)):
        assert str(value) in line


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
    for rule in LAW["families"].values():
        assert not set(rule["used"]) & {*LAW["used"], *LAW["harmless"]}
        assert not set(rule["used"]) & set(rule["fixed"])
        known = {*keys, *rule["used"], *rule["fixed"]}
        assert set(rule["defaults"]) <= known
        told = {kind for kind in rule["tensors"].values() if isinstance(kind, str)}
        assert told <= set(rule["used"]) & set(rule["defaults"])


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
        drop_keys(config_with(), ["rope_scaling", "mlp_bias", "mistery"])
    assert "mlp_bias: the model reads this key" in str(refusal.value)
    assert "rope_scaling: the model reads this key" in str(refusal.value)
    assert "mistery: the config has no such key" in str(refusal.value)
