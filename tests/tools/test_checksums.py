# SPDX-License-Identifier: Apache-2.0
"""What has a checksum is refused by every tool that reads it when a bit of it has changed, and what
has none is read.

Decides which bits are changed, in files that the tools made themselves; what the program makes of
them is told by its own tests.
"""

import json
import re
from hashlib import sha256
from pathlib import Path

import fixtures
import h5py
import pytest
import request_files as rf
from foregather_tools.h5_text import seal, write_sealed_text
from foregather_tools.weights_writer import write_weights
from tokenizers import Tokenizer, models
from training_files import write_checkpoint

REQUESTS = [
    {"id": "é", "tokens": [1, 2, 3], "score_from": 1},
    {"id": 5, "tokens": [0, 2, 3, 0, 1], "score_from": 2},
]
TRAINING = (
    *(f"train/{name}" for name in ("step", "loss", "gradient_norm", "learning_rate", "tokens")),
    "evaluation/step",
    "evaluation/loss",
)
# Of each kind of file the datasets with a checksum, and the tools that read them.
READERS = {
    "weights.h5": (("config", "tokenizer"), ("export", "tokenize", "pack", "bench weights")),
    "tokens.h5": (
        ("tokens", "offsets", "score_from", "id", "request"),
        ("unpack", "responses", "bench tokens"),
    ),
    "texts.h5": (("tokens", "offsets", "bytes", "id"), ("bench texts",)),
    "checkpoint.h5": (TRAINING, ("curve",)),
    "trained.h5": (("config", "tokenizer"), ("export trained",)),
}


def vocabulary() -> str:
    """A tokenizer.json of four words."""
    words = {word: number for number, word in enumerate("abcd")}
    return Tokenizer(models.WordLevel(words, unk_token="d")).to_str()


def sealed_checkpoint(path: Path, with_tokenizer: bool) -> Path:
    """A checkpoint with the checksums that the program gives it."""
    write_checkpoint(path)
    with h5py.File(path, "r+") as file:
        config = file["config"][()].decode()
        del file["config"]
        write_sealed_text(file, "config", config)
        if with_tokenizer:
            write_sealed_text(file, "tokenizer", vocabulary())
        for name in TRAINING:
            seal(file[name], sha256(file[name][()].tobytes()))
    return path


@pytest.fixture
def made(tool, tmp_path) -> Path:
    """A folder with a file of each kind, and what their readers need beside."""
    plain = fixtures.bigram(tmp_path / "plain.h5")
    with h5py.File(plain) as file:
        config = file["config"][()].decode()
    arrays = fixtures.bigram_arrays(json.loads(config))
    tensors = [fixtures.from_array(name, array, "float32") for name, array in arrays.items()]
    write_weights(
        tmp_path / "weights.h5", config, tensors, source="here", tokenizer_text=vocabulary()
    )
    sealed_checkpoint(tmp_path / "checkpoint.h5", False)
    sealed_checkpoint(tmp_path / "trained.h5", True)
    (tmp_path / "text.txt").write_text("a b c")
    (tmp_path / "requests.jsonl").write_text("".join(json.dumps(r) + "\n" for r in REQUESTS))
    words = ("pack", "--vocab-size", 4, tmp_path / "requests.jsonl", tmp_path / "tokens.h5")
    assert tool("score_requests", *words).status == 0
    words = ("--weights", tmp_path / "weights.h5", tmp_path / "texts.h5", tmp_path / "text.txt")
    assert tool("tokenize", *words).status == 0
    rf.write_scores(tmp_path / "results.h5", tmp_path / "tokens.h5")
    return tmp_path


@pytest.fixture
def read(tool, made):
    """read(reader) lets a tool read its file and gives the outcome."""

    def call(reader: str):
        weights, tokens = made / "weights.h5", made / "tokens.h5"
        out, batch = made / f"out of {reader}", made / "out of responses.h5"
        requests, results, text = made / "requests.jsonl", made / "results.h5", made / "text.txt"
        program = ("--program", "/bin/false", "--mpirun", "/bin/false", "--parts", "curve")
        words = {
            "export": ("export_model", weights, out),
            "export trained": ("export_model", made / "trained.h5", out),
            "tokenize": ("tokenize", "--weights", weights, out, text),
            "pack": ("score_requests", "pack", "--weights", weights, requests, out),
            "unpack": ("score_requests", "unpack", requests, tokens, results, out),
            "responses": ("score_requests", "responses", results, tokens, batch),
            "curve": ("loss_curve", made / "checkpoint.h5", "--svg", out),
            "bench weights": ("bench", weights, made / "plain-tokens.h5", *program),
            "bench tokens": ("bench", made / "plain.h5", tokens, *program),
            "bench texts": ("bench", made / "plain.h5", made / "texts.h5", *program),
        }
        fixtures.write_tokens(made / "plain-tokens.h5", [[0, 1, 2]])
        return tool(*words[reader])

    return call


def flip(path: Path, name: str) -> None:
    """Changes the lowest bit of the last byte of a dataset."""
    with h5py.File(path) as file:
        at = file[name].id.get_offset() + file[name].id.get_storage_size() - 1
    whole = bytearray(path.read_bytes())
    whole[at] ^= 1
    path.write_bytes(whole)


def expect_done(reader: str, done) -> None:
    """The tool has read its file; bench then starts a program that fails."""
    assert done.status == (1 if reader.startswith("bench") else 0), done.err
    assert "is not what was written" not in done.err


@pytest.mark.parametrize(
    "file, reader", [(file, reader) for file, (_, readers) in READERS.items() for reader in readers]
)
def test_changed_bit_of_what_has_a_checksum_is_refused_by_who_reads_it(file, reader, made, read):
    whole = (made / file).read_bytes()
    names = READERS[file][0]
    for name in names:
        flip(made / file, name)
        done = read(reader)
        assert done.status == 2 and len(done.err.splitlines()) == 1, (name, done.err)
        assert f"refused: {made / file}: /" in done.err and f"/{name}" in done.err
        assert "is not what was written" in done.err and "copy it again" in done.err
        digests = re.findall(r"\b([0-9a-f]{12})\.\.\.", done.err)
        assert len(set(digests)) == 2, done.err
        assert not list(made.glob("out of *"))
        (made / file).write_bytes(whole)
    expect_done(reader, read(reader))


@pytest.mark.parametrize(
    "file, reader", [(file, reader) for file, (_, readers) in READERS.items() for reader in readers]
)
def test_what_has_no_checksum_is_read_as_it_is(file, reader, made, read):
    with h5py.File(made / file, "r+") as opened:
        for name in READERS[file][0]:
            opened[name].attrs.pop("sha256", None)
        opened.attrs.pop("content_sha256", None)
    rf.write_scores(made / "results.h5", made / "tokens.h5")
    expect_done(reader, read(reader))


def test_strings_of_variable_length_have_no_bytes_of_their_own_to_compare(made, read):
    with h5py.File(made / "weights.h5", "r+") as file:
        text = file["config"][()].decode()
        del file["config"]
        file["config"] = text
        file["config"].attrs["sha256"] = "0" * 64
    expect_done("export", read("export"))


def test_checksum_of_several_blocks_is_that_of_the_whole(made, read, monkeypatch):
    from foregather_tools import checksums

    monkeypatch.setattr(checksums, "BLOCK_BYTES", 8)
    for reader in ("export", "unpack", "curve"):
        expect_done(reader, read(reader))
