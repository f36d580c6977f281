# SPDX-License-Identifier: Apache-2.0
"""Cutting a document loses no token and no byte, and each piece says how many bytes it stands for.

Decides where pieces begin and end and what BOS and EOS do there, for byte-level and other
tokenizers.
"""

import h5py
import numpy as np
import pytest
import reference
from foregather_tools.cutting import Cut, pieces
from foregather_tools.documents import Document
from foregather_tools.text_encoder import TextEncoder
from test_tokenize import byte_tokenizer, text_file
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers


def cut(ids, ends=None, total=None, **how):
    """pieces() as plain lists."""
    ids = np.array(ids, np.int64)
    ends = None if ends is None else np.array(ends, np.int64)
    return [(piece.tolist(), size) for piece, size in pieces(Cut(**how), ids, ends, total)]


@pytest.mark.parametrize(
    "how, expected",
    [
        ({}, [([1, 2, 3, 4, 5], 11)]),
        ({"max_tokens": 9}, [([1, 2, 3, 4, 5], 11)]),
        ({"max_tokens": 3}, [([1, 2, 3], 6)]),
        ({"max_tokens": 3, "bos": 0}, [([0, 1, 2], 3)]),
        ({"max_tokens": 3, "bos": 1}, [([1, 2, 3], 6)]),
        ({"max_tokens": 5, "eos": 9}, [([1, 2, 3, 4, 5], 11)]),
        ({"max_tokens": 6, "eos": 9}, [([1, 2, 3, 4, 5, 9], 11)]),
        ({"eos": 5}, [([1, 2, 3, 4, 5], 11)]),
        ({"split_tokens": 2}, [([1, 2], 3), ([3, 4], 6), ([5], 2)]),
        ({"split_tokens": 5}, [([1, 2, 3, 4, 5], 11)]),
        ({"split_tokens": 3, "bos": 0}, [([0, 1, 2], 3), ([0, 3, 4], 6), ([0, 5], 2)]),
        ({"split_tokens": 3, "bos": 1}, [([1, 2, 3], 6), ([1, 4, 5], 5)]),
        ({"split_tokens": 5, "eos": 9}, [([1, 2, 3, 4, 5], 11), ([9], 0)]),
        ({"split_tokens": 2, "max_tokens": 3}, [([1, 2], 3), ([3], 3)]),
    ],
)
def test_pieces_hold_the_right_tokens_and_bytes(how, expected):
    assert cut([1, 2, 3, 4, 5], [1, 3, 6, 9, 10], 11, **how) == expected


def test_empty_documents_stay_documents():
    assert cut([], [], 0, split_tokens=4) == [([], 0)]
    assert cut([], [], 0, split_tokens=4, bos=7, eos=8) == [([7, 8], 0)]
    assert cut([], None, None) == [([], None)]


def ends(tokenizer: Tokenizer, text: str) -> list[int]:
    """After how many bytes each token of a text ends."""
    encoder = TextEncoder(tokenizer.to_str(), "test")
    document = Document("d", text, len(text.encode()))
    ((ids, found),) = encoder.encode([document], positions=True)
    assert len(ids) == len(found)
    return found.tolist()


def test_byte_level_ends_are_exact_inside_a_character():
    assert ends(byte_tokenizer(), "thé€😀</s>!") == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 16]


def fallback_tokenizer() -> Tokenizer:
    """In the manner of SentencePiece: a mark for blanks, unknown characters as bytes."""
    vocabulary = {"<unk>": 0, "▁": 1, "a": 2, "b": 3, "▁a": 4, "é": 5}
    vocabulary |= {f"<0x{byte:02X}>": 6 + byte for byte in range(256)}
    merges = [("▁", "a")]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    return tokenizer


def test_other_ends_follow_the_characters():
    # Tokens: "▁a", "b", "▁a", "é", then three bytes of the euro sign, which end with the last.
    assert ends(fallback_tokenizer(), "ab aé€b") == [1, 2, 4, 6, 6, 6, 9, 10]


def test_tokens_that_swallow_blanks_fall_back_to_characters():
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens([AddedToken("<x>", lstrip=True, rstrip=True, special=True)])
    assert ends(tokenizer, "a  <x> b") == [1, 7, 8]


def test_words_only_tokenizer_counts_the_blank_for_the_later_part():
    tokenizer = Tokenizer(models.WordLevel({"é": 0, "b": 1}, unk_token="b"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    assert ends(tokenizer, "é b é ") == [2, 4, 7]


@pytest.mark.parametrize("length", [1, 2, 3, 5, 100])
def test_split_text_keeps_every_token_and_byte(tool, tmp_path, length):
    text = "the thé €uro 😀😀 and the rest\n" * 3
    (tmp_path / "tokenizer.json").write_text(byte_tokenizer().to_str())
    source = text_file(tmp_path / "a.txt", text)
    words = (source, "--tokenizer", tmp_path / "tokenizer.json")
    assert tool("tokenize", tmp_path / "whole.h5", *words).status == 0
    assert tool("tokenize", tmp_path / "cut.h5", *words, "--split-tokens", length).status == 0
    (whole,) = reference.read_documents(tmp_path / "whole.h5")
    parts = reference.read_documents(tmp_path / "cut.h5")
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert {len(part) for part in parts[:-1]} <= {length} and 0 < len(parts[-1]) <= length
    with h5py.File(tmp_path / "cut.h5") as file:
        sizes, names = file["bytes"][:], file["id"][:]
    assert sizes.sum() == len(text.encode())
    position = 0
    for part, size in zip(parts, sizes):
        piece = text.encode()[position : position + size].decode("utf-8", "replace")
        assert byte_tokenizer().decode(part.tolist()) == piece
        position += size
    assert names[0].decode() == f"{source}#0" and names[-1].decode() == f"{source}#{len(parts) - 1}"


def test_max_tokens_gives_the_bytes_of_the_prefix(tool, tmp_path):
    (tmp_path / "tokenizer.json").write_text(byte_tokenizer().to_str())
    source = text_file(tmp_path / "a.txt", "thé end")
    words = (tmp_path / "t.h5", source, "--tokenizer", tmp_path / "tokenizer.json")
    assert tool("tokenize", *words, "--max-tokens", 2).status == 0
    with h5py.File(tmp_path / "t.h5") as file:
        assert file["tokens"].shape == (2,) and file["bytes"][:].tolist() == [3]


def test_a_length_without_room_beside_bos_is_refused(tool, tmp_path):
    source = text_file(tmp_path / "ids.txt", "1 2\n")
    words = (tmp_path / "t.h5", source, "--ids", "--vocab-size", 4, "--add-bos", "--bos-id", 0)
    assert "no room" in tool("tokenize", *words, "--split-tokens", 1).err
    assert "no room" in tool("tokenize", *words, "--max-tokens", 1).err
    with pytest.raises(SystemExit):
        tool("tokenize", *words, "--max-tokens", 0)
