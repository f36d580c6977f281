# SPDX-License-Identifier: Apache-2.0
"""Reads documents out of text files, JSON lines and lines of ids, one at a time.

Decides what a document is and refuses malformed input with file and line; knows nothing of
tokenizers.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from .command_line import Refusal, human_bytes, printable

# Encodings take about 100 bytes for a byte of text: so much text at a time keeps them at 200 MB.
BATCH_BYTES = 2 * 1024 * 1024
BATCH_DOCUMENTS = 4096


@dataclass(frozen=True)
class Document:
    """A document's name and its text, as UTF-8 bytes too: their number is what bits per byte divide
    by.
    """

    name: str
    text: str
    byte_count: int


def check_files(files: list[Path]) -> int:
    """Refuses files that are not there; gives their size in bytes, all together."""
    absent = [str(file) for file in files if not file.is_file()]
    if absent:
        raise Refusal(f"no such file: {', '.join(absent)}")
    return sum(file.stat().st_size for file in files)


def text_documents(files: list[Path], limit: int) -> Iterator[Document]:
    """One document per file, its bytes as they are: no newline is changed, nothing is stripped."""
    for file in files:
        size = file.stat().st_size
        if size > limit:
            raise Refusal(
                f"{file} has {human_bytes(size)}, more than the {human_bytes(limit)} that one "
                "document may have: it is held in memory whole, with about 100 times its size "
                "(raise --max-document-bytes if there is room)"
            )
        data = file.read_bytes()
        try:
            yield Document(printable(file), data.decode("utf-8"), len(data))
        except UnicodeDecodeError as error:
            raise Refusal(f"{file}: byte {error.start} is not UTF-8 text") from None


def _lines(file: Path, limit: int) -> Iterator[tuple[str, bytes]]:
    """The lines of a file without their ends, each with its place `file:number`."""
    with file.open("rb") as stream:
        number = 0
        while line := stream.readline(limit + 2):
            number += 1
            place = f"{printable(file)}:{number}"
            content = line.rstrip(b"\r\n")
            if len(content) > limit:
                raise Refusal(f"{place} is longer than the {human_bytes(limit)} a line may have")
            yield place, content


def json_lines(file: Path, limit: int) -> Iterator[tuple[str, Any]]:
    """The value of each JSON line, with its place `file:number`. Lines of blanks hold none."""
    for place, line in _lines(file, limit):
        if not line.strip():
            continue
        try:
            yield place, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Refusal(f"{place} is not JSON: {error}") from None


def byte_count(place: str, field: str, text: str) -> int:
    """The length of a text as UTF-8; refused if it has none."""
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise Refusal(
            f"{place}: {field} holds half of a surrogate pair, which is no text"
        ) from None


def json_documents(files: list[Path], field: str, limit: int) -> Iterator[Document]:
    """One document per JSON line: the text in `field` of its object."""
    for file in files:
        for place, value in json_lines(file, limit):
            if not isinstance(value, dict) or not isinstance(value.get(field), str):
                raise Refusal(f"{place} holds no object with a text in {field}")
            text = value[field]
            yield Document(place, text, byte_count(place, field, text))


class Sized(Protocol):
    """Whatever holds some text."""

    byte_count: int


Item = TypeVar("Item", bound=Sized)


def batches(items: Iterator[Item]) -> Iterator[list[Item]]:
    """Groups of items of about BATCH_BYTES of text, to be encoded at a time."""
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += item.byte_count
        if size >= BATCH_BYTES or len(batch) >= BATCH_DOCUMENTS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def id_documents(files: list[Path], limit: int) -> Iterator[tuple[str, np.ndarray]]:
    """One document per line of whole numbers between blanks; an empty line is an empty document."""
    for file in files:
        for place, line in _lines(file, limit):
            words = line.split()
            try:
                yield place, np.array([int(word) for word in words], np.int64)
            except (ValueError, OverflowError):
                bad = next(word for word in words if not _is_id(word))
                raise Refusal(
                    f"{place}: {bad.decode('utf-8', 'replace')} is not a token id"
                ) from None


def _is_id(word: bytes) -> bool:
    """Whether a word is a whole number of 64 bits."""
    try:
        return -(2**63) <= int(word) < 2**63
    except ValueError:
        return False
