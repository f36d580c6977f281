# SPDX-License-Identifier: Apache-2.0
"""Writes tiny GGUF files of all known architectures with the gguf package's own writer.

Decides how a Hugging Face checkpoint looks as GGUF, the row order of q and k included; written
apart from the reader.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """token_embd.weight for model.embed_tokens.weight, blk.0.attn_q.bias for ... and so on."""
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[rest]}.{kind}"
    return f"{NAMES[stem]}.{kind}"


def permute(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a head in the order 0, D/2, 1, D/2 + 1, ...: row by row, so that the order is plain
    to see.
    """
    size = rows.shape[0] // heads
    order = [
        head * size + half * (size // 2) + i
        for head in range(heads)
        for i in range(size // 2)
        for half in (0, 1)
    ]
    return rows[order]


def write_gguf(
    path: Path,
    config: dict[str, Any],
    arrays: dict[str, np.ndarray],
    *,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    architecture: str = "llama",
    extra: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
    tokenizer: dict[str, Any] | None = None,
) -> Path:
    """A GGUF file; matrices are stored as `kind`. `extra` are further keys (without the
    architecture's name), None removes one; `tensors` are further tensors under their GGUF names.
    """
    keys = {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.dimension_count": config["head_dim"],
        "rope.freq_base": config["rope_theta"],
    } | (extra or {})
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in keys.items():
        if isinstance(value, float):
            writer.add_float32(f"{architecture}.{name}", value)
        elif isinstance(value, str):
            writer.add_string(f"{architecture}.{name}", value)
        elif isinstance(value, list):
            writer.add_array(f"{architecture}.{name}", value)
        elif value is not None:
            writer.add_uint32(f"{architecture}.{name}", value)
    for name, value in (tokenizer or {}).items():
        add = {str: writer.add_string, int: writer.add_uint32, list: writer.add_array}[type(value)]
        add(f"tokenizer.ggml.{name}", value)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, array in arrays.items():
        for projection, count in heads.items():
            if architecture == "llama" and f".{projection}." in name:
                array = permute(array, count)
        stored = kind if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), gguf.quantize(array, stored), raw_dtype=stored)
    for name, array in (tensors or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
