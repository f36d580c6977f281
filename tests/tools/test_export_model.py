# SPDX-License-Identifier: Apache-2.0
"""export_model makes of a weights file the Hugging Face folder that it came from.

Decides what must be equal after the way there and back; the folder's files are read by the
safetensors library itself.
"""

import json
import os
import signal
import subprocess
import sys
import time

import fixtures
import h5py
import numpy as np
import pytest
from checkpoints import random_folder
from conftest import GOLDEN, GOLDEN_MODELS, ROOT, start
from foregather_tools.model_tensors import EMBEDDING, HEAD, expected_tensors
from foregather_tools.tensors import bfloat16_to_float32
from foregather_tools.weights_writer import read_raw
from safetensors import deserialize, safe_open
from training_files import write_checkpoint

WIDTHS = {"F32": "<u4", "F16": "<u2", "BF16": "<u2"}


def stored(path):
    """Name -> bits of every tensor of a weights file."""
    found = {}
    with h5py.File(path) as file:

        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                raw = read_raw(item)
                found[name.replace("/", ".")] = raw.view(f"<u{raw.dtype.itemsize}")

        file["weights"].visititems(visit)
    return found


def exported(folder):
    """Name -> (type, bits) of every tensor of a folder, as the safetensors library reads it."""
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="numpy") as opened:
            assert opened.metadata() == {"format": "pt"}
        for name, entry in deserialize(file.read_bytes()):
            assert name not in found
            bits = np.frombuffer(entry["data"], WIDTHS[entry["dtype"]])
            found[name] = entry["dtype"], bits.reshape(entry["shape"])
    return found


