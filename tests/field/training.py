# SPDX-License-Identifier: Apache-2.0
"""What the field cases of training share: their ordinary deck, and what is read out of checkpoints.

Decides which keys a tiny training run sets; each test decides what it changes and expects.
"""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from run_foregather import Result, group_bytes


def deck(weights: Path, tokens: Path, **changes: Any) -> dict[str, Any]:
    """Training in the file's order at one learning rate; sections' dots are given as two __."""
    ordinary = {
        "job.name": "train",
        "model.weights": weights,
        "data.tokens": tokens,
        "train.steps": 1,
        "train.learning_rate": 0.01,
        "train.schedule": "constant",
        "train.shuffle": False,
    }
    return ordinary | {key.replace("__", "."): value for key, value in changes.items()}


def step_file(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step-{step:08}.h5"


def steps_in(folder: Path) -> list[int]:
    """The steps of which a folder has checkpoints, and of nothing else."""
    names = sorted(path.name for path in folder.iterdir())
    steps = [int(name.removeprefix("step-").removesuffix(".h5")) for name in names]
    assert names == [step_file(folder, step).name for step in steps]
    return steps


def tensors(path: Path, group: str = "weights") -> dict[str, np.ndarray]:
    """All tensors below a group of a weights file, by their names with dots."""
    found: dict[str, np.ndarray] = {}

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name.replace("/", ".")] = item[()]

    with h5py.File(path) as file:
        file[group].visititems(add)
    return found


def state(path: Path) -> dict[str, bytes]:
    """The bytes of weights and moments of a checkpoint."""
    return group_bytes(path, "/weights") | group_bytes(path, "/optimizer")


def notes(result: Result) -> list[str]:
    """What the run told beside its figures, while it ran."""
    return [line.removeprefix("note: ") for line in result.stdout.splitlines() if "note: " in line]


def taken(result: Result) -> list[list[int]]:
    """The documents of each step."""
    items = result.table("/train/items")
    last = int(items["step"].max())
    return [items["document"][items["step"] == step].tolist() for step in range(1, last + 1)]
