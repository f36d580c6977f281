# SPDX-License-Identifier: Apache-2.0
"""Writes tensors as safetensors, in one file or in several with their index.

Decides which tensor goes to which file and the bytes of the files; the tensors and their type are
decided before.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .command_line import check_stop
from .safetensors_folder import INDEX, SINGLE, TYPES
from .tensors import RAW_TYPES, Tensor, convert

NAMES = {dtype: name for name, dtype in TYPES.items()}


def in_model_order(tensors: list[Tensor]) -> list[Tensor]:
    """As a model runs through them: embedding, layers by number, final norm, head."""

    def key(tensor: Tensor) -> tuple:
        words = [int(word) if word.isdigit() else word for word in re.split(r"[.]", tensor.name)]
        place = 0 if "embed" in tensor.name else 1 if ".layers." in tensor.name else 2
        return place, tensor.name.startswith("lm_head"), [(isinstance(w, str), w) for w in words]

    return sorted(tensors, key=key)


def shards(tensors: list[Tensor], dtype: str | None, limit: int) -> dict[str, list[Tensor]]:
    """File name -> its tensors, in order: a file is begun where the next tensor would bring the
    last one above `limit` bytes. A tensor is never cut, so one above the limit has its own file.
    """
    groups: list[list[Tensor]] = [[]]
    filled = 0
    for tensor in tensors:
        size = tensor.bytes_as(dtype or tensor.dtype)
        if groups[-1] and filled + size > limit:
            groups.append([])
            filled = 0
        groups[-1].append(tensor)
        filled += size
    if len(groups) == 1:
        return {SINGLE: groups[0]}
    count = len(groups)
    return {
        f"model-{number:05}-of-{count:05}.safetensors": group
        for number, group in enumerate(groups, 1)
    }


def write_index(path: Path, files: dict[str, list[Tensor]], dtype: str | None) -> None:
    """The index of a checkpoint in several files."""
    everything = [tensor for group in files.values() for tensor in group]
    index = {
        "metadata": {
            "total_parameters": sum(tensor.elements for tensor in everything),
            "total_size": sum(tensor.bytes_as(dtype or tensor.dtype) for tensor in everything),
        },
        "weight_map": {tensor.name: file for file, group in files.items() for tensor in group},
    }
    path.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def write_file(
    path: Path, tensors: list[Tensor], dtype: str | None, wrote: Callable[[int], None]
) -> None:
    """One safetensors file: length of the header, header, bytes of the tensors end to end.

    Wider types come first, so that each tensor is aligned to its type. Memory: a few pieces of
    tensors.PIECE_BYTES.
    """
    sizes = {tensor.name: RAW_TYPES[dtype or tensor.dtype].itemsize for tensor in tensors}
    ordered = sorted(tensors, key=lambda tensor: -sizes[tensor.name])
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in ordered:
        end = offset + tensor.bytes_as(dtype or tensor.dtype)
        header[tensor.name] = {
            "dtype": NAMES[dtype or tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in ordered:
            for begin, end in tensor.pieces():
                check_stop()
                raw = convert(tensor.read(begin, end), tensor.dtype, dtype or tensor.dtype)
                file.write(np.ascontiguousarray(raw).data)
                wrote(raw.nbytes)


def write_folder(
    folder: Path,
    tensors: list[Tensor],
    dtype: str | None,
    limit: int,
    wrote: Callable[[int], None] = lambda count: None,
) -> list[str]:
    """Writes all tensors to a folder, files of at most `limit` bytes, and gives their names.

    `dtype` None keeps each tensor's own type; `wrote` is called with the bytes of each piece.
    """
    files = shards(in_model_order(tensors), dtype, limit)
    for name, group in files.items():
        write_file(folder / name, group, dtype, wrote)
    if len(files) > 1:
        write_index(folder / INDEX, files, dtype)
    return list(files)
