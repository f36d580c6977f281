# SPDX-License-Identifier: Apache-2.0
"""Writes a weights file: /config, /weights/..., /tokenizer and the root attributes.

Decides the file's layout and its content_sha256; which tensors and which config belong in it is
decided before.
"""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from .command_line import check_stop
from .h5_text import write_sealed_text, write_text_attribute
from .part_file import check_output, check_space, new_hdf5_file
from .tensors import RAW_TYPES, Tensor, convert

FORMAT = "foregather.weights"
FORMAT_VERSION = 1


def file_type(dtype: str) -> h5t.TypeID:
    """The HDF5 type in which a tensor lies in the file; bfloat16 is a 16-bit float with its own
    fields.
    """
    if dtype == "float32":
        return h5t.IEEE_F32LE
    if dtype == "float16":
        return h5t.IEEE_F16LE
    bfloat16 = h5t.IEEE_F32LE.copy()
    # Fields first: the size cannot shrink while the old fields reach past it.
    bfloat16.set_fields(15, 7, 8, 0, 7)
    bfloat16.set_size(2)
    bfloat16.set_ebias(127)
    return bfloat16


def type_name(dataset: h5py.Dataset) -> str:
    """float32, float16 or bfloat16: the type of a tensor in a weights file."""
    stored = dataset.id.get_type()
    for name in RAW_TYPES:
        if stored == file_type(name):
            return name
    raise TypeError(f"{dataset.name} holds {stored.dtype}, not float32, float16 or bfloat16")


def read_raw(dataset: h5py.Dataset) -> np.ndarray:
    """A tensor as it lies in the file: bfloat16 as uint16 bits, no conversion by the library."""
    raw = np.empty(dataset.shape, RAW_TYPES[type_name(dataset)])
    dataset.id.read(h5s.ALL, h5s.ALL, raw, mtype=dataset.id.get_type())
    return raw


def dataset_path(name: str) -> str:
    """Where the tensor of a Hugging Face name lies in the file."""
    return "/weights/" + name.replace(".", "/")


def hash_header(name: str, dtype: str, shape: tuple[int, ...]) -> bytes:
    """What content_sha256 takes of a tensor before its bytes: name, dtype, shape, ended by a
    newline.
    """
    return f"{name} {dtype} {','.join(map(str, shape))}\n".encode()


def _create(file: h5py.File, tensor: Tensor, dtype: str) -> h5d.DatasetID:
    """An empty contiguous dataset, its room taken at once and not filled."""
    layout = h5p.create(h5p.DATASET_CREATE)
    layout.set_layout(h5d.CONTIGUOUS)
    layout.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    layout.set_fill_time(h5d.FILL_TIME_NEVER)
    layout.set_obj_track_times(False)
    links = h5p.create(h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    space = h5s.create_simple(tensor.shape)
    path = dataset_path(tensor.name).encode("utf-8")
    return h5d.create(file.id, path, file_type(dtype), space, dcpl=layout, lcpl=links)


def _write(
    file: h5py.File, tensor: Tensor, dtype: str, digest, wrote: Callable[[int], None]
) -> None:
    """Copies one tensor piece by piece, feeding the digest with the bytes as stored."""
    dataset = _create(file, tensor, dtype)
    digest.update(hash_header(tensor.name, dtype, tensor.shape))
    for begin, end in tensor.pieces():
        check_stop()
        raw = np.ascontiguousarray(convert(tensor.read(begin, end), tensor.dtype, dtype))
        target = h5s.create_simple(tensor.shape)
        offset = (begin,) + (0,) * (len(tensor.shape) - 1)
        target.select_hyperslab(offset, raw.shape)
        dataset.write(h5s.create_simple(raw.shape), target, raw, mtype=file_type(dtype))
        digest.update(raw)
        wrote(raw.nbytes)


def write_weights(
    output: Path,
    config_text: str,
    tensors: Iterable[Tensor],
    *,
    source: str,
    tokenizer_text: str | None = None,
    dtype: str | None = None,
    attributes: dict[str, str] | None = None,
    replace: bool = False,
    wrote: Callable[[int], None] = lambda count: None,
) -> str:
    """Writes a weights file and returns its content_sha256.

    `dtype` None keeps each tensor's own type. Free space is checked before the file is begun;
    `wrote` is called with the number of bytes of each piece. Memory: a few pieces of
    tensors.PIECE_BYTES, whatever the size. content_sha256 is SHA-256 over all tensors in sorted
    order of their names: hash_header(), then the stored little-endian bytes.
    """
    ordered = sorted(tensors, key=lambda tensor: tensor.name)
    check_output(output, replace)
    size = sum(tensor.bytes_as(dtype or tensor.dtype) for tensor in ordered)
    size += len(config_text) + len(tokenizer_text or "") * 4 + 4096 * (len(ordered) + 16)
    check_space(output.parent, size, f"the weights file {output.name}")

    digest = hashlib.sha256()
    with new_hdf5_file(output, replace) as file:
        write_text_attribute(file, "format", FORMAT)
        file.attrs["format_version"] = np.int64(FORMAT_VERSION)
        write_text_attribute(file, "source", source)
        for name, value in (attributes or {}).items():
            write_text_attribute(file, name, value)
        write_sealed_text(file, "config", config_text)
        if tokenizer_text is not None:
            write_sealed_text(file, "tokenizer", tokenizer_text)
            sha = hashlib.sha256(tokenizer_text.encode("utf-8")).hexdigest()
            write_text_attribute(file, "tokenizer_sha256", sha)
        for tensor in ordered:
            _write(file, tensor, dtype or tensor.dtype, digest, wrote)
        write_text_attribute(file, "content_sha256", digest.hexdigest())
    return digest.hexdigest()
