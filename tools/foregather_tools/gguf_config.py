# SPDX-License-Identifier: Apache-2.0
"""Makes a Hugging Face config out of the metadata of a GGUF file of architecture llama.

Decides what each metadata key amounts to, and refuses keys it does not know; tensors are looked at
by name and shape.
"""

from pathlib import Path
from typing import Any

import numpy as np

from .command_line import Refusal, listed
from .gguf_rope import llama3_scaling

ARCHITECTURE = "llama"
PREFIX = ARCHITECTURE + "."
ROPE_FACTORS = "rope_freqs.weight"
NEEDED = {
    "attention.head_count",
    "attention.layer_norm_rms_epsilon",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
}
OPTIONAL = {
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "vocab_size",
}
FIXED = {
    "attention.causal": True,
    "expert_count": 0,
    "expert_used_count": 0,
    "rope.scale_linear": 1.0,
    "tensor_data_layout": "Meta AI original pth",
}
HARMLESS = {"rope.scaling.finetuned"}


def _number(value: Any) -> Any:
    """Metadata floats are float32: the shortest decimal that names it is what the checkpoint's
    author wrote.
    """
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _own_keys(path: Path, fields: dict[str, Any]) -> dict[str, Any]:
    """The keys of llama.*, without that prefix; an unknown one might change the mathematics."""
    own = {
        name.removeprefix(PREFIX): value
        for name, value in fields.items()
        if name.startswith(PREFIX)
    }
    faults = [f"{PREFIX}{name}: missing" for name in sorted(NEEDED - own.keys())]
    for name, value in own.items():
        if name in FIXED:
            if value != FIXED[name]:
                faults.append(f"{PREFIX}{name}: {value} is not supported, only {FIXED[name]}")
        elif name not in NEEDED | OPTIONAL | HARMLESS:
            faults.append(f"{PREFIX}{name}: unknown key, it might change the mathematics")
        elif isinstance(value, list):
            faults.append(f"{PREFIX}{name}: differs from layer to layer")
    if faults:
        raise Refusal(listed(f"{path} cannot be computed faithfully:", faults))
    return own


def _head_size(path: Path, own: dict[str, Any]) -> int:
    """The size of a head, on which all keys that speak of it must agree."""
    derived = own["embedding_length"] // own["attention.head_count"]
    size = own.get("attention.key_length") or own.get("rope.dimension_count") or derived
    faults = [
        f"{PREFIX}{name}: {own[name]} differs from the head size {size}"
        for name in ("rope.dimension_count", "attention.value_length")
        if own.get(name, size) != size
    ]
    if faults:
        raise Refusal(listed(f"{path} cannot be computed faithfully:", faults))
    return size


def build_config(
    path: Path, fields: dict[str, Any], tensors: list[Any], notes: list[str]
) -> dict[str, Any]:
    """config.json in Hugging Face's words, out of the metadata and the tensors that are there."""
    own = _own_keys(path, fields)
    by_name = {tensor.name: tensor for tensor in tensors}
    if "token_embd.weight" not in by_name:
        raise Refusal(f"{path} holds no token_embd.weight")
    vocab = int(by_name["token_embd.weight"].shape[1])
    if own.get("vocab_size", vocab) != vocab:
        raise Refusal(
            f"{path}: {PREFIX}vocab_size is {own['vocab_size']}, token_embd.weight has {vocab} rows"
        )
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": own["embedding_length"],
        "intermediate_size": own["feed_forward_length"],
        "num_hidden_layers": own["block_count"],
        "num_attention_heads": own["attention.head_count"],
        "num_key_value_heads": own.get("attention.head_count_kv", own["attention.head_count"]),
        "head_dim": _head_size(path, own),
        "vocab_size": vocab,
        "max_position_embeddings": own["context_length"],
        "rms_norm_eps": _number(own["attention.layer_norm_rms_epsilon"]),
        "rope_theta": _number(own.get("rope.freq_base", 10000.0)),
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": "blk.0.attn_q.bias" in by_name,
        "mlp_bias": "blk.0.ffn_gate.bias" in by_name,
        "tie_word_embeddings": "output.weight" not in by_name,
    }
    for key in ("bos_token_id", "eos_token_id"):
        if f"tokenizer.ggml.{key}" in fields:
            config[key] = fields[f"tokenizer.ggml.{key}"]
    config["rope_scaling"] = _scaling(path, own, config, tensors, notes)
    return config


def _scaling(
    path: Path, own: dict[str, Any], config: dict[str, Any], tensors: list[Any], notes: list[str]
) -> dict[str, Any] | None:
    """The rope_scaling object: from the metadata, or from the tensor of factors that llama3 scaling
    leaves.
    """
    kind = own.get("rope.scaling.type", "none")
    factor = _number(own.get("rope.scaling.factor", 1.0))
    named = {"rope_type": kind, "factor": factor}
    for tensor in tensors:
        if tensor.name == ROPE_FACTORS:
            if kind != "none":
                raise Refusal(f"{path} holds both {ROPE_FACTORS} and rope scaling {kind}")
            scaling = llama3_scaling(
                np.asarray(tensor.data, np.float64).reshape(-1),
                config["rope_theta"],
                config["head_dim"],
                own.get("rope.scaling.original_context_length"),
            )
            notes.append(f"{ROPE_FACTORS} is what rope_scaling {scaling} comes to: recorded so")
            return scaling
    if kind in ("none", "linear") and factor == 1.0:
        return None
    # Left for the config law to refuse by name.
    return named if kind != "none" else {"rope_type": "linear", "factor": factor}
