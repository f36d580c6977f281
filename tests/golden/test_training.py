# SPDX-License-Identifier: Apache-2.0
"""Five AdamW steps against what PyTorch made of the same checkpoints in float32.

Decides how near is near enough, and at which layouts of ranks; five_steps.py, what is compared.
"""

import pytest
from five_steps import differences, five_steps

MODELS = ("llama", "llama-tied-odd", "llama3-rope", "mistral-window", "qwen2", "qwen3")
NEAR = 1e-5  # Of a tensor's largest entry; of losses and norms, relative.

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
    far = differences(model, folder)
    assert {what: each for what, each in far.items() if each > NEAR} == {}
