# SPDX-License-Identifier: Apache-2.0
"""Writes small files of training runs for the tests of the tools that read them, as the program
writes them: results and checkpoints.

Decides the files' layout; which run a file is of is the test's affair.
"""

from pathlib import Path

import fixtures
import h5py
import numpy as np

COUNTS = {"step": 6, "updates": 5, "bad_steps": 0, "epoch": 1, "place": 2, "seed": 0}


def history(steps: int = 6, first: float = 5.0) -> dict[str, np.ndarray]:
    """Columns of /train: the loss falls, the norm of step 3 is infinite."""
    step = np.arange(1, steps + 1)
    norm = np.where(step == 3, np.inf, 1.0 / step)
    rate = 1e-3 * np.minimum(step, 3) / 3
    loss = first / np.sqrt(step)
    columns = {"step": step, "loss": loss, "gradient_norm": norm, "learning_rate": rate}
    return columns | {"tokens": np.full(steps, 100)}


def write_history(file: h5py.File, columns: dict[str, np.ndarray], rows: int = 0) -> None:
    """Under /train, of so many rows, those behind as they are before their steps are run; and two
    evaluations.
    """
    for name, values in columns.items():
        fill = np.nan if values.dtype.kind == "f" else -1
        column = np.full(max(rows, values.size), fill, values.dtype)
        column[: values.size] = values
        file[f"train/{name}"] = column
    file["evaluation/step"] = np.array([3, 6])
    file["evaluation/loss"] = np.array([4.0, 3.0])
    file["evaluation/tokens"] = np.array([50, 50])


def write_training(path: Path, rows: int = 0, complete: int = 1, **run) -> Path:
    """A results file."""
    with h5py.File(path, "w") as file:
        file.attrs["format"] = np.bytes_("foregather.results")
        file.attrs["format_version"] = 1
        file.attrs["title"] = np.bytes_("a small run")
        file.attrs["complete"] = complete
        write_history(file, history(**run), rows)
        file["train/items/step"] = np.array([1, 2, 3, 4, 5, 6])
        file["train/items/document"] = np.array([4, 0, 3, 5, 1, 2])
        file["train/items/window"] = np.zeros(6, np.int64)
    return path


def write_checkpoint(path: Path, **run) -> Path:
    """A random Llama in fp32 with moments and the state of its training."""
    fixtures.random_llama(path)
    with h5py.File(path, "r+") as file:
        tensors: dict[str, np.ndarray] = {}

        def collect(name, item):
            if isinstance(item, h5py.Dataset):
                tensors[name] = item[()]

        file["weights"].visititems(collect)
        for number, moment in enumerate(("first_moment", "second_moment"), 1):
            for name, values in tensors.items():
                file[f"optimizer/{moment}/{name}"] = values * number * 1e-3
        write_history(file, history(**run))
        file["train"].attrs.update(COUNTS)
        file["train/settings"] = np.bytes_("batch.tokens = 256\n")
        file.attrs["complete"] = 1
    return path
