# SPDX-License-Identifier: Apache-2.0
"""Writes a token file: documents arrive one after another, the final datasets are contiguous.

Decides the file's layout, its content_sha256 and that every id fits; where documents come from is
decided by the caller.
"""

import hashlib
import tempfile
from pathlib import Path
from typing import BinaryIO

import h5py
import numpy as np

from .command_line import Failure, Refusal, check_stop, human_bytes
from .h5_text import seal, write_text_attribute
from .part_file import check_output, check_space, new_hdf5_file

FORMAT = "foregather.tokens"
FORMAT_VERSION = 1
DTYPES = ("uint16", "uint32", "int32", "int64")
BLOCK_BYTES = 16 * 1024 * 1024


def check_dtype(dtype: str, vocab_size: int) -> None:
    """Refuses an integer type that cannot hold every id of the vocabulary."""
    largest = np.iinfo(dtype).max
    if vocab_size - 1 > largest:
        wrapped = int(np.array(vocab_size - 1, np.int64).astype(dtype))
        raise Refusal(
            f"{dtype} holds ids up to {largest}, the vocabulary has {vocab_size} (id "
            f"{vocab_size - 1} would become {wrapped}): use a wider --dtype"
        )


class TokenFileWriter:
    """Collects documents in unnamed temporary files beside the output, then writes the token file
    in one go.

    Memory does not grow with the number of tokens or documents. Disk: about twice the final size
    while writing; the temporary files have no name, so a killed run leaves none. Use as a context
    manager. `columns` names further int64 datasets with one number a document.
    """

    def __init__(
        self,
        output: Path,
        dtype: str,
        vocab_size: int,
        replace: bool,
        columns: tuple[str, ...] = (),
    ):
        check_output(output, replace)
        check_dtype(dtype, vocab_size)
        self.documents = 0
        self.tokens = 0
        self._output, self._replace = output, replace
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._vocab_size = vocab_size
        self._digest = hashlib.sha256()
        self._id_width = 1
        self._has_bytes = True
        self._column_names = columns
        self._files: list[BinaryIO] = []

    def __enter__(self) -> "TokenFileWriter":
        for _ in range(4 + len(self._column_names)):
            self._files.append(tempfile.TemporaryFile(dir=self._output.parent))
        self._ids, self._offsets, self._bytes, self._names, *further = self._files
        self._columns = dict(zip(self._column_names, further))
        self._offsets.write(np.int64(0).tobytes())
        return self

    def __exit__(self, *_) -> None:
        for file in self._files:
            file.close()

    def add(self, name: str, tokens: np.ndarray, byte_count: int | None, **columns: int) -> None:
        """Adds one document. `byte_count` is the length of its source text; None where there is no
        text (then for all). `columns`: its number in each further dataset.
        """
        check_stop()
        wide = np.ascontiguousarray(tokens, dtype="<i8")
        if wide.size and (wide.min() < 0 or wide.max() >= self._vocab_size):
            bad = int(np.flatnonzero((wide < 0) | (wide >= self._vocab_size))[0])
            raise Refusal(
                f"{name}: token {bad} is {wide[bad]}, but ids are 0 to {self._vocab_size - 1}"
            )
        self._digest.update(wide)
        self._ids.write(wide.astype(self._dtype).tobytes())
        self.documents += 1
        self.tokens += int(wide.size)
        self._offsets.write(np.int64(self.tokens).tobytes())
        self._has_bytes = self._has_bytes and byte_count is not None
        self._bytes.write(np.int64(byte_count or 0).tobytes())
        for column, spool in self._columns.items():
            spool.write(np.int64(columns[column]).tobytes())
        encoded = name.encode("utf-8")
        self._id_width = max(self._id_width, len(encoded))
        self._names.write(len(encoded).to_bytes(4, "little") + encoded)

    def finish(self, source: str, tokenizer_sha256: str | None, **attributes: str) -> str:
        """Writes the file under its name, with further root attributes, and returns its
        content_sha256.

        content_sha256 is SHA-256 over all ids as little-endian int64, then the offsets as
        little-endian int64: the same for every stored type.
        """
        size = self.tokens * self._dtype.itemsize + self.documents * (24 + self._id_width) + 65536
        size += self.documents * 8 * len(self._columns)
        try:
            check_space(self._output.parent, size, f"the token file {self._output.name}")
        except Refusal as refusal:
            raise Failure(str(refusal)) from None
        with new_hdf5_file(self._output, self._replace) as file:
            self._copy(file, "tokens", self._ids, self._dtype, self.tokens)
            self._copy(
                file,
                "offsets",
                self._offsets,
                np.dtype("<i8"),
                self.documents + 1,
                self._digest,
            )
            if self._has_bytes:
                self._copy_sealed(file, "bytes", self._bytes)
                file["bytes"].attrs["units"] = np.bytes_("byte")
            for name, spool in self._columns.items():
                self._copy_sealed(file, name, spool)
            self._copy_names(file)
            write_text_attribute(file, "format", FORMAT)
            file.attrs["format_version"] = np.int64(FORMAT_VERSION)
            write_text_attribute(file, "source", source)
            file.attrs["vocab_size"] = np.int64(self._vocab_size)
            if tokenizer_sha256 is not None:
                write_text_attribute(file, "tokenizer_sha256", tokenizer_sha256)
            write_text_attribute(file, "content_sha256", self._digest.hexdigest())
            for name, text in attributes.items():
                write_text_attribute(file, name, text)
        return self._digest.hexdigest()

    @staticmethod
    def _copy(
        file: h5py.File,
        name: str,
        spool: BinaryIO,
        dtype: np.dtype,
        count: int,
        digest=None,
    ) -> h5py.Dataset:
        """A contiguous dataset out of a temporary file, block by block, that may feed a digest."""
        dataset = file.create_dataset(name, (count,), dtype)
        spool.seek(0)
        step = BLOCK_BYTES // dtype.itemsize
        for begin in range(0, count, step):
            check_stop()
            end = min(begin + step, count)
            block = spool.read((end - begin) * dtype.itemsize)
            if digest is not None:
                digest.update(block)
            dataset[begin:end] = np.frombuffer(block, dtype)
        return dataset

    def _copy_sealed(self, file: h5py.File, name: str, spool: BinaryIO) -> None:
        """A dataset with one number a document, and its checksum."""
        digest = hashlib.sha256()
        seal(self._copy(file, name, spool, np.dtype("<i8"), self.documents, digest), digest)

    def _copy_names(self, file: h5py.File) -> None:
        """/id, fixed length, null padded."""
        dataset = file.create_dataset(
            "id", (self.documents,), h5py.string_dtype("utf-8", self._id_width)
        )
        digest = hashlib.sha256()
        self._names.seek(0)
        step = max(1, BLOCK_BYTES // self._id_width)
        for begin in range(0, self.documents, step):
            end = min(begin + step, self.documents)
            block = [
                self._names.read(int.from_bytes(self._names.read(4), "little"))
                for _ in range(end - begin)
            ]
            names = np.array(block, dtype=dataset.dtype)
            digest.update(names.tobytes())
            dataset[begin:end] = names
        seal(dataset, digest)


def check_room_for_text(folder: Path, text_bytes: int, dtype: str) -> None:
    """Refuses at the start if the tokens of so much text will hardly fit: one token for four bytes,
    held twice.
    """
    check_space(
        folder,
        2 * (text_bytes // 4) * np.dtype(dtype).itemsize,
        f"tokens of {human_bytes(text_bytes)} of text (estimated, with the temporary copy)",
    )
