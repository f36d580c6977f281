# SPDX-License-Identifier: Apache-2.0
"""A forward pass of Llama and its kin in float64 with numpy alone, written for reading: the
yardstick of the tests.

Decides nothing about files: it takes a complete config and arrays. It is slow, and keeps whole
attention matrices.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np


@dataclass
class Scores:
    """What one document gives; T tokens, V vocabulary, C width."""

    logprob: np.ndarray  # [T], NaN for the first token
    entropy: np.ndarray  # [T], of the distribution predicted after each token, nats
    logits: np.ndarray  # [T, V]
    hidden: np.ndarray  # [T, C], after the final norm


def read_weights(path: Path, dtype=np.float64) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The config and the arrays of a weights file, under their Hugging Face names."""
    arrays = {}

    def visit(name: str, item) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name.replace("/", ".")] = item[()].astype(dtype, copy=False)

    with h5py.File(path) as file:
        file["weights"].visititems(visit)
        return json.loads(file["config"][()]), arrays


def read_documents(path: Path) -> list[np.ndarray]:
    """The documents of a token file."""
    with h5py.File(path) as file:
        tokens, offsets = file["tokens"][()].astype(np.int64), file["offsets"][()]
    return [tokens[begin:end] for begin, end in zip(offsets[:-1], offsets[1:])]


def rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    """Rows of x divided by their root mean square, times weight."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def rope_block(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of either spelling, base included."""
    block = (config.get("rope_scaling") or {}) | (config.get("rope_parameters") or {})
    block.setdefault("rope_theta", config.get("rope_theta"))
    block.setdefault("rope_type", block.get("type", "default"))
    return block


def inverse_frequencies(config: dict[str, Any]) -> np.ndarray:
    """[D/2] rotation per position of each pair; all types but default slow the long waves down."""
    block, size = rope_block(config), config["head_dim"]
    theta, kind = block["rope_theta"], block["rope_type"]
    frequencies = theta ** (-np.arange(0, size, 2) / size)
    if kind == "default":
        return frequencies
    factor = block["factor"]
    if kind == "linear":
        return frequencies / factor
    # 1: as it was; 0: fully slowed.
    if kind == "llama3":
        low, high = block["low_freq_factor"], block["high_freq_factor"]
        turns = block["original_max_position_embeddings"] * frequencies / (2 * math.pi)
        share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    else:
        assert kind == "yarn", kind
        share = 1.0 - np.clip(yarn_ramp(block, size), 0.0, 1.0)
    return frequencies * (share + (1 - share) / factor)


