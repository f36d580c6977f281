# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face folder becomes a weights file, whole and unchanged, or is refused.

Decides what import_model owes to a right folder and to each kind of broken one; configs are judged
in test_config_law.
"""

import hashlib
import json

import h5py
import numpy as np
import pytest
from checkpoints import bigram_folder, random_folder, write_folder, write_safetensors
from conftest import GOLDEN, GOLDEN_MODELS
from fixtures import bigram_arrays, llama_config
from foregather_tools.tensors import bfloat16_to_float32, float32_to_bfloat16
from foregather_tools.weights_writer import dataset_path, read_raw, type_name
from safetensors import safe_open
from safetensors.numpy import load_file


def stored(path) -> dict[str, h5py.Dataset]:
    """Hugging Face name -> dataset of an open weights file."""
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            found[name.replace("/", ".")] = item

    path["weights"].visititems(visit)
    return found


def content_hash(file: h5py.File) -> str:
    """content_sha256 worked out anew from what lies in the file."""
    digest = hashlib.sha256()
    for name, dataset in sorted(stored(file).items()):
        shape = ",".join(str(extent) for extent in dataset.shape)
        digest.update(f"{name} {type_name(dataset)} {shape}\n".encode())
        digest.update(read_raw(dataset).tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("model", GOLDEN_MODELS)
def test_golden_folder_is_stored_bit_for_bit(tool, tmp_path, model):
    out = tmp_path / "w.h5"
    assert tool("import_model", GOLDEN / model, out).status == 0
    arrays = load_file(GOLDEN / model / "model.safetensors")
    with h5py.File(out) as file:
        found = stored(file)
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert found[name].dtype == np.float32 and found[name].chunks is None
            assert found[name][()].tobytes() == array.tobytes()
        assert file.attrs["format"] == b"foregather.weights" and file.attrs["format_version"] == 1
        assert file.attrs["content_sha256"].decode() == content_hash(file)
        assert b"safetensors" in file.attrs["source"]
        given = json.loads((GOLDEN / model / "config.json").read_text())
        judged = json.loads(file["config"][()])
        # Defaults of the family are made explicit: these the folders leave out.
        implied = {"mistral": ("attention_bias", "mlp_bias"), "qwen2": ("head_dim",)}
        for key in implied.get(given["model_type"], ()):
            assert judged.pop(key) == (8 if key == "head_dim" else False)
        assert judged == given


def test_file_has_the_promised_form(tool, tmp_path):
    folder = random_folder(tmp_path / "m")
    (folder / "tokenizer.json").write_text('{"naïve": "ünïcode"}', encoding="utf-8")
    out = tmp_path / "w.h5"
    assert tool("import_model", folder, out).status == 0
    # Superblock 3 is what format bounds v110 give, and what HDF5 checksums.
    assert out.read_bytes()[8] == 3
    with h5py.File(out) as file:
        for name in ("config", "tokenizer"):
            kind = file[name].id.get_type()
            assert not kind.is_variable_str() and file[name].chunks is None
            assert (
                kind.get_strpad() == h5py.h5t.STR_NULLPAD and kind.get_cset() == h5py.h5t.CSET_UTF8
            )
        text = file["tokenizer"][()]
        assert text.decode() == '{"naïve": "ünïcode"}'
        assert file.attrs["tokenizer_sha256"].decode() == hashlib.sha256(text).hexdigest()


def test_shards_and_a_single_file_give_the_same_file(tool, tmp_path):
    single = random_folder(tmp_path / "single")
    sharded = random_folder(tmp_path / "sharded", shards=3)
    hashes = []
    for folder in (single, sharded):
        out = tmp_path / f"{folder.name}.h5"
        assert tool("import_model", folder, out).status == 0
        with h5py.File(out) as file:
            hashes.append(file.attrs["content_sha256"])
            assert file.attrs["content_sha256"].decode() == content_hash(file)
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_kept_as_stored_and_readable_as_floats(tool, tmp_path, dtype):
    folder = random_folder(tmp_path / "m", dtype)
    out = tmp_path / "w.h5"
    assert tool("import_model", folder, out).status == 0
    name = "model.layers.1.mlp.up_proj.weight"
    with safe_open(folder / "model.safetensors", "numpy") as file:
        raw = (folder / "model.safetensors").read_bytes()
        assert file.get_slice(name).get_dtype() == {"float16": "F16", "bfloat16": "BF16"}[dtype]
    with h5py.File(out) as file:
        dataset = file[dataset_path(name)]
        assert type_name(dataset) == dtype and dataset.id.get_type().get_size() == 2
        assert read_raw(dataset).tobytes() in raw
        wanted = random_values(name)
        assert np.abs(dataset[()].astype(np.float64) - wanted).max() < 0.01
        assert file.attrs["content_sha256"].decode() == content_hash(file)


def random_values(name: str) -> np.ndarray:
    """The float32 values that random_folder gives a tensor."""
    from fixtures import random_arrays

    return random_arrays(llama_config(), 1)[name]


def test_bf16_rounds_to_nearest_even_and_fp32_is_exact(tool, tmp_path):
    folder = bigram_folder(tmp_path / "m")
    arrays = bigram_arrays(llama_config())
    # 1 + 2^-8 is a tie between 1 and 1 + 2^-7 and goes to the even 1; 1 + 3 * 2^-8 goes up.
    arrays["model.norm.weight"] = np.array([1 + 2**-8, 1 + 3 * 2**-8, np.nan, -np.inf], "<f4")
    write_safetensors(folder / "model.safetensors", arrays)
    assert tool("import_model", folder, tmp_path / "b.h5", "--dtype", "bf16").status == 0
    with h5py.File(tmp_path / "b.h5") as file:
        norm = file["weights/model/norm/weight"]
        assert type_name(norm) == "bfloat16"
        np.testing.assert_array_equal(norm[()], [1.0, 1 + 2**-6, np.nan, -np.inf])
    half = random_folder(tmp_path / "h", "float16")
    assert tool("import_model", half, tmp_path / "f.h5", "--dtype", "fp32").status == 0
    with h5py.File(tmp_path / "f.h5") as file:
        name = "model.embed_tokens.weight"
        assert type_name(file[dataset_path(name)]) == "float32"
        want = random_values(name).astype(np.float16).astype(np.float32)
        assert (file[dataset_path(name)][()] == want).all()


def test_bf16_keeps_every_nan_a_nan():
    # Rounding alone would carry the first into the sign bit, and cut the second down to infinity.
    bits = np.array([0x7FFFFFFF, 0x7F800001, 0xFFFFFFFF], "<u4")
    assert np.isnan(bfloat16_to_float32(float32_to_bfloat16(bits.view("<f4")))).all()


def test_h1_absent_shards_are_refused_by_name_all_at_once(tool, tmp_path):
    folder = random_folder(tmp_path / "m", shards=3)
    (folder / "model-00001-of-00003.safetensors").unlink()
    (folder / "model-00003-of-00003.safetensors").unlink()
    said = tool("import_model", folder, tmp_path / "w.h5")
    assert said.status == 2 and "absent" in said.err
    assert [f"model-0000{n}-of-00003" in said.err for n in (1, 2, 3)] == [True, False, True]
    assert list(tmp_path.glob("w.h5*")) == []


def test_h1_renamed_added_and_misshaped_tensors_are_listed_at_once(tool, tmp_path):
    arrays = bigram_arrays(llama_config())
    arrays["model.layers.0.mlp.up_projection.weight"] = arrays.pop(
        "model.layers.0.mlp.up_proj.weight"
    )
    arrays["model.layers.2.mlp.up_proj.weight"] = np.zeros((4, 4), "<f4")
    arrays["model.norm.weight"] = np.ones(5, "<f4")
    said = tool(
        "import_model", write_folder(tmp_path / "m", llama_config(), arrays), tmp_path / "w.h5"
    )
    assert said.status == 2
    for line in (
        "missing: model.layers.0.mlp.up_proj.weight (4, 4)",
        "unexpected: model.layers.0.mlp.up_projection.weight (4, 4)",
        "unexpected: model.layers.2.mlp.up_proj.weight (4, 4)",
        "misshaped: model.norm.weight is (5,), the config asks for (4,)",
    ):
        assert line in said.err
    assert list(tmp_path.glob("w.h5*")) == []


def test_h1_index_and_shards_must_tell_the_same_names(tool, tmp_path):
    folder = random_folder(tmp_path / "m", shards=2)
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.extra.weight"] = "model-00001-of-00002.safetensors"
    del content["weight_map"]["model.norm.weight"]
    index.write_text(json.dumps(content))
    said = tool("import_model", folder, tmp_path / "w.h5")
    assert said.status == 2
    assert "missing: model.extra.weight" in said.err and "unexpected: model.norm.weight" in said.err


@pytest.mark.parametrize("bias", ["attention_bias", "mlp_bias"])
def test_biases_are_called_for_and_stored(tool, tmp_path, bias):
    out = tmp_path / "w.h5"
    assert tool("import_model", random_folder(tmp_path / "with", **{bias: True}), out).status == 0
    with h5py.File(out) as file:
        biases = [name for name in stored(file) if name.endswith(".bias")]
    assert len(biases) == {"attention_bias": 8, "mlp_bias": 6}[bias]
    without = bigram_folder(tmp_path / "without", **{bias: True})
    said = tool("import_model", without, tmp_path / "v.h5")
    assert said.status == 2 and said.err.count("missing:") == len(biases)


def head_case(tmp_path, tied, head):
    """F-BG with a tie flag (... removes it) and a head: absent, equal (the embedding), another."""
    config = llama_config(tie_word_embeddings=tied)
    if tied is ...:
        del config["tie_word_embeddings"]
    arrays = bigram_arrays(llama_config())
    if head == "absent":
        del arrays["lm_head.weight"]
    elif head == "equal":
        arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"].copy()
    return write_folder(tmp_path / "m", config, arrays)


def test_h6_untied_without_a_head_is_refused(tool, tmp_path):
    said = tool("import_model", head_case(tmp_path, False, "absent"), tmp_path / "w.h5")
    assert said.status == 2 and "missing: lm_head.weight" in said.err


def test_h6_tied_with_an_equal_head_is_stored_once_and_said(tool, tmp_path):
    said = tool("import_model", head_case(tmp_path, True, "equal"), tmp_path / "w.h5")
    assert said.status == 0 and "lm_head.weight equals the embedding" in said.err
    with h5py.File(tmp_path / "w.h5") as file:
        assert "lm_head" not in file["weights"]


def test_h6_tied_with_another_head_is_refused(tool, tmp_path):
    said = tool("import_model", head_case(tmp_path, True, "another"), tmp_path / "w.h5")
    assert said.status == 2 and "differs from model.embed_tokens.weight, first in row 0" in said.err


def test_h6_absent_flag_becomes_the_familys_default_in_the_file(tool, tmp_path):
    said = tool("import_model", head_case(tmp_path, ..., "another"), tmp_path / "w.h5")
    assert said.status == 0 and "tie_word_embeddings is absent" in said.err
    with h5py.File(tmp_path / "w.h5") as file:
        assert json.loads(file["config"][()])["tie_word_embeddings"] is False
        assert "lm_head" in file["weights"]


def test_rotary_buffers_are_dropped_and_said(tool, tmp_path):
    arrays = bigram_arrays(llama_config())
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    arrays[name] = np.ones(1, "<f4")
    folder = write_folder(tmp_path / "m", llama_config(), arrays)
    said = tool("import_model", folder, tmp_path / "w.h5")
    assert said.status == 0 and name in said.err
    with h5py.File(tmp_path / "w.h5") as file:
        assert name not in stored(file)


def test_whole_numbers_and_cut_files_are_refused(tool, tmp_path):
    folder = bigram_folder(tmp_path / "m")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    said = tool("import_model", folder, tmp_path / "w.h5")
    assert said.status == 2 and "no whole safetensors file" in said.err
    write_safetensors(weights, bigram_arrays(llama_config()), "int64")
    said = tool("import_model", folder, tmp_path / "w.h5")
    assert said.status == 2 and "I64" in said.err


def test_folders_that_are_no_checkpoint_are_refused(tool, tmp_path):
    folder = bigram_folder(tmp_path / "m")
    (folder / "model.safetensors.index.json").write_text("{}")
    assert "both" in tool("import_model", folder, tmp_path / "w.h5").err
    (folder / "model.safetensors").unlink()
    assert "weight_map" in tool("import_model", folder, tmp_path / "w.h5").err
    (folder / "model.safetensors.index.json").unlink()
    (folder / "pytorch_model.bin").write_text("")
    said = tool("import_model", folder, tmp_path / "w.h5")
    assert said.status == 2 and "pickled weights are not read" in said.err
    (folder / "config.json").unlink()
    assert "config.json does not exist" in tool("import_model", folder, tmp_path / "w.h5").err
    assert tool("import_model", tmp_path / "nowhere", tmp_path / "w.h5").status == 2
    assert list(tmp_path.glob("w.h5*")) == []
