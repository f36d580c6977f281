# SPDX-License-Identifier: Apache-2.0
"""Reads a weights file or a checkpoint: its config, its tokenizer, and its tensors in pieces.

Decides what makes a weights file and under which names its tensors go; whether they fit the config
is judged elsewhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from h5py import h5s

from .checksums import refuse_if_broken
from .command_line import Failure, Refusal, listed
from .h5_text import read_text
from .tensors import RAW_TYPES, Tensor
from .weights_writer import FORMAT, FORMAT_VERSION, type_name

PARTS = ("config", "weights", "tokenizer")


@dataclass(frozen=True)
class WeightsFile:
    """What an open weights file holds: tensors are unread, and readable while it is open."""

    config: str
    tensors: list[Tensor]
    tokenizer: str | None
    others: list[str]


@contextmanager
def open_weights(path: Path) -> Iterator[WeightsFile]:
    """Opens a weights file for as long as the body runs; a Refusal says what is wrong with it."""
    if not path.exists():
        raise Refusal(f"{path} does not exist")
    try:
        file = h5py.File(path)
    except OSError as error:
        raise Refusal(f"{path} cannot be read as HDF5: {error}") from None
    with file:
        _check_format(path, file)
        others = sorted("/" + name for name in file if name not in PARTS)
        tokenizer = _text(path, file["tokenizer"]) if "tokenizer" in file else None
        yield WeightsFile(_text(path, file["config"]), _tensors(path, file), tokenizer, others)


def _check_format(path: Path, file: h5py.File) -> None:
    """Refuses what is no weights file of the version that is written here."""
    form, version = file.attrs.get("format", b""), file.attrs.get("format_version", 0)
    form = form.decode("utf-8", "replace") if isinstance(form, bytes) else str(form)
    if form != FORMAT:
        raise Refusal(f"{path} is no weights file: its format is '{form}', not '{FORMAT}'")
    if version != FORMAT_VERSION:
        raise Refusal(f"{path} has format_version {version}, only {FORMAT_VERSION} is read")
    if file.attrs.get("complete", 1) != 1:
        raise Refusal(f"{path} is not complete: the run that wrote it ended before")
    if not isinstance(file.get("config"), h5py.Dataset):
        raise Refusal(f"{path} is no weights file: it has no /config")
    if not isinstance(file.get("weights"), h5py.Group):
        raise Refusal(f"{path} is no weights file: it has no /weights")


def _text(path: Path, dataset: h5py.Dataset) -> str:
    """A string dataset, as it was written if it has a checksum."""
    refuse_if_broken(path, dataset, "tools/import_model")
    try:
        return read_text(dataset)
    except UnicodeDecodeError as error:
        raise Refusal(f"{path}: {dataset.name} is not UTF-8 text: {error}") from None


def _tensors(path: Path, file: h5py.File) -> list[Tensor]:
    """All datasets of /weights, under the names that they have in a Hugging Face folder."""
    found: list[Tensor] = []
    strange: list[str] = []

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        try:
            dtype = type_name(item)
        except TypeError as error:
            strange.append(str(error))
            return
        if not item.shape:
            strange.append(f"{item.name} is a scalar")
            return
        found.append(_tensor(path, name.replace("/", "."), item, dtype))

    file["weights"].visititems(visit)
    if strange:
        raise Refusal(listed(f"{path} holds what is no tensor of a model:", strange))
    return found


def _tensor(path: Path, name: str, dataset: h5py.Dataset, dtype: str) -> Tensor:
    """A tensor whose rows are read when they are asked for, as they lie in the file."""

    def read(begin: int, end: int) -> np.ndarray:
        raw = np.empty((end - begin, *dataset.shape[1:]), RAW_TYPES[dtype])
        rows = dataset.id.get_space()
        rows.select_hyperslab((begin,) + (0,) * (len(dataset.shape) - 1), raw.shape)
        try:
            # The file's own type: the library's conversion is slow, and rounds otherwise.
            dataset.id.read(h5s.create_simple(raw.shape), rows, raw, mtype=dataset.id.get_type())
        except OSError as error:
            raise Failure(f"{path}: {dataset.name} cannot be read: {error}") from None
        return raw

    return Tensor(name, dtype, dataset.shape, read)
