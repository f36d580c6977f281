# SPDX-License-Identifier: Apache-2.0
"""Strings in HDF5 as every foregather file holds them: fixed length, null padded, UTF-8.

Decides the string type, and the checksum of a dataset; long texts are datasets because attributes
end at 64 KiB.
"""

import hashlib

import h5py
import numpy as np


def _fixed(text: str) -> tuple[np.ndarray, np.dtype]:
    data = text.encode("utf-8")
    dtype = h5py.string_dtype("utf-8", max(len(data), 1))
    return np.array(data, dtype=dtype), dtype


def write_text(group: h5py.Group, name: str, text: str) -> None:
    """Writes text as a scalar dataset."""
    data, dtype = _fixed(text)
    group.create_dataset(name, data=data, dtype=dtype)


def seal(dataset: h5py.Dataset, digest) -> None:
    """Gives a dataset the attribute sha256: of its values as they are stored, end to end."""
    write_text_attribute(dataset, "sha256", digest.hexdigest())


def write_sealed_text(group: h5py.Group, name: str, text: str) -> None:
    """Writes text as a scalar dataset that the program compares with its checksum."""
    write_text(group, name, text)
    seal(group[name], hashlib.sha256(_fixed(text)[0].tobytes()))


def write_texts(group: h5py.Group, name: str, texts: list[str]) -> None:
    """Writes texts as a column."""
    data = [text.encode("utf-8") for text in texts]
    dtype = h5py.string_dtype("utf-8", max(1, *map(len, data)) if data else 1)
    group.create_dataset(name, data=np.array(data, dtype=dtype), dtype=dtype)


def write_text_attribute(owner: h5py.Group, name: str, text: str) -> None:
    """Writes text as an attribute of a group or dataset."""
    data, dtype = _fixed(text)
    owner.attrs.create(name, data, dtype=dtype)


def read_text(dataset: h5py.Dataset) -> str:
    """Reads a scalar string dataset, of fixed or variable length."""
    value = dataset[()]
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
