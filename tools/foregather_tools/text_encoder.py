# SPDX-License-Identifier: Apache-2.0
"""Turns texts into token ids with a tokenizer.json, and knows after how many source bytes each
token ends.

Decides how tokens map to bytes; adds a special token only where it is asked to, never truncates or
pads, whatever the tokenizer.json says.
"""

import json

import numpy as np
from tokenizers import Encoding, Tokenizer

from .command_line import Refusal
from .documents import Document


class TextEncoder:
    """A tokenizer. `vocab_size` is its largest id plus one."""

    def __init__(self, tokenizer_text: str, origin: str):
        try:
            self._tokenizer = Tokenizer.from_str(tokenizer_text)
        except Exception as error:  # The library raises plain Exception for every malformed file.
            raise Refusal(f"{origin} is no tokenizer.json: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        if not self._vocabulary:
            raise Refusal(f"{origin} holds no vocabulary")
        self.vocab_size = max(self._vocabulary.values()) + 1
        self._description = json.loads(tokenizer_text)
        self._lengths = self._byte_lengths(self._description)

    def id_of(self, token: str) -> int | None:
        """The id of a token, None if there is none."""
        return self._vocabulary.get(token)

    def text_of(self, number: int) -> str:
        """The text that an id stands for, special or not."""
        return self._tokenizer.decode([number], skip_special_tokens=False)

    def template_id(self, kind: str) -> int | None:
        """The id that the tokenizer's own template puts first ("bos") or last ("eos"), if it has
        one.
        """
        processor = self._description.get("post_processor") or {}
        for part in processor.get("processors", [processor]):
            if part.get("type") == "TemplateProcessing" and part.get("single"):
                end = part["single"][0 if kind == "bos" else -1]
                name = end.get("SpecialToken", {}).get("id")
                ids = part["special_tokens"].get(name, {}).get("ids", [])
                return ids[0] if len(ids) == 1 else None
        return None

    def _byte_lengths(self, description: dict) -> np.ndarray | None:
        """[vocab_size] bytes of text that each id stands for, if tokens are written in the byte
        alphabet, else None.
        """
        decoder = description.get("decoder") or {}
        parts = decoder.get("decoders", [decoder])
        if [part.get("type") for part in parts] != ["ByteLevel"] or description.get("normalizer"):
            return None
        lengths = np.zeros(self.vocab_size, np.int64)
        for token, number in self._vocabulary.items():
            lengths[number] = len(token)
        for number, token in self._tokenizer.get_added_tokens_decoder().items():
            lengths[number] = len(token.content.encode("utf-8"))
        return lengths

    def encode(
        self, documents: list[Document], positions: bool
    ) -> list[tuple[np.ndarray, np.ndarray | None]]:
        """For each document its ids and, if `positions`, the byte of its text after which each
        token ends.

        Byte alphabet: exact, also between the bytes of one character. Otherwise by the tokenizer's
        character offsets: a character that several tokens share counts for the later part of a cut.
        """
        texts = [document.text for document in documents]
        # Offsets are only computed where the byte alphabet does not tell: they cost time and
        # memory.
        by_alphabet = self._lengths is not None
        fast = by_alphabet or not positions
        encode = self._tokenizer.encode_batch_fast if fast else self._tokenizer.encode_batch
        found = []
        for encoding, document in zip(encode(texts, add_special_tokens=False), documents):
            ids = np.array(encoding.ids, np.int64)
            if not positions:
                found.append((ids, None))
            elif by_alphabet:
                found.append((ids, self._alphabet_ends(ids, document)))
            else:
                found.append((ids, _offset_ends(encoding, document)))
        return found

    def encode_texts(self, texts: list[str], template: bool) -> list[list[int]]:
        """The ids of each text; `template`: with the special tokens of the tokenizer's template."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=template)
        return [encoding.ids for encoding in encodings]

    def _alphabet_ends(self, ids: np.ndarray, document: Document) -> np.ndarray:
        """[tokens] bytes of text up to and with each token, by the lengths of the tokens."""
        ends = np.cumsum(self._lengths[ids])
        if (ends[-1] if ends.size else 0) == document.byte_count:
            return ends
        # Tokens that swallow blanks around them break the sum; then the offsets know better.
        return _offset_ends(
            self._tokenizer.encode(document.text, add_special_tokens=False), document
        )


def _offset_ends(encoding: Encoding, document: Document) -> np.ndarray:
    """[tokens] bytes of text up to and with each token, by its characters."""
    offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    ends = offsets[:, 1].copy()
    ends[:-1] = np.minimum(ends[:-1], np.maximum(offsets[1:, 0], offsets[:-1, 0]))
    return _byte_positions(document.text)[np.maximum.accumulate(ends)]


def _byte_positions(text: str) -> np.ndarray:
    """[characters + 1] UTF-8 bytes before each character, and in all."""
    points = np.frombuffer(text.encode("utf-32-le"), "<u4")
    sizes = 1 + (points > 0x7F).astype(np.int64) + (points > 0x7FF) + (points > 0xFFFF)
    return np.concatenate([[0], np.cumsum(sizes)])
