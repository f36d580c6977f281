# SPDX-License-Identifier: Apache-2.0
"""Small models of every family and RoPE type, made out of nothing but their names, and their texts.

Decides configs, weights and documents, the same on every machine and with every library; what
transformers computes for them lies in data/families.h5, written by make_families.py.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from foregather_tools.config_law import judge  # noqa: E402
from foregather_tools.model_tensors import expected_tensors  # noqa: E402

EXPECTED = ROOT / "tests" / "golden" / "data" / "families.h5"
LENGTHS = (200, 17, 1, 40)
SHORT = (5,)  # T10
BASE = {
    "hidden_size": 32,
    "intermediate_size": 44,
    "vocab_size": 61,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SLIDING, FULL = "sliding_attention", "full_attention"


def _yarn(**settings: Any) -> dict[str, Any]:
    """Settings of type yarn over 64 original positions."""
    return {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64} | settings


# Name -> keys beside BASE, and what changing them would undo: the reference must tell the two
# apart. model_type is the name's first word.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama-d1-llama3-both-spellings": (
        {
            "rope_theta": 10000.0,
            "rope_scaling": LLAMA3,
            "rope_parameters": LLAMA3 | {"rope_theta": 10000.0},
        },
        {"rope_scaling": None, "rope_parameters": None},
    ),
    "llama-linear-old-spelling": (
        {"rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_scaling": None},
    ),
    "llama-linear-new-spelling-tied": (
        {
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 20000.0},
        },
        {"rope_parameters": {"rope_type": "default", "rope_theta": 20000.0}},
    ),
    "llama-yarn": (
        {"head_dim": 16, "rope_parameters": _yarn(rope_theta=10000.0)},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    ),
    "llama-yarn-attention-factor-not-truncated": (
        {
            "head_dim": 16,
            "rope_theta": 10000.0,
            "rope_scaling": {"type": "yarn"}
            | _yarn(attention_factor=0.7, beta_fast=3.0, beta_slow=0.5, truncate=False),
        },
        {"rope_scaling": _yarn(attention_factor=0.7, beta_fast=3.0, beta_slow=0.5)},
    ),
    "llama-yarn-over-all-positions": (
        {
            "head_dim": 16,
            "max_position_embeddings": 220,
            "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": None},
        },
        {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1.0}},
    ),
    "qwen3-yarn-mscale": (
        {"head_dim": 12, "rope_parameters": _yarn(mscale=3.0, mscale_all_dim=0.5)},
        {"rope_parameters": _yarn(mscale=3.0)},
    ),
    "llama-attention-and-mlp-biases": (
        {"attention_bias": True, "mlp_bias": True},
        {"attention_bias": False, "mlp_bias": False},
    ),
    "mistral-without-window-tied": (
        {"sliding_window": None, "tie_word_embeddings": True, "rope_theta": 1000000.0},
        {"sliding_window": 30},
    ),
    "mistral-window-linear": (
        {"sliding_window": 11, "rope_scaling": {"type": "linear", "factor": 2.0}, "head_dim": 12},
        {"sliding_window": 12},
    ),
    "qwen2-windows-from-layer-1": (
        {
            "num_hidden_layers": 3,
            "use_sliding_window": True,
            "sliding_window": 6,
            "max_window_layers": 1,
        },
        {"max_window_layers": 0},
    ),
    "qwen2-layer-types-tied": (
        {
            "num_hidden_layers": 3,
            "use_sliding_window": True,
            "sliding_window": 6,
            "max_window_layers": 0,
            "layer_types": [SLIDING, FULL, SLIDING],
            "tie_word_embeddings": True,
        },
        {"layer_types": None},
    ),
    "qwen2-window-not-used": (
        {"use_sliding_window": False, "sliding_window": 4, "max_window_layers": 0},
        {"use_sliding_window": True},
    ),
    "qwen3-windows-and-biases": (
        {
            "num_hidden_layers": 3,
            "head_dim": 10,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 9,
            "max_window_layers": 2,
        },
        {"use_sliding_window": False},
    ),
} | {
    # The last token is predicted from four, so that four and more are all there are.
    f"mistral-t10-window-{window}": (
        {"num_hidden_layers": 1, "sliding_window": window},
        {"sliding_window": min(window or 4, 4) - 1},
    )
    for window in (2, 3, 4, 5, None)
}
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def config_of(name: str, undone: bool = False) -> dict[str, Any]:
    """config.json of a case as it is stored; with its point undone where that is asked for."""
    family = name.split("-")[0]
    keys, undo = CASES[name]
    base = BASE | {"model_type": family, "architectures": [ARCHITECTURES[family]]}
    return base | keys | (undo if undone else {})


def _numbers(count: int, seed: int) -> np.ndarray:
    """Even numbers in [-1, 1), by splitmix64: every machine has the same."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed) * np.uint64(1 << 32)
        z *= np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float64) / 2.0**23 - 1.0


def documents_of(name: str) -> list[list[int]]:
    """The case's token ids."""
    lengths = SHORT if "-t10-" in name else LENGTHS
    drawn = (_numbers(sum(lengths), 1) + 1.0) / 2.0 * BASE["vocab_size"]
    ends = np.cumsum(lengths)
    return [ids.tolist() for ids in np.split(drawn.astype(int), ends[:-1])]


def arrays_of(name: str) -> dict[str, np.ndarray]:
    """Weights: near one in their effect, attention sharp enough for windows and RoPE to show."""
    judged, _ = judge(config_of(name))
    arrays = {}
    for index, (tensor, shape) in enumerate(sorted(expected_tensors(judged).items())):
        values = _numbers(math.prod(shape), 2 + index).reshape(shape)
        if "norm" in tensor:
            values = 1.0 + 0.4 * values
        elif tensor.endswith(".bias"):
            values = 0.4 * values
        elif ".q_proj." in tensor or ".k_proj." in tensor:
            values = values * 3.0 / math.sqrt(shape[1])
        else:
            values = values * 1.7 / math.sqrt(shape[1] if "embed" not in tensor else 1)
        arrays[tensor] = values.astype("<f4")
    return arrays


def write_folder(name: str, folder: Path, undone: bool = False) -> Path:
    """The case as a Hugging Face folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(name, undone), indent=2) + "\n")
    save_file(arrays_of(name), folder / "model.safetensors", {"format": "pt"})
    return folder
