#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes data/gradients.h5 anew: gradients of small models of every family, by PyTorch.

Decides configs and documents of tests/unit/model/backward_test.cpp, which reads them from the file
and makes the same weights from the same seed; gradients lie one behind the other, by their tensors'
names. It needs torch (2.15 made what is here), transformers (5.24), h5py and safetensors; the tests
never need this script.
"""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from family_cases import ARCHITECTURES, LLAMA3, ROOT
from foregather_tools.config_law import judge
from foregather_tools.model_tensors import expected_tensors
from make_expected import mean_loss
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM

GRADIENTS = ROOT / "tests" / "golden" / "data" / "gradients.h5"
SEED = 11
SCALE = 0.8
LENGTHS = (40, 1, 2, 17)
SLIDING, FULL = "sliding_attention", "full_attention"
BASE = {
    "hidden_size": 16,
    "intermediate_size": 20,
    "vocab_size": 37,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
# Name -> keys beside BASE; model_type is the name's first word.
CASES: dict[str, dict[str, Any]] = {
    "llama_biases": {"attention_bias": True, "mlp_bias": True},
    "llama_tied_odd": {
        "hidden_size": 20,
        "intermediate_size": 23,
        "num_key_value_heads": 1,
        "head_dim": 6,
        "tie_word_embeddings": True,
    },
    "llama_wide_heads": {"head_dim": 12, "rope_scaling": LLAMA3},
    "llama_one_layer": {"num_hidden_layers": 1, "num_key_value_heads": 4, "rms_norm_eps": 0.3},
    "llama_yarn": {
        "head_dim": 8,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    },
    "mistral_window": {"sliding_window": 5},
    "qwen2_windows": {
        "use_sliding_window": True,
        "sliding_window": 6,
        "max_window_layers": 1,
    },
    "qwen3_biases_windows_tied": {
        "attention_bias": True,
        "use_sliding_window": True,
        "sliding_window": 9,
        "layer_types": [SLIDING, FULL],
        "tie_word_embeddings": True,
    },
}


def arrays_of(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """Numbers in [-SCALE, SCALE) by the linear congruence of the unit tests, tensors by name."""
    judged, _ = judge(config)
    seed, arrays = SEED, {}
    for name, shape in sorted(expected_tensors(judged).items()):
        values = np.empty(math.prod(shape), np.float32)
        for i in range(values.size):
            seed = (seed * 1664525 + 1013904223) % (1 << 32)
            values[i] = np.float32(SCALE) * (np.float32(seed >> 8) / np.float32(1 << 23) - 1)
        arrays[name] = values.reshape(shape)
    return arrays


def model_of(config: dict[str, Any], folder: Path):
    """The model of transformers, every weight loaded."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(arrays_of(config), folder / "model.safetensors", {"format": "pt"})
    model, said = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not said["missing_keys"] and not said["unexpected_keys"], (folder.name, said)
    return model


def main() -> None:
    """Writes the file."""
    torch.set_num_threads(1)
    drawn = torch.from_numpy(np.arange(sum(LENGTHS)) ** 2 * 7 % 37 * 5 % 37)
    documents = list(drawn.split(LENGTHS))
    part = GRADIENTS.with_name(GRADIENTS.name + ".part")
    with tempfile.TemporaryDirectory() as folder, h5py.File(part, "w") as file:
        file["tokens"] = drawn.numpy().astype(np.uint32)
        file["offsets"] = np.cumsum((0, *LENGTHS))
        for name, keys in CASES.items():
            family = name.split("_")[0]
            words = {"model_type": family, "architectures": [ARCHITECTURES[family]]}
            config = BASE | words | keys
            model = model_of(config, Path(folder) / name)
            loss = mean_loss(model, documents)
            loss.backward()
            group = file.create_group(name)
            group["config"] = json.dumps(config)
            group["loss"] = np.array([loss.item()])
            gradients = {n: p.grad.numpy().ravel() for n, p in model.named_parameters()}
            group["gradients"] = np.concatenate([gradients[n] for n in sorted(gradients)])
            print(f"{name}: loss {loss.item():.4f}")
    part.rename(GRADIENTS)


if __name__ == "__main__":
    main()
