# SPDX-License-Identifier: Apache-2.0
"""Reads what a training run was: its steps and evaluations, from a results file or a checkpoint.

Decides which files have steps that can be read; how they are shown is decided in each tool.
"""

from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from .checksums import refuse_if_broken
from .command_line import Refusal
from .results_file import text

FORMATS = ("foregather.results", "foregather.weights")
COLUMNS = ("step", "loss", "gradient_norm", "learning_rate", "tokens")


@dataclass(frozen=True)
class TrainingRun:
    """Steps that were run, in order; `complete` is false while a run goes on or was interrupted."""

    path: Path
    title: str
    complete: bool
    step: np.ndarray
    loss: np.ndarray
    gradient_norm: np.ndarray
    learning_rate: np.ndarray
    tokens: np.ndarray
    evaluation_step: np.ndarray
    evaluation_loss: np.ndarray

    @property
    def applied(self) -> np.ndarray:
        """Which steps changed the weights: those whose loss and norm are finite."""
        return np.isfinite(self.loss) & np.isfinite(self.gradient_norm)


def _columns(path: Path, file: h5py.File, group: str, names: tuple[str, ...]) -> list[np.ndarray]:
    """Columns of a table, without the rows of steps that were not run."""
    table = file.get(group)
    absent = [name for name in names if not isinstance(table, h5py.Group) or name not in table]
    if absent:
        raise Refusal(f"{path} has no /{group}/{absent[0]}: it is not of a training run")
    for name in names:
        refuse_if_broken(path, table[name])
    values = [table[name][()] for name in names]
    if len({column.shape for column in values}) > 1:
        raise Refusal(f"{path}: the columns of /{group} have different lengths")
    was_run = values[0] >= 0
    return [column[was_run] for column in values]


def read_training(path: Path) -> TrainingRun:
    """Opens a results file, also the .part of a run that goes on, or a checkpoint. A Refusal says
    what is wrong with it.
    """
    if not path.is_file():
        raise Refusal(f"{path} does not exist" if not path.exists() else f"{path} is no file")
    try:
        with h5py.File(path) as file:
            form = text(file.attrs.get("format", ""))
            if form not in FORMATS:
                raise Refusal(f"{path} is no results file and no checkpoint: its format is '{form}'")
            steps = _columns(path, file, "train", COLUMNS)
            evaluations = _columns(path, file, "evaluation", ("step", "loss"))
            title = text(file.attrs.get("title", b""))
            complete = bool(file.attrs.get("complete", 0))
    except OSError as error:
        raise Refusal(f"{path} cannot be read: {error}") from None
    if not steps[0].size:
        raise Refusal(f"{path} has no step that was run")
    return TrainingRun(path, title, complete, *steps, *evaluations)
