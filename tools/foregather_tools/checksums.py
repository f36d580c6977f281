# SPDX-License-Identifier: Apache-2.0
"""Compares what a file holds with the checksums beside it, as the program does.

Decides how a checksum is found and made, and what is said where it is not that of the data; which
datasets a tool asks about is decided where they are read.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
from h5py import h5s, h5t

from .command_line import Refusal, check_stop

SEAL = "sha256"  # of a dataset: over its values as they are stored, end to end
CONTENT = "content_sha256"  # of a token file: over all ids in 64 bits, then the offsets
COLUMNS = ("score_from", "bytes", "id", "request")  # of a token file, with a checksum of their own
BLOCK_BYTES = 16 * 1024 * 1024
TOLD_DIGITS = 12  # to tell two digests apart by eye


def refuse_if_broken(path: Path, dataset: h5py.Dataset, maker: str = "") -> None:
    """Refuses a dataset whose values are not those of its checksum; one without is left alone.
    `maker` is the tool that makes such files.
    """
    if SEAL not in dataset.attrs or not _is_plain(dataset.id.get_type()):
        return
    digest = hashlib.sha256()
    for block in _blocks(path, dataset):
        digest.update(block)
    _refuse_other(f"{path}: {dataset.name}", digest, SEAL, dataset.attrs[SEAL], maker)


def refuse_broken_tokens(path: Path, file: h5py.File) -> None:
    """The same for all of a token file that checksums cover."""
    maker = "tools/tokenize"
    if told := _text(file.attrs.get(CONTENT, "")):
        digest = hashlib.sha256()
        for name in ("tokens", "offsets"):
            stored = file[name].dtype
            for block in _blocks(path, file[name]):
                digest.update(np.frombuffer(block, stored).astype("<i8").data)
        _refuse_other(f"{path}: /tokens with /offsets", digest, CONTENT, told, maker)
    for name in COLUMNS:
        if name in file:
            refuse_if_broken(path, file[name], maker)


def _text(value) -> str:
    """An attribute as str."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _is_plain(kind: h5t.TypeID) -> bool:
    """Numbers and strings of fixed length: what lies in the dataset's own bytes."""
    if isinstance(kind, h5t.TypeStringID):
        return not kind.is_variable_str()
    return isinstance(kind, h5t.TypeIntegerID | h5t.TypeFloatID)


def _blocks(path: Path, dataset: h5py.Dataset) -> Iterator[bytes]:
    """The bytes of a scalar or of an array of one dimension as they are stored, in order."""
    kind, count = dataset.id.get_type(), int(np.prod(dataset.shape, dtype=np.int64))
    step = max(1, BLOCK_BYTES // kind.get_size())
    for begin in range(0, count, step):
        check_stop()
        raw = np.empty(min(step, count - begin) * kind.get_size(), np.uint8)
        rows, memory = dataset.id.get_space(), h5s.create(h5s.SCALAR)
        if dataset.shape:
            wanted = (raw.size // kind.get_size(),)
            rows.select_hyperslab((begin,), wanted)
            memory = h5s.create_simple(wanted)
        try:
            dataset.id.read(memory, rows, raw, mtype=kind)
        except OSError as error:
            raise Refusal(f"{path}: {dataset.name} cannot be read: {error}") from None
        yield raw.tobytes()


def _refuse_other(name: str, digest, attribute: str, told, maker: str) -> None:
    """Refuses where a digest is not the one that an attribute tells."""
    found, told = digest.hexdigest(), _text(told)
    if found != told:
        raise Refusal(
            f"{name} is not what was written: its SHA-256 is {found[:TOLD_DIGITS]}..., but "
            f"attribute {attribute} says {told[:TOLD_DIGITS]}...; the file is damaged or was "
            "edited: copy it again, or make it anew" + (f" with {maker}" if maker else "")
        )
