# SPDX-License-Identifier: Apache-2.0
"""Whole training runs through the CUDA backend's own code on doubles of its libraries.

Decides what such a run must do whatever computes: PyTorch's five steps, bits that only the layout
and types decide, a resumed run that is the unbroken one, no report of the ordering checker.
"""

from pathlib import Path

import h5py
import numpy as np
import pytest
from emulated_runs import DELAY, Emulated
from five_steps import differences, five_steps
from run_foregather import group_bytes

NEAR = 1e-5  # Of a tensor's largest entry; of losses and norms, relative.
# In bf16 a product's operands are rounded to 2^-9 of themselves; weights then follow the gradients'
# signs, so they are not compared.
NEAR_IN_BF16 = {"loss": 5e-3, "norm": 3e-2, "gradient": 0.1}
SMALL_PACKS = {"batch.tokens": 64}
SMALL_PIECES = {"fsdp.piece_bytes": "4 KiB"}
HSDP = {"mesh.shard": 2}
LAYOUTS = {
    "1-rank": (1, {}),
    "2-ranks-pieces": (2, SMALL_PACKS | SMALL_PIECES),
    "2-x-2": (4, SMALL_PACKS | HSDP),
}
CASES = [
    *(("llama", layout) for layout in LAYOUTS),
    ("llama-tied-odd", "1-rank"),
    ("llama-tied-odd", "2-x-2"),
    ("qwen3", "2-ranks-pieces"),
]
# By NCCL's function, the column of /timing/ranks that counts its calls.
COLLECTIVES = {"ncclReduceScatter": "reductions", "ncclAllReduce": "replica_reductions"}
STEPS = 4


@pytest.fixture
def deck(golden, tmp_path):
    """deck(settings, folder): some steps of a few documents each, in passes of one or two."""

    def make(settings: dict | None = None, folder: str = "checkpoints") -> dict:
        scored = golden("llama")
        return {
            "job.name": "train",
            "model.weights": scored["model.weights"],
            "data.tokens": scored["data.tokens"],
            "batch.tokens": 64,
            "train.steps": STEPS,
            "train.learning_rate": 0.003,
            "train.schedule": "constant",
            "train.batch_documents": 4,
            "checkpoint.directory": tmp_path / folder,
        } | (settings or {})

    return make


def state(folder: Path, step: int = STEPS) -> dict[str, bytes]:
    """The bytes of weights, moments, losses and norms after a step."""
    path = folder / f"step-{step:08}.h5"
    kept = group_bytes(path, "/weights") | group_bytes(path, "/optimizer")
    with h5py.File(path) as file:
        for name in ("train/loss", "train/gradient_norm"):
            kept[name] = file[name][()].tobytes()
    return kept


def allocations(found: Emulated) -> list[int]:
    """How often each process has allocated memory of a GPU, or such as it reaches."""
    return [rank["allocations.device"] + rank["allocations.pinned"] for rank in found.ranks]


def opened(found: Emulated) -> list[dict[str, int]]:
    """How many communicators each process has opened under which names."""
    begin = "communicators.named."
    return [
        {name.removeprefix(begin): n for name, n in rank.items() if name.startswith(begin)}
        for rank in found.ranks
    ]


@pytest.mark.parametrize("model, layout", CASES)
def test_five_steps_are_those_of_pytorch(model, layout, golden, on_gpus, tmp_path):
    ranks, settings = LAYOUTS[layout]
    folder = tmp_path / "checkpoints"
    found = on_gpus(five_steps(golden(model)["model.weights"], model, folder) | settings, ranks)
    far = differences(model, folder)
    assert {what: each for what, each in far.items() if each > NEAR} == {}
    assert found.total("copies.device_to_device") == 0
    named = {"gather": ranks > 1, "reduce": ranks > 1, "replica": "mesh.shard" in settings}
    assert opened(found) == ranks * [{name: 1 for name, is_there in named.items() if is_there}]
    assert not any(found.result.table("/timing/ranks")["allocations_while_running"])
    for call, column in COLLECTIVES.items():
        told = found.result.table("/timing/ranks")[column] if ranks > 1 else [0]
        assert [rank[f"call.{call}"] for rank in found.ranks] == list(told), call


