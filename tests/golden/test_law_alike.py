# SPDX-License-Identifier: Apache-2.0
"""The program and the tools judge a config alike: both take it, or both refuse the same keys.

Decides the configs that are tried; each side's own words are tested where it lives.
"""

import re
import subprocess

import fixtures
import pytest
from family_cases import ARCHITECTURES, BASE, LLAMA3
from foregather_tools.command_line import Refusal
from foregather_tools.config_law import judge
from golden_models import ROOT

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
SLIDING, FULL = "sliding_attention", "full_attention"
# Tried on every family: some take it, some refuse it.
CHANGES = [
    {"attention_bias": True},
    {"attention_bias": False},
    {"attention_bias": None},
    {"mlp_bias": True},
    {"mlp_bias": None},
    {"head_dim": None},
    {"head_dim": 7},
    {"num_key_value_heads": None},
    {"num_key_value_heads": 3},
    {"sliding_window": 5},
    {"sliding_window": None},
    {"sliding_window": 0},
    {"sliding_window": 2.0},
    {"use_sliding_window": True},
    {"use_sliding_window": False},
    {"use_sliding_window": None},
    {"use_sliding_window": True, "sliding_window": 5, "layer_types": [SLIDING, FULL]},
    {"use_sliding_window": True, "sliding_window": None, "layer_types": [SLIDING, FULL]},
    {"layer_types": [SLIDING, FULL]},
    {"layer_types": [FULL, FULL]},
    {"layer_types": [FULL]},
    {"layer_types": None},
    {"layer_types": "full"},
    {"max_window_layers": 0},
    {"max_window_layers": 0.0},
    {"max_window_layers": -1},
    {"max_window_layers": None},
    {"use_mrope": False},
    {"use_mrope": True},
    {"original_max_position_embeddings": 64},
    {"tie_word_embeddings": None},
    {"rms_norm_eps": None},
]
# Tried on one family, since all have the same rope settings.
ROPES = [
    {"rope_theta": 0},
    {"rope_scaling": {}},
    {"rope_scaling": None, "rope_parameters": YARN},
    {"rope_scaling": YARN, "rope_parameters": YARN | {"rope_theta": 7}, "rope_theta": 7},
    {"rope_scaling": YARN, "rope_parameters": YARN | {"beta_slow": 1, "mscale": None}},
    {"rope_scaling": YARN, "rope_parameters": YARN | {"beta_slow": 2}},
    {"rope_scaling": YARN, "rope_parameters": LLAMA3},
    {"rope_scaling": LLAMA3, "rope_theta": 3, "rope_parameters": {"rope_theta": 4}},
    {"rope_scaling": LLAMA3 | {"original_max_position_embeddings": None}},
    {"rope_scaling": LLAMA3 | {"low_freq_factor": 4.0}},
    {"rope_scaling": LLAMA3 | {"attention_factor": 1.0}},
    {"rope_scaling": {"type": "linear", "factor": 2}},
    {"rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2}},
    {"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2}},
    {"rope_scaling": {"type": "linear"}},
    {"rope_scaling": {"type": "linear", "factor": None}},
    {"rope_scaling": {"type": "linear", "factor": 2, "original_max_position_embeddings": 64}},
    {"rope_scaling": {"type": "yarn", "factor": 2}},
    {"rope_scaling": {"type": "yarn", "factor": 2, "rope_theta": None}},
    {"rope_scaling": YARN | {"rope_theta": 1}},
    {"rope_scaling": YARN | {"truncate": None}},
    {"rope_scaling": YARN | {"attention_factor": None, "beta_fast": None, "mscale": None}},
    {"rope_scaling": YARN | {"attention_factor": 0}},
    {"rope_scaling": YARN | {"beta_slow": 32}},
    {"rope_scaling": YARN | {"original_max_position_embeddings": None}},
    {"rope_scaling": YARN | {"partial_rotary_factor": 1.0}},
    {"rope_scaling": YARN | {"partial_rotary_factor": True}},
    {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
    {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}},
    {"rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 5.0}}},
]


def configs(family: str) -> list[dict]:
    """Every change on a plain config of the family."""
    base = BASE | {"model_type": family, "architectures": [ARCHITECTURES[family]]}
    return [base | changes for changes in CHANGES + (ROPES if family == "llama" else [])]


def keys_in(text: str) -> set[str]:
    """The keys that the indented lines of a refusal begin with; disagreements are all one."""
    lines = re.findall(r"^ {2,}(\S.*)$", text, re.MULTILINE)
    return {
        "disagree" if "spellings of" in line else line.split(":")[0].split(" ")[0] for line in lines
    }


def by_tools(config: dict) -> set[str]:
    """What judge() refuses."""
    try:
        judge(config)
    except Refusal as refusal:
        return keys_in(str(refusal))
    return set()


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_program_and_tools_refuse_the_same_keys(family, tmp_path):
    plain = fixtures.llama_config()
    tokens = fixtures.write_tokens(tmp_path / "tokens.h5", [[0, 1]])
    refused = 0
    for number, config in enumerate(configs(family)):
        weights = fixtures.write_model(tmp_path / f"{number}.h5", config, fixtures.blank(plain))
        deck = tmp_path / "check.deck"
        deck.write_text(
            f"[job]\nname = score\n[model]\nweights = {weights}\n[data]\ntokens = {tokens}\n"
            f"[output]\nfile = {tmp_path}/out.h5\n"
        )
        done = subprocess.run(
            [ROOT / "foregather", "--check", deck, "--ranks", "2"], capture_output=True, text=True
        )
        # What fits no tensor of this file is refused later, in other words.
        faithful = "cannot be computed faithfully" not in done.stderr
        assert done.returncode == 2, done.stderr
        found = set() if faithful else keys_in(done.stderr)
        assert found == by_tools(config), (config, done.stderr)
        refused += not faithful
    assert 8 < refused < number
