#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes data/families.h5 anew: what transformers makes of the models of family_cases.py.

Decides how the references are made, as make_expected.py does it; it needs torch (2.15 made those
that are here), transformers (5.24), h5py and safetensors. The tests never need this script.
"""

import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
from family_cases import CASES, EXPECTED, documents_of, write_folder
from make_expected import scores
from transformers import AutoModelForCausalLM

APART = 1e-3  # A case whose point is undone differs at least by this at a last token, nat.


def reference(name: str, folder: Path, undone: bool = False) -> np.ndarray:
    """Log-probabilities of all documents of a case."""
    model, said = AutoModelForCausalLM.from_pretrained(
        write_folder(name, folder, undone),
        dtype=torch.float32,
        attn_implementation="eager",
        output_loading_info=True,
    )
    if not undone:
        assert not said["missing_keys"] and not said["unexpected_keys"], (name, said)
    with torch.no_grad():
        parts = [scores(model, torch.tensor(ids))[0] for ids in documents_of(name)]
    return torch.cat(parts).numpy()


def main() -> None:
    """Writes the file; stops where a case would not show what it is for."""
    torch.set_num_threads(1)
    part = EXPECTED.with_name(EXPECTED.name + ".part")
    with tempfile.TemporaryDirectory() as folder, h5py.File(part, "w") as file:
        for name in CASES:
            wanted = reference(name, Path(folder) / name)
            other = reference(name, Path(folder) / f"{name}-undone", undone=True)
            last = len(documents_of(name)[0]) - 1
            apart = abs(wanted[last] - other[last])
            assert apart > APART, f"{name}: {apart} apart at the last token"
            file[name] = wanted.astype(np.float32)
            print(f"{name}: {apart:.3f} nat apart at the last token")
    part.rename(EXPECTED)


if __name__ == "__main__":
    main()
