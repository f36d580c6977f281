# SPDX-License-Identifier: Apache-2.0
"""What the tests of compare share: changes to the second file of a pair, and pairs of trainings.

Decides how a file is changed; what of it must be told is each test's affair.
"""

import h5py
from results_files import fixed
from training_files import write_training


def put(name, values):
    """A change: this dataset has these values."""

    def change(file):
        if name in file:
            del file[name]
        if values is not None:
            file[name] = values

    return change


def entry(name, index, value):
    """A change: one entry of this dataset."""

    def change(file):
        file[name][index] = value

    return change


def loss(value):
    """A change: the mean loss."""
    return lambda file: file["score"].attrs.modify("loss", value)


def training_pair(tmp_path, change=lambda file: None):
    """Two equal training runs, of which the second is changed."""
    files = write_training(tmp_path / "ta.h5"), write_training(tmp_path / "tb.h5")
    for number, path in enumerate(files):
        with h5py.File(path, "r+") as file:
            phases = {"name": ["run", "exposed reduce"], "seconds_max": [9.0, 2.0]}
            for name, values in (phases | {"seconds_mean": [8.0, 1.0]}).items():
                file[f"timing/phases/{name}"] = fixed(values) if name == "name" else values
            file["timing/phases"].attrs["step_seconds_median"] = 1.5
            file["timing/ranks/tokens"] = [300, 300]
            if number:
                change(file)
    return files
