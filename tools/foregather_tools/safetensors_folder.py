# SPDX-License-Identifier: Apache-2.0
"""Reads a Hugging Face folder: config.json, tokenizer.json, and safetensors in one file or several.

Decides which files make the checkpoint and reads their bytes in pieces; whether they fit the config
is judged elsewhere.
"""

import json
import math
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from .command_line import Failure, Refusal, listed
from .tensors import RAW_TYPES, Tensor

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
TYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def read_utf8(path: Path) -> str:
    """The text of a file, or a refusal that says what is wrong with it."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise Refusal(f"{path} does not exist") from None
    except UnicodeDecodeError as error:
        raise Refusal(f"{path} is not UTF-8 text: {error}") from None


def folder_tensors(folder: Path) -> tuple[list[Tensor], list[str]]:
    """All tensors of a folder's checkpoint, unread, and the names of the files that hold them."""
    single, index = folder / SINGLE, folder / INDEX
    if single.exists() and index.exists():
        raise Refusal(f"{folder} holds both {SINGLE} and {INDEX}: remove the one that is not meant")
    if single.exists():
        return _file_tensors(single), [SINGLE]
    if index.exists():
        return _sharded(folder, index)
    others = sorted(path.name for path in folder.glob("*.bin"))
    hint = (
        f" ({', '.join(others)}: pickled weights are not read, convert them to safetensors)"
        if others
        else ""
    )
    raise Refusal(f"{folder} holds neither {SINGLE} nor {INDEX}{hint}")


def _sharded(folder: Path, index: Path) -> tuple[list[Tensor], list[str]]:
    """Tensors of all shards that the index names; index and shards must tell the same names."""
    try:
        weight_map = json.loads(read_utf8(index))["weight_map"]
        pairs = [(str(name), str(file)) for name, file in weight_map.items()]
    except (json.JSONDecodeError, KeyError, AttributeError, TypeError):
        raise Refusal(f"{index}: no object with a weight_map of tensor and file names") from None
    files = sorted({file for _, file in pairs})
    strange = [file for file in files if Path(file).name != file]
    if strange:
        raise Refusal(listed(f"{index} names shards outside its folder:", strange))
    absent = [file for file in files if not (folder / file).is_file()]
    if absent:
        lost = [
            f"{file} (holds {sum(1 for _, f in pairs if f == file)} tensors)" for file in absent
        ]
        raise Refusal(listed(f"{index} names shards that are absent:", lost))
    tensors = {file: _file_tensors(folder / file) for file in files}
    there = {(tensor.name, file) for file, group in tensors.items() for tensor in group}
    faults = [f"missing: {name} is not in {file}" for name, file in sorted(set(pairs) - there)]
    faults += [f"unexpected: {name} in {file}" for name, file in sorted(there - set(pairs))]
    if faults:
        raise Refusal(listed(f"{index} and its shards disagree:", faults))
    return [tensor for file in files for tensor in tensors[file]], files


def _file_tensors(path: Path) -> list[Tensor]:
    """The tensors of one file. The safetensors library judges the file; bytes are read by offset,
    in pieces.

    The library itself would map the whole file, and its numpy side knows no bfloat16.
    """
    try:
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise Refusal(f"{path} is no whole safetensors file: {error}") from None
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    strange = [
        f"{name}: {entry['dtype']}" for name, entry in header.items() if entry["dtype"] not in TYPES
    ]
    strange += [f"{name}: a scalar" for name, entry in header.items() if not entry["shape"]]
    if strange:
        raise Refusal(
            listed(f"{path} holds what is not supported (only {', '.join(TYPES)}):", strange)
        )
    return [
        _tensor(
            path,
            name,
            TYPES[entry["dtype"]],
            tuple(entry["shape"]),
            8 + length + entry["data_offsets"][0],
        )
        for name, entry in header.items()
    ]


def _tensor(path: Path, name: str, dtype: str, shape: tuple[int, ...], start: int) -> Tensor:
    """A tensor whose rows are read from the file when they are asked for."""
    raw = RAW_TYPES[dtype]
    row_bytes = math.prod(shape[1:]) * raw.itemsize

    def read(begin: int, end: int) -> np.ndarray:
        count = (end - begin) * row_bytes
        with path.open("rb") as file:
            file.seek(start + begin * row_bytes)
            data = file.read(count)
        if len(data) != count:
            raise Failure(f"{path} ended while {name} was read: it is being changed")
        return np.frombuffer(data, raw).reshape(end - begin, *shape[1:])

    return Tensor(name, dtype, shape, read)
