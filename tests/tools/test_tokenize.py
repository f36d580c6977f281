# SPDX-License-Identifier: Apache-2.0
"""Texts, JSON lines and ids become a token file that says exactly what they held.

Decides what tokenize owes to its user: ids, offsets, bytes, BOS and EOS, refusals; cutting is
tested in test_cutting.
"""

import hashlib
import json

import fixtures
import h5py
import numpy as np
import pytest
import reference
from conftest import GOLDEN
from foregather_tools import part_file
from foregather_tools.h5_text import write_text
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

LICENCES = "/usr/share/common-licenses"


def byte_tokenizer() -> Tokenizer:
    """Every byte is a token, "th" another, <s> and </s> are special; its post-processor would add
    both.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, "th"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 257), ("</s>", 258)]
    )
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=8)
    return tokenizer


@pytest.fixture
def tokenizer_json(tmp_path):
    """That tokenizer as a file."""
    path = tmp_path / "tokenizer.json"
    path.write_text(byte_tokenizer().to_str(), encoding="utf-8")
    return path


def documents(path) -> list[list[int]]:
    """The documents of a token file."""
    return [document.tolist() for document in reference.read_documents(path)]


def text_file(path, text: str):
    """A file with exactly these characters."""
    path.write_bytes(text.encode("utf-8"))
    return path


def id_file(tmp_path, *lines: str):
    """A file of ids, one document a line."""
    return text_file(tmp_path / "ids.txt", "".join(f"{line}\n" for line in lines))


def test_smollm2_gives_the_ids_of_the_reference(tool, tmp_path, smollm_weights):
    with h5py.File(GOLDEN / "smollm2-135m" / "expected.h5") as file:
        names = [name.decode() for name in file["texts"][()]]
        offsets = file["offsets"][()]
        wanted = [file["tokens"][a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:])]
    out = tmp_path / "t.h5"
    files = [f"{LICENCES}/{name}" for name in names]
    said = tool("tokenize", out, *files, "--weights", smollm_weights)
    assert said.status == 0, said.err
    found = documents(out)
    assert [ids[: len(want)] for ids, want in zip(found, wanted)] == wanted
    assert len(found[2]) == len(wanted[2]) == 377
    with h5py.File(out) as file, h5py.File(smollm_weights) as weights:
        assert file.attrs["tokenizer_sha256"] == weights.attrs["tokenizer_sha256"]
        assert file.attrs["vocab_size"] == 49152
        assert [name.decode() for name in file["id"][()]] == files
        assert file["bytes"][:].tolist() == [len(open(path, "rb").read()) for path in files]


def test_file_has_the_promised_form(tool, tmp_path, tokenizer_json):
    a, b = text_file(tmp_path / "a.txt", "the\r\n"), text_file(tmp_path / "ü.txt", "")
    out = tmp_path / "t.h5"
    assert tool("tokenize", out, a, b, "--tokenizer", tokenizer_json).status == 0
    assert out.read_bytes()[8] == 3
    with h5py.File(out) as file:
        assert file["tokens"].dtype == np.uint32 and file["offsets"].dtype == np.int64
        assert file["bytes"].dtype == np.int64 and file["offsets"][:].tolist() == [0, 4, 4]
        assert file["bytes"][:].tolist() == [5, 0]
        assert all(file[name].chunks is None for name in ("tokens", "offsets", "bytes", "id"))
        kind = file["id"].id.get_type()
        assert not kind.is_variable_str() and kind.get_strpad() == h5py.h5t.STR_NULLPAD
        assert [name.decode() for name in file["id"][()]] == [str(a), str(b)]
        assert str(a) in file.attrs["source"].decode()
        text = tokenizer_json.read_bytes()
        assert file.attrs["tokenizer_sha256"].decode() == hashlib.sha256(text).hexdigest()
        assert file.attrs["vocab_size"] == 259
        digest = hashlib.sha256(file["tokens"][:].astype("<i8").tobytes())
        digest.update(file["offsets"][:].astype("<i8").tobytes())
        assert file.attrs["content_sha256"].decode() == digest.hexdigest()


def test_nothing_is_added_truncated_or_padded_unasked(tool, tmp_path, tokenizer_json):
    out = tmp_path / "t.h5"
    text = text_file(tmp_path / "a.txt", "  thé end\n")
    assert tool("tokenize", out, text, "--tokenizer", tokenizer_json).status == 0
    (ids,) = documents(out)
    assert byte_tokenizer().decode(ids) == "  thé end\n" and len(ids) == 10


def test_json_lines_hold_one_document_each(tool, tmp_path, tokenizer_json):
    lines = [
        json.dumps({"text": "th"}),
        "",
        json.dumps({"id": 7, "text": "é\u2028"}),
        '{"text": ""}',
    ]
    source = text_file(tmp_path / "a.jsonl", "\n".join(lines))
    out = tmp_path / "t.h5"
    words = ("--tokenizer", tokenizer_json, "--jsonl", "text")
    assert tool("tokenize", out, source, *words).status == 0
    assert [len(ids) for ids in documents(out)] == [1, 5, 0]
    with h5py.File(out) as file:
        assert file["bytes"][:].tolist() == [2, 5, 0]
        assert [name.decode().rsplit(":")[-1] for name in file["id"][()]] == ["1", "3", "4"]


@pytest.mark.parametrize(
    "line, fault",
    [
        ("{", "is not JSON"),
        ('{"txt": "a"}', "no object with a text in text"),
        ('{"text": 3}', "no object with a text in text"),
        ('["text"]', "no object with a text in text"),
        (r'{"text": "\ud800"}', "surrogate"),
    ],
)
def test_malformed_json_lines_are_refused_by_line(tool, tmp_path, tokenizer_json, line, fault):
    source = text_file(tmp_path / "a.jsonl", '{"text": "fine"}\n' + line + "\n")
    words = ("--tokenizer", tokenizer_json, "--jsonl", "text")
    said = tool("tokenize", tmp_path / "t.h5", source, *words)
    assert said.status == 2 and f"{source}:2" in said.err and fault in said.err
    assert list(tmp_path.glob("t.h5*")) == []


def test_bytes_that_are_no_text_are_refused_by_place(tool, tmp_path, tokenizer_json):
    source = tmp_path / "a.txt"
    source.write_bytes(b"abc\xff")
    said = tool("tokenize", tmp_path / "t.h5", source, "--tokenizer", tokenizer_json)
    assert said.status == 2 and "byte 3 is not UTF-8" in said.err


def test_long_documents_are_refused_with_the_limit(tool, tmp_path, tokenizer_json):
    source = text_file(tmp_path / "a.txt", "a" * 101)
    words = (source, "--tokenizer", tokenizer_json, "--max-document-bytes", 100)
    said = tool("tokenize", tmp_path / "t.h5", *words)
    assert said.status == 2 and "101 bytes" in said.err and "100 bytes" in said.err
    said = tool("tokenize", tmp_path / "t.h5", *words, "--jsonl", "text")
    assert said.status == 2 and "100 bytes" in said.err
    assert tool("tokenize", tmp_path / "t.h5", *words[:-1], 101).status == 0


def test_many_documents_go_through_in_batches(tool, tmp_path, tokenizer_json, monkeypatch):
    monkeypatch.setattr("foregather_tools.documents.BATCH_BYTES", 7)
    monkeypatch.setattr("foregather_tools.token_file.BLOCK_BYTES", 8)
    source = text_file(
        tmp_path / "a.jsonl", "".join(json.dumps({"t": "x" * (n % 5)}) + "\n" for n in range(200))
    )
    out = tmp_path / "t.h5"
    assert tool("tokenize", out, source, "--tokenizer", tokenizer_json, "--jsonl", "t").status == 0
    assert [len(ids) for ids in documents(out)] == [n % 5 for n in range(200)]
    with h5py.File(out) as file:
        assert [name.decode() for name in file["id"][()]] == [
            f"{source}:{n}" for n in range(1, 201)
        ]


def test_d11_bos_is_added_on_demand_only_and_never_doubled(tool, tmp_path):
    weights = fixtures.bigram(tmp_path / "w.h5")
    out = tmp_path / "t.h5"
    ids = id_file(tmp_path, "0 1 2 3")
    words = (out, ids, "--ids", "--vocab-size", 4, "--replace")

    def perplexity() -> tuple[float, int]:
        scored = [part.logprob[1:] for part in reference.score(weights, out)]
        return float(np.exp(-np.concatenate(scored).mean())), sum(map(len, scored))

    assert tool("tokenize", *words).status == 0
    assert perplexity() == (pytest.approx(2.0, abs=1e-6), 3)
    said = tool("tokenize", *words, "--add-bos", "--bos-id", 0)
    assert said.status == 0 and "1 documents began with BOS already" in said.err
    assert documents(out) == [[0, 1, 2, 3]]
    id_file(tmp_path, "0 0 1 2 3")
    assert tool("tokenize", *words).status == 0
    assert perplexity() == (pytest.approx(2.8284271, abs=1e-6), 4)
    id_file(tmp_path, "1 2", "", "0 2")
    assert tool("tokenize", *words, "--add-bos", "--bos-id", 0).status == 0
    assert documents(out) == [[0, 1, 2], [0], [0, 2]]


def test_eos_is_added_on_demand_only_and_never_doubled(tool, tmp_path):
    words = ("--ids", "--vocab-size", 4, "--add-eos", "--eos-id", 3)
    assert (
        tool("tokenize", tmp_path / "t.h5", id_file(tmp_path, "1 2", "", "2 3"), *words).status == 0
    )
    assert documents(tmp_path / "t.h5") == [[1, 2, 3], [3], [2, 3]]


@pytest.mark.parametrize("where", ["option", "weights", "tokenizer_config", "config", "template"])
def test_bos_is_found_where_it_stands(tool, tmp_path, tokenizer_json, where):
    source, out = text_file(tmp_path / "a.txt", "th"), tmp_path / "t.h5"
    words = ["--tokenizer", tokenizer_json, "--add-bos"]
    if where == "option":
        words += ["--bos-id", 257]
    elif where == "weights":
        weights = tmp_path / "w.h5"
        with h5py.File(weights, "w") as file:
            write_text(file, "config", json.dumps({"vocab_size": 300, "bos_token_id": 257}))
            write_text(file, "tokenizer", tokenizer_json.read_text())
        words = ["--weights", weights, "--add-bos"]
    elif where == "tokenizer_config":
        (tmp_path / "tokenizer_config.json").write_text('{"bos_token": {"content": "<s>"}}')
        (tmp_path / "config.json").write_text('{"bos_token_id": 1}')
    elif where == "config":
        (tmp_path / "config.json").write_text('{"bos_token_id": 257}')
        bare = byte_tokenizer()
        bare.post_processor = processors.ByteLevel()
        tokenizer_json.write_text(bare.to_str())
    assert tool("tokenize", out, source, *words).status == 0
    assert documents(out) == [[257, 256]]
    with h5py.File(out) as file:
        assert file["bytes"][:].tolist() == [2]


def test_eos_is_the_last_of_the_template(tool, tmp_path, tokenizer_json):
    source = text_file(tmp_path / "a.txt", "th")
    words = ("--tokenizer", tokenizer_json, "--add-bos", "--add-eos")
    assert tool("tokenize", tmp_path / "t.h5", source, *words).status == 0
    assert documents(tmp_path / "t.h5") == [[257, 256, 258]]


def test_bos_that_stands_nowhere_is_asked_for(tool, tmp_path, tokenizer_json):
    bare = byte_tokenizer()
    bare.post_processor = processors.ByteLevel()
    tokenizer_json.write_text(bare.to_str())
    source = text_file(tmp_path / "a.txt", "th")
    words = (tmp_path / "t.h5", source, "--tokenizer", tokenizer_json)
    said = tool("tokenize", *words, "--add-bos")
    assert said.status == 2 and "--bos-id" in said.err
    (tmp_path / "config.json").write_text('{"eos_token_id": [1, 2]}')
    assert "--eos-id" in tool("tokenize", *words, "--add-eos").err
    assert "not in the vocabulary" in tool("tokenize", *words, "--add-bos", "--bos-id", 259).err
    assert "does nothing" in tool("tokenize", *words, "--bos-id", 1).err


def test_i1_narrow_types_are_refused_for_a_wide_vocabulary(tool, tmp_path):
    ids, out = id_file(tmp_path, "5 70000 5"), tmp_path / "t.h5"
    words = (out, ids, "--ids", "--vocab-size", 70001)
    said = tool("tokenize", *words, "--dtype", "uint16")
    assert said.status == 2 and "70000 would become 4464" in said.err and not out.exists()
    for dtype in ("uint32", "int32", "int64"):
        assert tool("tokenize", *words, "--dtype", dtype, "--replace").status == 0
        with h5py.File(out) as file:
            assert file["tokens"].dtype == np.dtype(dtype)
            assert file["tokens"][:].tolist() == [5, 70000, 5] and "bytes" not in file
            assert "tokenizer_sha256" not in file.attrs and file.attrs["vocab_size"] == 70001
    assert tool("tokenize", out, ids, "--ids", "--vocab-size", 65536, "--replace").status == 2
    id_file(tmp_path, "5 65535 5")
    narrow = ("--ids", "--vocab-size", 65536, "--dtype", "uint16", "--replace")
    assert tool("tokenize", out, ids, *narrow).status == 0
    assert documents(out) == [[5, 65535, 5]]


@pytest.mark.parametrize(
    "line, fault",
    [
        ("1 4 2", "token 1 is 4, but ids are 0 to 3"),
        ("1 2 -1", "token 2 is -1, but ids are 0 to 3"),
        ("1 x 2", "x is not a token id"),
        ("1.0", "1.0 is not a token id"),
        ("99999999999999999999", "99999999999999999999 is not a token id"),
    ],
)
def test_ids_out_of_range_are_refused_by_line_and_place(tool, tmp_path, line, fault):
    ids = id_file(tmp_path, "0 1", line)
    said = tool("tokenize", tmp_path / "t.h5", ids, "--ids", "--vocab-size", 4)
    assert said.status == 2 and f"{ids}:2: {fault}" in said.err
    assert list(tmp_path.glob("t.h5*")) == []


def test_output_is_never_half_there(tool, tmp_path, monkeypatch):
    ids, out = id_file(tmp_path, "0 1 2 3"), tmp_path / "t.h5"
    words = (out, ids, "--ids", "--vocab-size", 4)
    out.write_bytes(b"precious")
    assert tool("tokenize", *words).status == 2 and out.read_bytes() == b"precious"
    usage = type("Usage", (), {"free": 1})
    monkeypatch.setattr(part_file.shutil, "disk_usage", lambda folder: usage)
    said = tool("tokenize", *words, "--replace")
    assert said.status == 2 and "1 bytes free" in said.err and out.read_bytes() == b"precious"
    monkeypatch.undo()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("foregather_tools.token_file.TokenFileWriter._copy_names", fail)
    said = tool("tokenize", *words, "--replace")
    assert said.status == 1 and "No space left" in said.err and out.read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.txt", "t.h5"]


def test_sources_that_are_not_there_or_not_right_are_refused(tool, tmp_path, tokenizer_json):
    text, out = text_file(tmp_path / "a.txt", "a"), tmp_path / "t.h5"
    assert (
        "no such file" in tool("tokenize", out, tmp_path / "b", "--tokenizer", tokenizer_json).err
    )
    assert "no tokenizer.json" in tool("tokenize", out, text, "--tokenizer", text).err
    assert "as HDF5" in tool("tokenize", out, text, "--weights", text).err
    weights = fixtures.bigram(tmp_path / "w.h5")
    assert "no /tokenizer" in tool("tokenize", out, text, "--weights", weights).err
    assert "--vocab-size" in tool("tokenize", out, text, "--ids").err
    said = tool("tokenize", out, text, "--tokenizer", tokenizer_json, "--vocab-size", 4)
    assert said.status == 2 and not out.exists()
