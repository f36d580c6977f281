# SPDX-License-Identifier: Apache-2.0
"""Makes a Hugging Face config out of the metadata of a GGUF file of a known architecture.

Decides what each metadata key amounts to, and refuses keys it does not know; tensors are looked at
by name and shape.
"""

from pathlib import Path
from typing import Any

import numpy as np

from .command_line import Refusal, listed
from .config_law import LAW
from .gguf_rope import llama3_scaling

# Architectures whose name and meaning are those of a model_type. Mistral's files say llama.
ARCHITECTURES = ("llama", "qwen2", "qwen3")
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
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
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


class Metadata:
    """The keys of one architecture, without its name before them; knows how to refuse."""

    def __init__(self, path: Path, architecture: str, fields: dict[str, Any]) -> None:
        self.path, self.prefix = path, architecture + "."
        self.own = {
            name.removeprefix(self.prefix): value
            for name, value in fields.items()
            if name.startswith(self.prefix)
        }
        faults = [f"{name}: missing" for name in sorted(NEEDED - self.own.keys())]
        for name, value in self.own.items():
            if name in FIXED:
                if value != FIXED[name]:
                    faults.append(f"{name}: {value} is not supported, only {FIXED[name]}")
            elif name not in NEEDED | OPTIONAL | HARMLESS:
                faults.append(f"{name}: unknown key, it might change the mathematics")
            elif isinstance(value, list):
                faults.append(f"{name}: differs from layer to layer")
        self.refuse(faults)

    def refuse(self, faults: list[str]) -> None:
        """Refuses the file if there are faults; each begins with a key."""
        if faults:
            lines = [self.prefix + fault for fault in faults]
            raise Refusal(listed(f"{self.path} cannot be computed faithfully:", lines))

    def __getitem__(self, name: str) -> Any:
        return self.own[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a key that may be absent."""
        return self.own.get(name, default)


def _head_size(own: Metadata) -> int:
    """The size of a head, on which all keys that speak of it must agree."""
    derived = own["embedding_length"] // own["attention.head_count"]
    size = own.get("attention.key_length") or own.get("rope.dimension_count") or derived
    own.refuse(
        [
            f"{name}: {own[name]} differs from the head size {size}"
            for name in ("rope.dimension_count", "attention.value_length")
            if own.get(name, size) != size
        ]
    )
    return size


def build_config(
    path: Path, fields: dict[str, Any], tensors: list[Any], notes: list[str]
) -> dict[str, Any]:
    """config.json in Hugging Face's words, out of the metadata and the tensors that are there."""
    architecture = fields["general.architecture"]
    own = Metadata(path, architecture, fields)
    by_name = {tensor.name: tensor for tensor in tensors}
    if "token_embd.weight" not in by_name:
        raise Refusal(f"{path} holds no token_embd.weight")
    vocab = int(by_name["token_embd.weight"].shape[1])
    if own.get("vocab_size", vocab) != vocab:
        raise Refusal(
            f"{path}: {own.prefix}vocab_size is {own['vocab_size']}, token_embd.weight has {vocab} "
            "rows"
        )
    config = {
        "architectures": [LAW["families"][architecture]["architecture"]],
        "model_type": architecture,
        "hidden_size": own["embedding_length"],
        "intermediate_size": own["feed_forward_length"],
        "num_hidden_layers": own["block_count"],
        "num_attention_heads": own["attention.head_count"],
        "num_key_value_heads": own.get("attention.head_count_kv", own["attention.head_count"]),
        "head_dim": _head_size(own),
        "vocab_size": vocab,
        "max_position_embeddings": own["context_length"],
        "rms_norm_eps": _number(own["attention.layer_norm_rms_epsilon"]),
        "rope_theta": _number(own.get("rope.freq_base", 10000.0)),
        "rope_scaling": None,
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in by_name,
    }
    biases = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_gate.bias"}
    for key, tensor in biases.items():
        if key in LAW["families"][architecture]["used"]:
            config[key] = tensor in by_name
    if "use_sliding_window" in LAW["families"][architecture]["used"]:
        config["use_sliding_window"] = False
        notes.append("a GGUF file of this architecture tells no sliding window: none is recorded")
    for key in ("bos_token_id", "eos_token_id"):
        if f"tokenizer.ggml.{key}" in fields:
            config[key] = fields[f"tokenizer.ggml.{key}"]
    config["rope_scaling"] = _scaling(own, config, tensors, notes)
    return config


def _scaling(
    own: Metadata, config: dict[str, Any], tensors: list[Any], notes: list[str]
) -> dict[str, Any] | None:
    """The rope_scaling object: from the metadata, or from the tensor of factors that llama3 scaling
    leaves.
    """
    kind = own.get("rope.scaling.type")
    factor = _number(own.get("rope.scaling.factor", 1.0))
    original = own.get("rope.scaling.original_context_length")
    for tensor in tensors:
        if tensor.name == ROPE_FACTORS:
            if kind not in (None, "none"):
                raise Refusal(f"{own.path} holds both {ROPE_FACTORS} and rope scaling {kind}")
            scaling = llama3_scaling(
                np.asarray(tensor.data, np.float64).reshape(-1),
                config["rope_theta"],
                config["head_dim"],
                original,
            )
            notes.append(f"{ROPE_FACTORS} is what rope_scaling {scaling} comes to: recorded so")
            return scaling
    if kind == "none" and factor != 1.0:
        own.refuse([f"rope.scaling.factor: {factor} beside rope.scaling.type none"])
    if kind in (None, "none", "linear"):
        # llama.cpp takes a factor without a type for linear scaling.
        return None if factor == 1.0 else {"rope_type": "linear", "factor": factor}
    # What is not yarn is left for the config law to refuse by name.
    scaling = {"rope_type": kind, "factor": factor}
    named = {
        "original_max_position_embeddings": original,
        "beta_fast": _number(own.get("rope.scaling.yarn_beta_fast")),
        "beta_slow": _number(own.get("rope.scaling.yarn_beta_slow")),
    }
    return scaling | {key: value for key, value in named.items() if value is not None}
