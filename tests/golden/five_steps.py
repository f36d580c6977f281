# SPDX-License-Identifier: Apache-2.0
"""The deck of the reference's five AdamW steps, and how far a run of it is from them.

Decides what is compared: losses, norms, the gradient of step 1 and weights. The tests decide how
near is near enough. The gradient is read off the first moment that a checkpoint holds, which is
(1 - beta1) x clipped; the numbers lie in data/.
"""

from pathlib import Path

import h5py
import numpy as np
from golden_models import GOLDEN

# Adam makes full steps of rounding noise where a gradient is next to nothing: not compared.
NOISE = 1e-3


def five_steps(weights: Path, model: str, folder: Path) -> dict:
    """The deck of the reference: all documents in every step, no schedule, no shuffling."""
    return {
        "job.name": "train",
        "model.weights": weights,
        "data.tokens": GOLDEN / model / "tokens.h5",
        "train.steps": 5,
        "train.learning_rate": 0.003,
        "train.schedule": "constant",
        "train.batch_documents": 1000,
        "checkpoint.directory": folder,
        "checkpoint.every": 1,
    }


def tensors(group: h5py.Group) -> dict[str, np.ndarray]:
    """All datasets of a group by their names, with slashes."""
    found: dict[str, np.ndarray] = {}
    group.visititems(lambda n, o: found.update({n: o[()]}) if isinstance(o, h5py.Dataset) else None)
    return found


def difference(found: np.ndarray, wanted: np.ndarray, where: np.ndarray | None = None) -> float:
    """The largest difference, in largest entries of what is wanted."""
    assert found.shape == wanted.shape
    apart = np.abs(found.astype(np.float64) - wanted)
    largest = np.abs(wanted).max()
    if where is not None:
        apart = apart[where]
    return float(apart.max(initial=0) / largest) if largest > 0 else float(apart.max(initial=0))


def differences(model: str, folder: Path) -> dict[str, float]:
    """By what is compared, how far the checkpoints in a folder are from PyTorch's five steps."""
    with h5py.File(GOLDEN / model / "expected.h5") as file:
        train = file["train"]
        losses, norms = train["loss"][()], train["gradient_norm"][()]
        beta1, clip = train.attrs["beta1"], train.attrs["gradient_clip_norm"]
        gradients = tensors(train["gradient_step_1"])
        wanted = {step: tensors(train[f"weights_step_{step}"]) for step in (1, 5)}
    with h5py.File(folder / "step-00000005.h5") as file:
        far = {
            "loss": float(np.abs(file["train/loss"][()] / losses - 1).max()),
            "norm": float(np.abs(file["train/gradient_norm"][()] / norms - 1).max()),
        }
    clipped = min(1.0, clip / (norms[0] + 1e-6))
    with h5py.File(folder / "step-00000001.h5") as file:
        moments = tensors(file["optimizer/first_moment"])
    assert set(moments) == set(gradients) == set(wanted[1])
    for name, gradient in gradients.items():
        found = moments[name] / ((1 - beta1) * clipped)
        far[f"gradient of {name}"] = difference(found, gradient)
    for step, weights in wanted.items():
        with h5py.File(folder / f"step-{step:08}.h5") as file:
            found = tensors(file["weights"])
        for name, tensor in weights.items():
            gradient = np.abs(gradients[name])
            clear = gradient >= NOISE * gradient.max()
            far[f"{name} after step {step}"] = difference(found[name], tensor, clear)
    return far
