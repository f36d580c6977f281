#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A weights file as a Hugging Face folder of float32 tensors, for peers to read.

  to_hf_folder.py WEIGHTS.h5 FOLDER

Needs h5py, numpy and safetensors. It holds the whole model in memory: a tool for comparisons, not for export.
"""
import pathlib
import sys

import h5py
import numpy
from safetensors.numpy import save_file


def main() -> None:
    source, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    with h5py.File(source) as file:
        def take(name: str, item: h5py.Group | h5py.Dataset) -> None:
            if isinstance(item, h5py.Dataset):
                tensors[name.replace("/", ".")] = item[()].astype(numpy.float32)
        file["weights"].visititems(take)
        config = file["config"][()]
    (folder / "config.json").write_bytes(config)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
