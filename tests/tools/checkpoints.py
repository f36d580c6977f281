# SPDX-License-Identifier: Apache-2.0
"""Writes small Hugging Face folders for the tests, right ones and broken ones.

Decides the folders' layout; which fault a folder has is the test's affair.
"""

import json
from pathlib import Path

import numpy as np
from fixtures import bigram_arrays, llama_config, random_arrays
from foregather_tools.tensors import convert
from safetensors import TensorSpec, serialize_file


def write_safetensors(path: Path, arrays: dict[str, np.ndarray], dtype: str = "float32") -> None:
    """One safetensors file, float32 values stored as `dtype`."""
    stored = {
        name: array.astype("<i8") if dtype == "int64" else convert(array, "float32", dtype)
        for name, array in arrays.items()
    }
    # The library reads from the addresses: `stored` lives until it is done.
    entries = {
        name: TensorSpec(
            dtype=dtype, shape=list(raw.shape), data_ptr=raw.ctypes.data, data_len=raw.nbytes
        )
        for name, raw in stored.items()
    }
    serialize_file(entries, str(path), {"format": "pt"})


def write_folder(
    folder: Path,
    config: dict,
    arrays: dict[str, np.ndarray],
    dtype: str = "float32",
    shards: int = 1,
) -> Path:
    """A checkpoint in one file, or in several with their index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", arrays, dtype)
        return folder
    names = sorted(arrays)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: arrays[name] for name in names[shard::shards]}
        write_safetensors(folder / file, part, dtype)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def bigram_folder(folder: Path, **changes) -> Path:
    """F-BG as a folder; a value of ... removes the key."""
    config = llama_config(**{key: value for key, value in changes.items() if value is not ...})
    arrays = bigram_arrays(llama_config())
    kept = {key: value for key, value in config.items() if changes.get(key) is not ...}
    return write_folder(folder, kept, arrays)


def random_folder(folder: Path, dtype: str = "float32", shards: int = 1, **changes) -> Path:
    """A random Llama as a folder."""
    config = llama_config(**changes)
    return write_folder(folder, config, random_arrays(config, 1), dtype, shards)
