# SPDX-License-Identifier: Apache-2.0
"""Reads a GGUF file of architecture llama, qwen2 or qwen3 as if it were a Hugging Face checkpoint.

Decides the names of its tensors and the row order of q and k; the config is made in gguf_config,
and values are dequantised by the gguf package.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from .command_line import Refusal, listed
from .gguf_config import ARCHITECTURES, ROPE_FACTORS, build_config
from .gguf_tokenizer import build_tokenizer
from .tensors import Tensor

OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@dataclass
class GgufModel:
    """What a GGUF file gives: a config in Hugging Face's words, unread tensors, a tokenizer.json if
    one can be built.
    """

    config: dict[str, Any]
    tensors: list[Tensor]
    tokenizer_text: str | None
    notes: list[str]


def read(path: Path) -> GgufModel:
    """Opens the file; refuses what it holds that cannot be represented."""
    try:
        reader = gguf.GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
        raise Refusal(f"{path} is no whole GGUF file: {error}") from None
    architecture = fields.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise Refusal(
            f"{path}: architecture {architecture} is not supported, only {', '.join(ARCHITECTURES)}"
        )
    if fields.get("split.count", 1) > 1:
        raise Refusal(
            f"{path} is one of {fields['split.count']} parts: merge them with gguf-split first"
        )
    notes: list[str] = []
    config = build_config(path, fields, reader.tensors, notes)
    tokenizer_text, said = build_tokenizer(fields)
    notes.append(said)
    return GgufModel(config, _tensors(path, reader.tensors, config), tokenizer_text, notes)


def _hugging_face_name(name: str) -> str:
    """The Hugging Face name; a tensor that has none keeps its own and is refused as unexpected."""
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match and match[2] in INNER:
        return f"model.layers.{match[1]}.{INNER[match[2]]}.{match[3]}"
    return OUTER.get(name, name)


def _tensors(path: Path, found: list[Any], config: dict[str, Any]) -> list[Tensor]:
    """All tensors as float32, under their Hugging Face names; q and k of architecture llama with
    their rows put back, which llama.cpp permutes for no other one.
    """
    unreadable = []
    for kind in sorted({tensor.tensor_type for tensor in found}):
        try:
            sample = next(tensor for tensor in found if tensor.tensor_type == kind)
            gguf.dequantize(sample.data[:1], kind)
        except NotImplementedError:
            unreadable.append(f"{kind.name} (of {sample.name})")
    if unreadable:
        raise Refusal(
            listed(f"{path} holds types that the gguf package cannot dequantise:", unreadable)
        )
    permuted = config["model_type"] == "llama"
    tensors = []
    for tensor in found:
        if tensor.name == ROPE_FACTORS:
            continue
        name = _hugging_face_name(tensor.name)
        shape = tuple(int(extent) for extent in reversed(tensor.shape))
        rotated = permuted and re.search(r"\.self_attn\.[qk]_proj\.", name)
        group = config["head_dim"] if rotated else 1
        tensors.append(Tensor(name, "float32", shape, _reader(tensor, group), group))
    return tensors


def _reader(tensor: Any, group: int):
    """Rows as float32; group above 1 is a head's size, whose rows llama.cpp stores as 0, D/2, 1,
    D/2 + 1, ...
    """

    def read(begin: int, end: int) -> np.ndarray:
        values = np.asarray(gguf.dequantize(tensor.data[begin:end], tensor.tensor_type), "<f4")
        if group == 1:
            return values
        pairs = values.reshape(-1, group // 2, 2, *values.shape[1:])
        return pairs.swapaxes(1, 2).reshape(values.shape)

    return read
