# SPDX-License-Identifier: Apache-2.0
"""Five AdamW steps against what PyTorch made of the same checkpoints in float32.

Decides how near is near enough, and at which layouts of ranks; the numbers lie in data/. The
gradient of step 1 is read off the first moment that a checkpoint holds: (1 - beta1) x clipped.
"""

from pathlib import Path

import h5py
import numpy as np
import pytest
from golden_models import GOLDEN

MODELS = ("llama", "llama-tied-odd", "llama3-rope", "mistral-window", "qwen2", "qwen3")
NEAR = 1e-5  # Of a tensor's largest entry; of losses and norms, relative.
# Adam makes full steps of rounding noise where a gradient is next to nothing: not compared.
NOISE = 1e-3

SMALL_PACKS = {"batch.tokens": 64}
SMALL_PIECES = {"fsdp.piece_bytes": "1 KiB"}
MPI = {"comm.transport": "mpi"}
CHOICES = [
    pytest.param(1, {}, id="1-rank"),
    pytest.param(1, SMALL_PACKS | SMALL_PIECES | {"train.recompute": "none"}, id="1-rank-pieces"),
    pytest.param(2, SMALL_PACKS | MPI, id="2-ranks-mpi"),
    pytest.param(3, SMALL_PIECES, id="3-ranks-pieces"),
    pytest.param(4, SMALL_PACKS | SMALL_PIECES | MPI, id="4-ranks-pieces-mpi"),
    pytest.param(4, SMALL_PACKS | {"mesh.shard": 2}, id="2-x-2"),
    pytest.param(
        4, SMALL_PACKS | MPI | {"mesh.shard": 2, "fsdp.reshard_after_forward": False}, id="2-x-2-mpi"
    ),
]


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


def near(found: np.ndarray, wanted: np.ndarray, where: np.ndarray | None = None) -> float:
    """The largest difference, in largest entries of what is wanted."""
    assert found.shape == wanted.shape
    difference = np.abs(found.astype(np.float64) - wanted)
    largest = np.abs(wanted).max()
    if where is not None:
        difference = difference[where]
    return float(difference.max(initial=0) / largest) if largest > 0 else float(difference.max())


# All layouts of two models, and three of the others.
RUNS = [
    pytest.param(model, *choice.values, id=f"{model}-{choice.id}")
    for model in MODELS
    for choice in CHOICES
    if model.startswith("llama") or choice.id in ("1-rank", "3-ranks-pieces", "2-x-2-mpi")
]


@pytest.mark.parametrize("model, ranks, settings", RUNS)
def test_five_steps_are_those_of_pytorch(model, ranks, settings, golden_weights, run, tmp_path):
    folder = tmp_path / "checkpoints"
    run(five_steps(golden_weights(model), model, folder) | settings, ranks)
    with h5py.File(GOLDEN / model / "expected.h5") as file:
        train = file["train"]
        losses, norms = train["loss"][()], train["gradient_norm"][()]
        beta1, clip = train.attrs["beta1"], train.attrs["gradient_clip_norm"]
        gradients = tensors(train["gradient_step_1"])
        wanted = {step: tensors(train[f"weights_step_{step}"]) for step in (1, 5)}
    with h5py.File(folder / "step-00000005.h5") as file:
        assert np.allclose(file["train/loss"][()], losses, rtol=NEAR, atol=0)
        assert np.allclose(file["train/gradient_norm"][()], norms, rtol=NEAR, atol=0)
    clipped = min(1.0, clip / (norms[0] + 1e-6))
    with h5py.File(folder / "step-00000001.h5") as file:
        moments = tensors(file["optimizer/first_moment"])
    assert set(moments) == set(gradients) == set(wanted[1])
    for name, gradient in gradients.items():
        assert near(moments[name] / ((1 - beta1) * clipped), gradient) <= NEAR, name
    for step, weights in wanted.items():
        with h5py.File(folder / f"step-{step:08}.h5") as file:
            found = tensors(file["weights"])
        for name, tensor in weights.items():
            gradient = np.abs(gradients[name])
            clear = gradient >= NOISE * gradient.max()
            assert near(found[name], tensor, clear) <= NEAR, (step, name)
