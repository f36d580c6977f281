# SPDX-License-Identifier: Apache-2.0
"""The inputs of inputs/train-tiny.deck: every byte a token, one text held out, made once.

Decides what the script owes to the deck; what training makes of them is not tested here.
"""

import json
import subprocess
import sys
from pathlib import Path

import h5py
from conftest import ROOT

VENV = Path(sys.executable).parent.parent


def make(folder: Path) -> subprocess.CompletedProcess:
    """Runs the script for two files of the folder."""
    words = [VENV, folder / "some" / "train.h5", folder / "held-out.h5"]
    return subprocess.run(
        [ROOT / "tools" / "tiny_inputs", *words], capture_output=True, text=True, check=True
    )


def test_tokens_are_the_bytes_of_texts_fit_the_model_and_are_made_once(tmp_path):
    make(tmp_path)
    config = json.loads((ROOT / "inputs" / "train-tiny.json").read_text())
    paths = (tmp_path / "some" / "train.h5", tmp_path / "held-out.h5")
    texts = []
    for path in paths:
        with h5py.File(path) as file:
            assert file.attrs["vocab_size"] == config["vocab_size"] == 256
            assert file["bytes"][:].sum() == len(file["tokens"]) > 10000
            assert file["tokens"][:].max() < 256
            texts += [bytes(name).rstrip(b"\0").decode() for name in file["id"][:]]
    assert len(texts) == len(set(texts)) > 1  # The held-out text is none of the others.
    before = [path.stat() for path in paths]
    assert make(tmp_path).stdout == ""
    assert [path.stat() for path in paths] == before
