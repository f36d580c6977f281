# SPDX-License-Identifier: Apache-2.0
"""Training that must give the same bits, and what another number of ranks may change.

Decides which runs must agree; whether their numbers are right is asked by test_training.py. What is
compared are the bytes of weights and moments in checkpoints.
"""

from pathlib import Path

import fixtures
import h5py
import numpy as np
import pytest
from run_foregather import Foregather, group_bytes

SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 500,
}
LENGTHS = [40, 33, 2, 64, 5, 30, 96, 3, 50, 77, 17, 40, 61, 12, 90, 20, 45, 8, 70, 31]
STEPS = 6


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> dict[str, Path]:
    """A tied and an untied model, and documents for both."""
    folder = tmp_path_factory.mktemp("inputs")
    models = {
        name: fixtures.random_llama(folder / f"{name}.h5", tie_word_embeddings=tied, **SHAPE)
        for name, tied in {"tied": True, "untied": False}.items()
    }
    tokens = fixtures.random_documents(folder / "tokens.h5", SHAPE["vocab_size"], LENGTHS)
    return models | {"tokens": tokens}


@pytest.fixture(scope="module")
def train(inputs, tmp_path_factory):
    """train("tied", ranks, settings) -> the folder of its checkpoints; each distinct call once."""
    runner = Foregather(tmp_path_factory.mktemp("runs"))
    done: dict[str, Path] = {}

    def call(model: str, ranks: int, settings: dict | None = None, folder: Path | None = None):
        settings = settings or {}
        key = repr((model, ranks, sorted(settings.items()), folder))
        if key not in done:
            done[key] = folder or tmp_path_factory.mktemp("checkpoints")
            deck = {
                "job.name": "train",
                "model.weights": inputs[model],
                "data.tokens": inputs["tokens"],
                "batch.tokens": 128,
                "train.steps": STEPS,
                "train.learning_rate": 0.003,
                "train.warmup_steps": 2,
                "train.batch_documents": 6,
                "fsdp.piece_bytes": "32 KiB",
                "checkpoint.directory": done[key],
                "checkpoint.every": 3,
            }
            runner(deck | settings, ranks)
        return done[key]

    return call


def state(folder: Path, step: int = STEPS) -> dict[str, bytes]:
    """The bytes of weights and moments after a step."""
    path = folder / f"step-{step:08}.h5"
    return group_bytes(path, "/weights") | group_bytes(path, "/optimizer")


def losses(folder: Path, step: int = STEPS) -> np.ndarray:
    with h5py.File(folder / f"step-{step:08}.h5") as file:
        return file["train/loss"][()]


MPI = {"comm.transport": "mpi"}
SAME = [
    {"fsdp.forward_prefetch": 0, "fsdp.backward_prefetch": 0},
    {"fsdp.forward_prefetch": 2, "fsdp.backward_prefetch": 2},
    {"fsdp.forward_prefetch": 0, "fsdp.backward_prefetch": 3},
    {"fsdp.reshard_after_forward": False},
    {"train.recompute": "none"},
    {"train.recompute": "none", "fsdp.reshard_after_forward": False, "fsdp.backward_prefetch": 0},
    {"device.threads": 2},
    {"comm.transport": "shared"},
    {"mesh.shard": 0, "output.timeline": False},
]


# One rank gathers nothing: what moves weights is inert there.
CASES = [
    pytest.param(model, ranks, changes, id=f"{model}-{ranks}-" + "-".join(map(str, changes.values())))
    for model, ranks in (("tied", 1), ("untied", 2), ("tied", 3))
    for changes in SAME
    if ranks > 1 or not any(key.startswith(("comm.", "fsdp.")) for key in changes)
]


@pytest.mark.parametrize("model, ranks, changes", CASES)
def test_how_it_is_computed_changes_no_bit(model, ranks, changes, train):
    base = MPI if ranks > 1 else {}
    assert state(train(model, ranks, base | changes)) == state(train(model, ranks, base))


@pytest.mark.parametrize("ranks, settings", [(1, {}), (2, MPI), (3, {}), (4, {"mesh.shard": 2})])
def test_resumed_is_unbroken_bit_for_bit(ranks, settings, train, tmp_path):
    unbroken = train("tied", ranks, settings)
    train("tied", ranks, settings | {"train.steps": 3} | CONSTANT, tmp_path)
    constant = train("tied", ranks, settings | CONSTANT)
    train("tied", ranks, settings | CONSTANT | {"train.steps": STEPS}, tmp_path)
    assert state(tmp_path) == state(constant) != state(unbroken)
    assert np.array_equal(losses(tmp_path), losses(constant))


CONSTANT = {"train.schedule": "constant"}


@pytest.mark.parametrize("ranks", (1, 3, 4, 8))
def test_another_number_of_ranks_goes_on_with_the_same_losses(ranks, train, tmp_path):
    wanted = losses(train("untied", 2, CONSTANT))
    train("untied", 2, CONSTANT | {"train.steps": 3}, tmp_path)
    train("untied", ranks, CONSTANT | {"train.steps": STEPS}, tmp_path)
    assert np.allclose(losses(tmp_path), wanted, rtol=1e-6, atol=0)
    back = tmp_path / "back"
    train("untied", ranks, CONSTANT | {"train.steps": 3}, back)
    train("untied", 2, CONSTANT | {"train.steps": STEPS}, back)
    assert np.allclose(losses(back), wanted, rtol=1e-6, atol=0)
