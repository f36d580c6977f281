# SPDX-License-Identifier: Apache-2.0
"""Names and shapes of the tensors that a judged config calls for, and the check of a checkpoint
against them.

Decides what is missing, unexpected or misshaped; reads no values except to compare a tied head with
its embedding.
"""

import re
from typing import Any

import numpy as np

from .command_line import Refusal, check_stop, listed
from .config_law import tensor_kinds
from .tensors import Tensor, convert

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"

# Buffers that old checkpoints carry and that follow from the config.
DERIVED = re.compile(r"(^|\.)rotary_emb\.inv_freq$")


def expected_tensors(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor of a config that config_law.judge has completed."""
    width, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    has = tensor_kinds(config)
    matrices = {
        "self_attn.q_proj": (queries, width, has["qkv_bias"]),
        "self_attn.k_proj": (keys, width, has["qkv_bias"]),
        "self_attn.v_proj": (keys, width, has["qkv_bias"]),
        "self_attn.o_proj": (width, queries, has["output_bias"]),
        "mlp.gate_proj": (ffn, width, has["mlp_bias"]),
        "mlp.up_proj": (ffn, width, has["mlp_bias"]),
        "mlp.down_proj": (width, ffn, has["mlp_bias"]),
    }
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (vocab, width), "model.norm.weight": (width,)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (width,)
        shapes[prefix + "post_attention_layernorm.weight"] = (width,)
        for name, (rows, columns, bias) in matrices.items():
            shapes[f"{prefix}{name}.weight"] = (rows, columns)
            if bias:
                shapes[f"{prefix}{name}.bias"] = (rows,)
        if has["qk_norm"]:
            for name in ("q_norm", "k_norm"):
                shapes[f"{prefix}self_attn.{name}.weight"] = (config["head_dim"],)
    if not config["tie_word_embeddings"]:
        shapes[HEAD] = (vocab, width)
    return shapes


def select_tensors(config: dict[str, Any], found: list[Tensor], notes: list[str]) -> list[Tensor]:
    """The tensors to store, out of those found in a checkpoint.

    Refuses missing, unexpected, misshaped and wrongly typed tensors, all listed at once. Drops
    derived buffers and the second copy of a tied embedding, and notes it.
    """
    expected = expected_tensors(config)
    derived = [tensor.name for tensor in found if DERIVED.search(tensor.name)]
    if derived:
        notes.append(
            f"dropped {len(derived)} buffers that follow from the config: {', '.join(derived)}"
        )
    by_name = {tensor.name: tensor for tensor in found if not DERIVED.search(tensor.name)}
    head = by_name.pop(HEAD, None) if config["tie_word_embeddings"] else None

    faults = [f"missing: {name} {shape}" for name, shape in expected.items() if name not in by_name]
    if HEAD in expected and HEAD not in by_name:
        faults.append(
            "(the config says that the head is not tied to the embedding, tie_word_embeddings "
            "false)"
        )
    for name, tensor in sorted(by_name.items()):
        if name not in expected:
            faults.append(f"unexpected: {name} {tensor.shape}")
        elif tensor.shape != expected[name]:
            faults.append(
                f"misshaped: {name} is {tensor.shape}, the config asks for {expected[name]}"
            )
    if head is not None and head.shape != expected[EMBEDDING]:
        faults.append(
            f"misshaped: {HEAD} is {head.shape}, the tied embedding is {expected[EMBEDDING]}"
        )
    if faults:
        raise Refusal(listed("the tensors do not fit the config:", faults))
    if head is not None:
        _check_tied(by_name[EMBEDDING], head)
        notes.append(f"{HEAD} equals the embedding it is tied to: stored once")
    return list(by_name.values())


def _check_tied(embedding: Tensor, head: Tensor) -> None:
    """Refuses a tied head that is not the embedding, value by value."""
    for begin, end in embedding.pieces():
        check_stop()
        left = convert(embedding.read(begin, end), embedding.dtype, "float32")
        right = convert(head.read(begin, end), head.dtype, "float32")
        rows = np.flatnonzero((left.view("<u4") != right.view("<u4")).any(axis=1))
        if rows.size:
            raise Refusal(
                "the config ties the head to the embedding (tie_word_embeddings true), but "
                f"{HEAD} differs from {EMBEDDING}, first in row {begin + int(rows[0])}: set the "
                "flag to what the model is"
            )