def yarn_ramp(block: dict[str, Any], size: int) -> np.ndarray:
    """[D/2], rising from 0 to 1 between the dimensions that turn beta_fast and beta_slow times over
    the original positions.
    """
    turns = [block.get("beta_fast") or 32, block.get("beta_slow") or 1]
    waves = block["original_max_position_embeddings"] / (2 * math.pi * np.array(turns))
    first, last = size * np.log(waves) / (2 * math.log(block["rope_theta"]))
    if block.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    return (np.arange(size // 2) - first) / (last - first if last != first else 0.001)


def attention_factor(config: dict[str, Any]) -> float:
    """What yarn multiplies cosines and sines by; one for all other types."""
    block = rope_block(config)
    if block["rope_type"] != "yarn":
        return 1.0
    if block.get("attention_factor") is not None:
        return block["attention_factor"]
    scaled = [
        1.0 + 0.1 * (block.get(name) or 0.0) * math.log(max(block["factor"], 1.0))
        for name in ("mscale", "mscale_all_dim")
    ]
    if block.get("mscale") and block.get("mscale_all_dim"):
        return scaled[0] / scaled[1]
    return 1.0 + 0.1 * math.log(max(block["factor"], 1.0))


def window_of(config: dict[str, Any], layer: int) -> int | None:
    """How many keys a query of this layer sees, itself included; None: all."""
    family = config["model_type"]
    if family == "mistral":
        return config["sliding_window"]
    if family not in ("qwen2", "qwen3") or not config["use_sliding_window"]:
        return None
    if config.get("layer_types") is not None:
        slides = config["layer_types"][layer] == "sliding_attention"
    else:
        slides = layer >= config["max_window_layers"]
    return config["sliding_window"] if slides else None


def rotate(x: np.ndarray, frequencies: np.ndarray, scale: float) -> np.ndarray:
    """x [T, heads, D]: pairs are (i, i + D/2), as Hugging Face stores them."""
    angles = np.arange(x.shape[0])[:, None] * frequencies
    cosine, sine = scale * np.cos(angles)[:, None, :], scale * np.sin(angles)[:, None, :]
    half = x.shape[-1] // 2
    left, right = x[..., :half], x[..., half:]
    return np.concatenate([left * cosine - right * sine, right * cosine + left * sine], axis=-1)


def attention(
    config: dict[str, Any], linear, norm, x: np.ndarray, window: int | None
) -> np.ndarray:
    """x [T, C] -> [T, C]; query head h reads key head h // (H / K). `norm` norms each head of q and
    k, where the family does.
    """
    tokens, size = x.shape[0], config["head_dim"]
    rope = inverse_frequencies(config), attention_factor(config)
    q = rotate(norm("q_norm", linear("self_attn.q_proj", x).reshape(tokens, -1, size)), *rope)
    k = rotate(norm("k_norm", linear("self_attn.k_proj", x).reshape(tokens, -1, size)), *rope)
    v = linear("self_attn.v_proj", x).reshape(tokens, -1, size)
    shared = q.shape[1] // k.shape[1]
    hidden = np.triu(np.ones((tokens, tokens), bool), 1)
    if window is not None:
        hidden |= np.tril(np.ones((tokens, tokens), bool), -window)
    heads = []
    for head in range(q.shape[1]):
        scores = q[:, head] @ k[:, head // shared].T / math.sqrt(size)
        scores[hidden] = -np.inf
        weight = np.exp(scores - scores.max(axis=-1, keepdims=True))
        heads.append(weight / weight.sum(axis=-1, keepdims=True) @ v[:, head // shared])
    return linear("self_attn.o_proj", np.concatenate(heads, axis=-1))


def forward(config: dict[str, Any], arrays: dict[str, np.ndarray], tokens: np.ndarray) -> Scores:
    """Scores of one document of at least one token."""
    epsilon = config["rms_norm_eps"]
    embedding = arrays["model.embed_tokens.weight"]
    x = embedding[tokens]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."

        def linear(name: str, values: np.ndarray, prefix: str = prefix) -> np.ndarray:
            out = values @ arrays[f"{prefix}{name}.weight"].T
            return out + arrays.get(f"{prefix}{name}.bias", 0.0)

        def norm(name: str, heads: np.ndarray, prefix: str = prefix) -> np.ndarray:
            weight = arrays.get(f"{prefix}self_attn.{name}.weight")
            return heads if weight is None else rms_norm(heads, weight, epsilon)

        y = rms_norm(x, arrays[prefix + "input_layernorm.weight"], epsilon)
        x = x + attention(config, linear, norm, y, window_of(config, layer))
        y = rms_norm(x, arrays[prefix + "post_attention_layernorm.weight"], epsilon)
        gate = linear("mlp.gate_proj", y)
        x = x + linear("mlp.down_proj", gate / (1 + np.exp(-gate)) * linear("mlp.up_proj", y))
    hidden = rms_norm(x, arrays["model.norm.weight"], epsilon)
    head = embedding if config["tie_word_embeddings"] else arrays["lm_head.weight"]
    logits = hidden @ head.T
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    logprob = np.full(len(tokens), np.nan)
    logprob[1:] = logs[np.arange(len(tokens) - 1), tokens[1:]]
    return Scores(logprob, -(np.exp(logs) * logs).sum(axis=-1), logits, hidden)


def score(weights: Path, tokens: Path) -> list[Scores]:
    """Scores of every document of a token file under a weights file; empty documents give empty
    arrays.
    """
    config, arrays = read_weights(weights)
    return [forward(config, arrays, document) for document in read_documents(tokens)]