def header_of(path):
    """Length and content of a safetensors file's header."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return length, json.loads(file.read(length))


def content(path):
    """What a weights file holds: config, tokenizer, and the digest of its tensors."""
    with h5py.File(path) as file:
        texts = [file[name][()] if name in file else None for name in ("config", "tokenizer")]
        return *texts, file.attrs["content_sha256"]


@pytest.mark.parametrize("shard_size", ["5GB", "40KB"])
@pytest.mark.parametrize("model", GOLDEN_MODELS)
def test_import_export_import_is_the_same_file(tool, tmp_path, model, shard_size):
    first, folder, again = tmp_path / "1.h5", tmp_path / "out", tmp_path / "2.h5"
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text('{"text": "ü\\n"}\n', encoding="utf-8")
    assert tool("import_model", GOLDEN / model, first, "--tokenizer", tokenizer).status == 0
    said = tool("export_model", first, folder, "--shard-size", shard_size)
    assert said.status == 0 and said.err == ""
    assert (folder / "config.json").read_bytes() == content(first)[0]
    assert (folder / "tokenizer.json").read_bytes() == tokenizer.read_bytes()
    assert tool("import_model", folder, again).status == 0
    assert content(again) == content(first)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_values_are_bit_equal_and_keep_their_type(tool, tmp_path, dtype):
    weights = fixtures.random_llama(tmp_path / "w.h5", dtype)
    assert tool("export_model", weights, tmp_path / "out").status == 0
    name = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[dtype]
    before, after = stored(weights), exported(tmp_path / "out")
    assert before.keys() == after.keys()
    for tensor, bits in before.items():
        assert after[tensor][0] == name
        np.testing.assert_array_equal(after[tensor][1], bits)


def test_types_may_differ_and_each_tensor_is_aligned_to_its_own(tool, tmp_path):
    config = fixtures.llama_config(hidden_size=3, vocab_size=5)
    arrays = fixtures.random_arrays(config, 1)
    tensors = [
        fixtures.from_array(
            name,
            array if "norm" in name else fixtures.convert(array, "float32", "bfloat16"),
            "float32" if "norm" in name else "bfloat16",
        )
        for name, array in arrays.items()
    ]
    fixtures.write_weights(tmp_path / "w.h5", json.dumps(config), tensors, source="test")
    assert tool("export_model", tmp_path / "w.h5", tmp_path / "out").status == 0
    for name, (dtype, bits) in exported(tmp_path / "out").items():
        assert dtype == ("F32" if "norm" in name else "BF16") and bits.shape == arrays[name].shape
    _, header = header_of(tmp_path / "out" / "model.safetensors")
    for name, entry in list(header.items())[1:]:
        assert entry["data_offsets"][0] % (4 if "norm" in name else 2) == 0


def test_asked_for_type_rounds_to_nearest_and_is_told_where_the_config_says_another(tool, tmp_path):
    folder = random_folder(tmp_path / "m", torch_dtype="float32")
    weights = tmp_path / "w.h5"
    assert tool("import_model", folder, weights).status == 0
    said = tool("export_model", weights, tmp_path / "bf16", "--dtype", "bf16")
    assert said.status == 0 and "dtype=bfloat16" in said.err
    for name, (dtype, bits) in exported(tmp_path / "bf16").items():
        exact = stored(weights)[name].view("<f4")
        assert dtype == "BF16"
        np.testing.assert_allclose(bfloat16_to_float32(bits), exact, rtol=2**-8)
        assert (bits != (exact.view("<u4") >> 16)).any() or exact.size < 8
    assert (tmp_path / "bf16" / "config.json").read_bytes() == content(weights)[0]


def test_values_beyond_fp16_are_refused_with_their_tensors(tool, tmp_path):
    arrays = fixtures.random_arrays(fixtures.llama_config(), 1)
    arrays["model.norm.weight"][1] = -65520.0
    arrays["model.layers.1.mlp.up_proj.weight"][0, :2] = 1e9
    arrays[EMBEDDING][0, 0] = 65519.0
    weights = fixtures.write_model(tmp_path / "w.h5", fixtures.llama_config(), arrays)
    said = tool("export_model", weights, tmp_path / "out", "--dtype", "fp16")
    assert said.status == 2 and [file.name for file in tmp_path.iterdir()] == ["w.h5"]
    assert "model.norm.weight: 1 values, the largest 65520" in said.err
    assert "model.layers.1.mlp.up_proj.weight: 2 values, the largest 1e+09" in said.err
    assert EMBEDDING not in said.err
    arrays["model.norm.weight"][1] = arrays["model.layers.1.mlp.up_proj.weight"][0, :2] = 1.0
    weights = fixtures.write_model(tmp_path / "w.h5", fixtures.llama_config(), arrays)
    assert tool("export_model", weights, tmp_path / "out", "--dtype", "fp16").status == 0
    halves = exported(tmp_path / "out")[EMBEDDING]
    assert halves[0] == "F16" and halves[1].view("<f2")[0, 0] == 65504.0


def test_large_model_is_split_with_an_index_of_all_tensors(tool, tmp_path):
    weights = fixtures.random_llama(tmp_path / "w.h5", num_hidden_layers=12)
    limit = 700
    said = tool("export_model", weights, tmp_path / "out", "--shard-size", f"{limit}B")
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    count = len(files)
    assert said.status == 0 and f"in {count} safetensors files" in said.out and count > 3
    assert files == [f"model-{n:05}-of-{count:05}.safetensors" for n in range(1, count + 1)]
    before = stored(weights)
    assert index["metadata"]["total_size"] == sum(bits.nbytes for bits in before.values())
    assert index["metadata"]["total_parameters"] == sum(bits.size for bits in before.values())
    in_files = [
        index["weight_map"][f"model.layers.{layer}.mlp.up_proj.weight"] for layer in range(12)
    ]
    assert in_files == sorted(in_files) and index["weight_map"][EMBEDDING] == files[0]
    for file in files:
        assert header_of(tmp_path / "out" / file)[0] % 8 == 0
        entries = deserialize((tmp_path / "out" / file).read_bytes())
        assert sum(len(entry["data"]) for _, entry in entries) <= limit
        assert all(index["weight_map"][name] == file for name, _ in entries)


def test_tied_model_stores_the_embedding_once(tool, tmp_path):
    weights = fixtures.random_llama(tmp_path / "w.h5", tie_word_embeddings=True)
    assert tool("export_model", weights, tmp_path / "out").status == 0
    found = exported(tmp_path / "out")
    assert HEAD not in found and EMBEDDING in found


def test_shapes_are_those_of_the_config_without_padding(tool, tmp_path):
    config = fixtures.llama_config(vocab_size=5)
    weights = fixtures.random_llama(tmp_path / "w.h5", vocab_size=5)
    assert tool("export_model", weights, tmp_path / "out").status == 0
    shapes = {name: bits.shape for name, (_, bits) in exported(tmp_path / "out").items()}
    assert shapes == expected_tensors(config)
    arrays = fixtures.random_arrays(config, 1)
    arrays[HEAD] = np.zeros((8, 4), "<f4")
    padded = fixtures.write_model(tmp_path / "padded.h5", config, arrays)
    said = tool("export_model", padded, tmp_path / "other")
    assert said.status == 2 and f"misshaped: {HEAD} is (8, 4)" in said.err


def test_state_of_a_training_is_left_out_and_named(tool, tmp_path):
    weights = fixtures.random_llama(tmp_path / "step-00000010.h5")
    with h5py.File(weights, "r+") as file:
        file["optimizer/first_moment/model/norm/weight"] = np.zeros(4, "f4")
        file["train/step"] = 10
    said = tool("export_model", weights, tmp_path / "out")
    assert said.status == 0 and "left out: /optimizer, /train" in said.err
    assert exported(tmp_path / "out").keys() == stored(weights).keys()


@pytest.mark.parametrize("what", ["full folder", "file", "part"])
def test_what_is_there_is_not_touched(tool, tmp_path, what):
    weights, out = fixtures.random_llama(tmp_path / "w.h5"), tmp_path / "out"
    folder = tmp_path / "out.part" if what == "part" else out
    if what == "file":
        out.write_text("precious")
    else:
        folder.mkdir()
        (folder / "precious").write_text("")
    said = tool("export_model", weights, out)
    assert said.status == 2 and str(folder) in said.err
    assert what == "file" or [file.name for file in folder.iterdir()] == ["precious"]


def test_empty_folder_is_filled(tool, tmp_path, monkeypatch):
    weights = fixtures.random_llama(tmp_path / "w.h5")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    assert tool("export_model", weights, "out/").status == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out", "w.h5"]
    assert (tmp_path / "out" / "model.safetensors").exists()


def spoiled(path, spoil):
    """A weights file with a change."""
    with h5py.File(fixtures.random_llama(path), "r+") as file:
        spoil(file)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda file: file.attrs.__setitem__("format", "foregather.results"), "no weights file"),
        (lambda file: file.attrs.__setitem__("format_version", 2), "format_version 2"),
        (lambda file: file.pop("config"), "no /config"),
        (lambda file: file.pop("weights"), "no /weights"),
        (lambda file: file.pop("weights/model/norm/weight"), "missing: model.norm.weight"),
        (lambda file: file.__setitem__("weights/x", np.zeros(2, "f8")), "/weights/x holds float64"),
        (lambda file: file.__setitem__("weights/x", np.float32(1)), "/weights/x is a scalar"),
    ],
)
def test_other_files_are_refused(tool, tmp_path, spoil, message):
    spoiled(tmp_path / "w.h5", spoil)
    said = tool("export_model", tmp_path / "w.h5", tmp_path / "out")
    assert said.status == 2 and message in said.err
    assert [file.name for file in tmp_path.iterdir()] == ["w.h5"]


@pytest.mark.parametrize("content", [None, b"no HDF5"])
def test_files_that_cannot_be_read_are_refused(tool, tmp_path, content):
    if content:
        (tmp_path / "w.h5").write_bytes(content)
    said = tool("export_model", tmp_path / "w.h5", tmp_path / "out")
    assert said.status == 2 and str(tmp_path / "w.h5") in said.err


def test_checkpoint_is_exported_without_what_is_the_trainings(tool, tmp_path):
    checkpoint = write_checkpoint(tmp_path / "step-00000006.h5")
    said = tool("export_model", checkpoint, tmp_path / "out")
    assert said.status == 0
    assert "left out: /evaluation, /optimizer, /train" in said.err
    before, after = stored(checkpoint), exported(tmp_path / "out")
    assert before.keys() == after.keys()
    for tensor, bits in before.items():
        assert after[tensor][0] == "F32"
        np.testing.assert_array_equal(after[tensor][1], bits)


def test_checkpoint_without_its_mark_is_refused(tool, tmp_path):
    weights = fixtures.random_llama(tmp_path / "w.h5")
    with h5py.File(weights, "r+") as file:
        file.attrs["complete"] = 0
    said = tool("export_model", weights, tmp_path / "out")
    assert said.status == 2 and "is not complete" in said.err
    with h5py.File(weights, "r+") as file:
        file.attrs["complete"] = 1
    assert tool("export_model", weights, tmp_path / "out").status == 0


def test_too_little_space_is_refused(tool, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    weights = fixtures.random_llama(tmp_path / "w.h5")
    monkeypatch.setattr("foregather_tools.part_file.shutil.disk_usage", lambda folder: usage)
    said = tool("export_model", weights, tmp_path / "out")
    assert said.status == 2 and "1000 bytes free" in said.err
    assert [file.name for file in tmp_path.iterdir()] == ["w.h5"]


def sparse_weights(path, megabytes):
    """A weights file of zeros of about that size, written as a hole."""
    config = fixtures.llama_config(
        vocab_size=megabytes * 1024 // 4, hidden_size=1024, tie_word_embeddings=True
    )
    shapes = expected_tensors(config)
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        file.attrs["format"], file.attrs["format_version"] = "foregather.weights", 1
        file["config"] = json.dumps(config)
        for name, shape in shapes.items():
            file.create_dataset("weights/" + name.replace(".", "/"), shape, "<f4")
    return path


def test_memory_stays_bounded_for_a_large_model(tmp_path):
    weights = sparse_weights(tmp_path / "w.h5", 500)
    # VmHWM and not ru_maxrss, which a child takes over from its parent.
    code = (
        "import sys; from foregather_tools import export_model; "
        "status = export_model.main(sys.argv[1:]); "
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, weights, tmp_path / "out", "--dtype", "bf16"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 200 * 1024
    assert (tmp_path / "out" / "model.safetensors").stat().st_size > 250 * 2**20
    (tmp_path / "out" / "model.safetensors").unlink()


def test_signal_ends_the_export_and_removes_the_part(tmp_path):
    weights = sparse_weights(tmp_path / "w.h5", 500)
    part = tmp_path / "out.part" / "model.safetensors"
    process = start("export_model", weights, tmp_path / "out")
    while process.poll() is None and not (part.exists() and part.stat().st_size > 2**20):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 1 and "stopped by SIGTERM" in said
    assert [file.name for file in tmp_path.iterdir()] == ["w.h5"]
