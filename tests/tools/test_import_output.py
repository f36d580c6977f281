# SPDX-License-Identifier: Apache-2.0
"""An output appears whole or not at all, in bounded memory, and never over a file that was not to
be replaced.

Decides what import_model owes to the disk and to the machine; what is in the file is tested
elsewhere.
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
from checkpoints import bigram_folder
from conftest import ROOT, start
from foregather_tools import part_file
from foregather_tools.command_line import Refusal
from foregather_tools.model_tensors import expected_tensors
from foregather_tools.tensors import Tensor
from foregather_tools.weights_writer import write_weights


def test_existing_output_is_refused_unless_replaced(tool, tmp_path):
    folder, out = bigram_folder(tmp_path / "m"), tmp_path / "w.h5"
    out.write_bytes(b"precious")
    said = tool("import_model", folder, out)
    assert said.status == 2 and "--replace" in said.err and out.read_bytes() == b"precious"
    assert tool("import_model", folder, out, "--replace").status == 0
    assert h5py.is_hdf5(out) and list(tmp_path.glob("w.h5.*")) == []


def test_folder_that_is_not_there_is_refused(tool, tmp_path):
    said = tool("import_model", bigram_folder(tmp_path / "m"), tmp_path / "no" / "w.h5")
    assert said.status == 2 and "does not exist" in said.err


def test_too_little_space_is_refused_before_anything_is_written(tool, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(part_file.shutil, "disk_usage", lambda folder: usage)
    said = tool("import_model", bigram_folder(tmp_path / "m"), tmp_path / "w.h5")
    assert said.status == 2 and "1000 bytes free" in said.err
    assert list(tmp_path.glob("w.h5*")) == []


def test_failure_while_writing_leaves_no_file(tmp_path):
    def read(begin, end):
        raise OSError("the disk went away")

    broken = Tensor("model.norm.weight", "float32", (4,), read)
    out = tmp_path / "w.h5"
    out.write_bytes(b"the old one")
    with pytest.raises(OSError, match="went away"):
        write_weights(out, "{}", [broken], source="test", replace=True)
    assert out.read_bytes() == b"the old one" and list(tmp_path.iterdir()) == [out]


def test_source_cut_off_while_it_is_read_ends_with_status_1(tool, tmp_path, monkeypatch):
    folder = bigram_folder(tmp_path / "m")
    weights = folder / "model.safetensors"

    def cut(*_):
        weights.write_bytes(weights.read_bytes()[:-100])

    monkeypatch.setattr("foregather_tools.weights_writer.check_space", cut)
    said = tool("import_model", folder, tmp_path / "w.h5")
    assert said.status == 1 and "ended while" in said.err and str(weights) in said.err
    assert list(tmp_path.glob("w.h5*")) == []


def test_two_writers_do_not_mix(tmp_path):
    out = tmp_path / "w.h5"
    with part_file.new_hdf5_file(out, False) as file:
        file["x"] = 1
        with pytest.raises(Refusal, match="being written"):
            with part_file.new_hdf5_file(out, False):
                raise AssertionError("a second writer got the same part")
    with h5py.File(out) as file:
        assert file["x"][()] == 1


def sparse_folder(folder, megabytes):
    """A checkpoint of zeros of about that size that takes no room: one shard, written as a hole."""
    width = 1024
    config = fixtures.llama_config(
        hidden_size=width,
        intermediate_size=4 * width,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=128,
        num_hidden_layers=1,
        vocab_size=megabytes * 1024 // 4 - 16 * width,
        tie_word_embeddings=True,
    )
    header, offset = {}, 0
    for name, shape in expected_tensors(config).items():
        size = 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + offset)
    return folder, offset


def test_memory_stays_bounded_for_a_large_checkpoint(tmp_path):
    folder, size = sparse_folder(tmp_path / "m", 600)
    assert 590 * 2**20 < size < 610 * 2**20
    # VmHWM and not ru_maxrss, which a child takes over from its parent.
    code = (
        "import sys; from foregather_tools import import_model; "
        "status = import_model.main(sys.argv[1:]); "
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, folder, tmp_path / "w.h5"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    peak_kib = int(done.stdout.split()[-1])
    assert peak_kib < 200 * 1024
    assert (tmp_path / "w.h5").stat().st_size > size
    (tmp_path / "w.h5").unlink()


def test_killed_import_leaves_no_final_file_and_the_next_one_succeeds(tmp_path):
    folder, size = sparse_folder(tmp_path / "m", 600)
    out, part = tmp_path / "w.h5", tmp_path / "w.h5.part"
    process = start("import_model", folder, out)
    while process.poll() is None and not (part.exists() and part.stat().st_size > 2**20):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it ended before it could be killed"
    assert part.exists() and not out.exists()
    small = bigram_folder(tmp_path / "small")
    process = start("import_model", small, out)
    process.communicate()
    assert process.returncode == 0 and not part.exists()
    with h5py.File(out) as file:
        assert file["weights/lm_head/weight"].shape == (4, 4)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_import_and_removes_the_part(tmp_path, number):
    folder, _ = sparse_folder(tmp_path / "m", 600)
    out, part = tmp_path / "w.h5", tmp_path / "w.h5.part"
    process = start("import_model", folder, out)
    while process.poll() is None and not (part.exists() and part.stat().st_size > 2**20):
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == 1 and f"stopped by {number.name}" in said
    assert not part.exists() and not out.exists()


def test_progress_comes_in_whole_lines(tool, tmp_path, monkeypatch):
    monkeypatch.setattr("foregather_tools.command_line.Speaker.__init__.__defaults__", (0.0,))
    said = tool("import_model", bigram_folder(tmp_path / "m"), tmp_path / "w.h5")
    assert said.status == 0 and "\r" not in said.err
    assert all(line.startswith("import_model: ") for line in said.err.splitlines())
    assert sum("written" in line for line in said.err.splitlines()) > 5


def test_output_needs_no_more_rights_than_a_plain_file(tool, tmp_path):
    assert tool("import_model", bigram_folder(tmp_path / "m"), tmp_path / "w.h5").status == 0
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "w.h5").stat().st_mode & 0o777 == 0o666 & ~mask
