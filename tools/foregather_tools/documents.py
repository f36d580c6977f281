# SPDX-License-Identifier: Apache-2.0
"""Reads documents out of text files, JSON lines and lines of ids, one at a time.

Decides what a document is and refuses malformed input with file and line; knows nothing of
tokenizers.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .command_line import Refusal, human_bytes, printable


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


def json_documents(files: list[Path], field: str, limit: int) -> Iterator[Document]:
    """One document per JSON line: the text in `field` of its object. Lines of blanks hold no
    document.
    """
    for file in files:
        for place, line in _lines(file, limit):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                raise Refusal(f"{place} is not JSON: {error}") from None
            if not isinstance(value, dict) or not isinstance(value.get(field), str):
                raise Refusal(f"{place} holds no object with a text in {field}")
            try:
                yield Document(place, value[field], len(value[field].encode("utf-8")))
            except UnicodeEncodeError:
                raise Refusal(
                    f"{place}: {field} holds half of a surrogate pair, which is no text"
                ) from None


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
