# SPDX-License-Identifier: Apache-2.0
"""A Llama forward pass in float64 with numpy alone, written for reading: the yardstick of the
tests.

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


def inverse_frequencies(config: dict[str, Any]) -> np.ndarray:
    """[D/2] rotation per position of each pair; type llama3 slows the long waves down."""
    block = (config.get("rope_scaling") or {}) | (config.get("rope_parameters") or {})
    theta = block.get("rope_theta", config.get("rope_theta"))
    size = config["head_dim"]
    frequencies = theta ** (-np.arange(0, size, 2) / size)
    kind = block.get("rope_type", block.get("type", "default"))
    if kind == "default":
        return frequencies
    assert kind == "llama3", kind
    factor, low, high = block["factor"], block["low_freq_factor"], block["high_freq_factor"]
    turns = block["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    # 0: fewer turns over the original context than `low`, fully slowed; 1: more than `high`, as it
    # was.
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return frequencies * (share + (1 - share) / factor)


def rotate(x: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """x [T, heads, D]: pairs are (i, i + D/2), as Hugging Face stores them."""
    angles = np.arange(x.shape[0])[:, None] * frequencies
    cosine, sine = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    half = x.shape[-1] // 2
    left, right = x[..., :half], x[..., half:]
    return np.concatenate([left * cosine - right * sine, right * cosine + left * sine], axis=-1)


def attention(config: dict[str, Any], linear, x: np.ndarray) -> np.ndarray:
    """x [T, C] -> [T, C]; query head h reads key head h // (H / K)."""
    tokens, size = x.shape[0], config["head_dim"]
    frequencies = inverse_frequencies(config)
    q = rotate(linear("self_attn.q_proj", x).reshape(tokens, -1, size), frequencies)
    k = rotate(linear("self_attn.k_proj", x).reshape(tokens, -1, size), frequencies)
    v = linear("self_attn.v_proj", x).reshape(tokens, -1, size)
    shared = q.shape[1] // k.shape[1]
    future = np.triu(np.ones((tokens, tokens), bool), 1)
    heads = []
    for head in range(q.shape[1]):
        scores = q[:, head] @ k[:, head // shared].T / math.sqrt(size)
        scores[future] = -np.inf
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

        x = x + attention(
            config, linear, rms_norm(x, arrays[prefix + "input_layernorm.weight"], epsilon)
        )
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