def test_five_steps_in_bf16_are_near_pytorchs_in_float32(golden, on_gpus, tmp_path):
    folder = tmp_path / "checkpoints"
    keys = five_steps(golden("llama")["model.weights"], "llama", folder)
    on_gpus(keys | {"fsdp.param_dtype": "bf16"}, 2)
    far = differences("llama", folder)
    for what, near in NEAR_IN_BF16.items():
        most = max(each for name, each in far.items() if name.startswith(what))
        assert near / 1000 < most <= near, what


def test_how_it_is_computed_changes_no_bit(deck, on_gpus, tmp_path):
    others = {
        "depth-0": {"fsdp.forward_prefetch": 0, "fsdp.backward_prefetch": 0},
        "depth-2": {"fsdp.forward_prefetch": 2, "fsdp.backward_prefetch": 2},
        "kept": {"fsdp.reshard_after_forward": False},
        "recompute-none": {"train.recompute": "none"},
        "evaluated": {"train.evaluate": deck()["data.tokens"], "train.evaluate_every": 2},
    }
    on_gpus(deck(), 2)
    wanted = state(tmp_path / "checkpoints")
    for name, settings in others.items():
        on_gpus(deck(settings, name), 2, {DELAY: "200"} if name == "depth-2" else {})
        assert state(tmp_path / name) == wanted, name


@pytest.mark.parametrize(
    "settings",
    [
        {"fsdp.reduce_dtype": "bf16"},
        {"train.batch_documents": 0, "train.accumulate": 3},
        HSDP | {"fsdp.reduce_dtype": "bf16", "train.recompute": "none"},
    ],
    ids=lambda settings: "-".join(f"{key}={value}" for key, value in settings.items()),
)
def test_losses_and_weights_are_near_the_hosts(settings, deck, on_gpus, run, tmp_path):
    ranks = 4 if "mesh.shard" in settings else 2
    on_gpus(deck(settings), ranks)
    run(deck(settings | {"device.kind": "host"}, "host"), ranks)
    name = f"step-{STEPS:08}.h5"
    with h5py.File(tmp_path / "checkpoints" / name) as ours, h5py.File(tmp_path / "host" / name) as host:
        # Sums of another order may be rounded to another bf16.
        near = 1e-3 if "fsdp.reduce_dtype" in settings else NEAR
        for column in ("loss", "gradient_norm"):
            ratio = ours[f"train/{column}"][()] / host[f"train/{column}"][()]
            assert np.abs(ratio - 1).max() <= near, column


def test_an_evaluation_has_the_loss_that_the_next_step_begins_with(golden, on_gpus, tmp_path):
    folder = tmp_path / "checkpoints"
    keys = five_steps(golden("llama")["model.weights"], "llama", folder) | SMALL_PACKS
    evaluated = {"train.evaluate": keys["data.tokens"], "train.evaluate_every": 1}
    found = on_gpus(keys | evaluated | {"train.steps": 3, "checkpoint.every": 0}, 2)
    evaluations, losses = found.result.read("/evaluation/loss"), found.result.read("/train/loss")
    assert list(found.result.read("/evaluation/step")) == [1, 2, 3]
    assert np.allclose(evaluations[:-1], losses[1:], rtol=1e-6, atol=0)


@pytest.mark.parametrize("settings", [{}, HSDP | {"fsdp.param_dtype": "bf16"}], ids=["2", "2-x-2-bf16"])
def test_resumed_is_unbroken_bit_for_bit(settings, deck, on_gpus, tmp_path):
    ranks = 4 if settings else 2
    on_gpus(deck(settings, "unbroken"), ranks)
    for steps in (2, STEPS):
        on_gpus(deck(settings | {"train.steps": steps}), ranks)
    assert state(tmp_path / "checkpoints") == state(tmp_path / "unbroken")


def test_steps_after_the_first_allocate_nothing(deck, on_gpus):
    evaluated = {"train.evaluate": deck()["data.tokens"], "train.evaluate_every": 1}
    found = {
        steps: on_gpus(deck(evaluated | {"train.steps": steps}, str(steps)), 2)
        for steps in (1, STEPS)
    }
    assert all(allocations(found[1]))
    assert allocations(found[STEPS]) == allocations(found[1])
    assert not any(found[STEPS].result.table("/timing/ranks")["allocations_while_running"])
