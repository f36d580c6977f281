# SPDX-License-Identifier: Apache-2.0
"""Golden models through the CUDA backend's own code on doubles of its libraries.

Decides what the whole program must do whatever computes: the reference's numbers, the same bytes at
every rank count and depth, no report of the ordering checker, no copy that the design forbids.
"""

import h5py
import numpy as np
import pytest
from emulated_runs import DELAY
from golden_models import GOLDEN

MODELS = ("llama", "llama-tied-odd", "llama3-rope", "mistral-window", "qwen2", "qwen3")
NEAR = 5e-5  # |difference| of a log-probability in float32, nat
BF16 = {"fsdp.param_dtype": "bf16"}


def reference(name: str) -> np.ndarray:
    """Log-probabilities that PyTorch computed in float32."""
    with h5py.File(GOLDEN / name / "expected.h5") as file:
        return file["logprob"][()]


def is_as_designed(found, ranks: int, depth: int, offload: bool = False) -> None:
    """Slots, copies and allocations of a run are those of pipeline and plan."""
    assert found.total("copies.device_to_device") == 0
    assert found.total("allocations.after_first_kernel") == 0
    prefetch = found.result.table("/timing/prefetch")
    if ranks > 1 or offload:
        assert prefetch["slots"][0] == depth + 1
        assert prefetch["issued_ahead"][0] == depth
        assert prefetch["verdict"][0] in ("observed", "issued")
        assert found.result.key("fsdp.forward_prefetch")["state"] == "honoured"
    uses = prefetch["gathers"][0] if ranks > 1 else 0
    assert all(rank["call.ncclAllGather"] == uses + (ranks > 1) for rank in found.ranks), (
        "a gather for each unit that is not there, and NCCL's first one"
    )
    assert found.result.key("device.kind")["observed"] == "cuda"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_scores_are_those_of_the_reference_at_every_depth(name, ranks, golden, on_gpus):
    wanted, first = reference(name), None
    for depth in (0, 1, 2):
        delay = {DELAY: "200"} if depth == 1 else {}
        found = on_gpus(golden(name) | {"fsdp.forward_prefetch": depth}, ranks, delay)
        is_as_designed(found, ranks, depth)
        logprob = found.result.read("/score/logprob")
        assert np.array_equal(np.isnan(logprob), np.isnan(wanted))
        assert np.nanmax(np.abs(logprob - wanted)) <= NEAR
        first = first or found.result.score_bytes()
        assert found.result.score_bytes() == first, f"depth {depth}"


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_the_same_bytes_at_every_rank_count(name, golden, on_gpus):
    for settings in ({}, BF16):
        first = None
        for ranks in (1, 2, 3, 4):
            found = on_gpus(golden(name) | settings, ranks).result
            first = first or found.score_bytes()
            assert found.score_bytes() == first, f"{ranks} ranks, {settings}"


@pytest.mark.parametrize("name", MODELS)
def test_bf16_is_near_the_float32_reference_and_near_the_host(name, golden, on_gpus, run):
    found = on_gpus(golden(name) | BF16, 2).result
    host = run(golden(name) | BF16 | {"device.kind": "host"}, 2)
    wanted = reference(name)
    logprob = found.read("/score/logprob")
    assert 1e-4 < np.nanmean(np.abs(logprob - wanted)) <= 0.07
    assert abs(found.attribute("loss") - host.attribute("loss")) <= 0.02
    # Both round the same operands; sums of other orders may round a few of them otherwise.
    assert np.nanmean(np.abs(logprob - host.read("/score/logprob"))) <= 0.02


@pytest.mark.parametrize("name", MODELS)
def test_offload_changes_no_byte(name, golden, on_gpus):
    plain = on_gpus(golden(name), 2).result.score_bytes()
    for ranks, depth in ((1, 0), (1, 1), (2, 0), (2, 1), (3, 2), (4, 1)):
        keys = {"fsdp.offload": "params", "fsdp.forward_prefetch": depth}
        found = on_gpus(golden(name) | keys, ranks, {DELAY: "200"})
        assert found.result.score_bytes() == plain, f"{ranks} ranks, depth {depth}"
        is_as_designed(found, ranks, depth, offload=True)
        assert found.result.key("fsdp.offload")["state"] == "honoured"


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_all_that_can_be_asked_for_is_near_the_host(name, golden, on_gpus, run):
    wants = {
        "score.entropy": True,
        "score.top_k": 5,
        "score.temperature": 0.7,
        "score.hidden_states": True,
        "score.logits": True,
        "data.window": 16,
        "data.stride": 8,
        "fsdp.piece_bytes": "1 KiB",
    }
    found = on_gpus(golden(name) | wants, 3).result
    host = run(golden(name) | wants | {"device.kind": "host"}, 2)
    for column in ("logprob", "entropy", "top_logprob", "hidden_states", "logits"):
        ours, theirs = found.read(f"/score/{column}"), host.read(f"/score/{column}")
        assert np.array_equal(np.isnan(ours), np.isnan(theirs)), column
        assert np.nanmax(np.abs(ours - theirs)) <= 2e-4, column
    assert np.mean(found.read("/score/top_token") == host.read("/score/top_token")) > 0.99
    assert np.mean(found.read("/score/greedy") == host.read("/score/greedy")) > 0.99


def test_every_product_has_its_algorithm_on_record(golden, on_gpus):
    found = on_gpus(golden("qwen2"), 2).result
    text = found.read("/provenance/algorithms")
    assert "bias" in text and "algorithm" in text and "256 rows" in text
