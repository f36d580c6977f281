# SPDX-License-Identifier: Apache-2.0
"""Cases that users of such programs have reported, on the CUDA backend.

Decides what each fault would look like; the models are small enough that results are known exactly.
"""

import math

import fixtures
import pytest


@pytest.fixture(scope="module")
def bigram(tmp_path_factory) -> dict:
    """The deck of F-BG and documents A and B: 4 targets, loss 1.5 ln 2."""
    folder = tmp_path_factory.mktemp("bigram")
    fixtures.bigram(folder / "w.h5")
    fixtures.write_tokens(folder / "ab.h5", [fixtures.A, fixtures.B])
    return {"model.weights": folder / "w.h5", "data.tokens": folder / "ab.h5", "batch.tokens": 4}


def test_the_prefetch_setting_reaches_both_backends(bigram, on_gpus, run):
    """A second engine that forgets the key: every gather late, and nobody told."""
    scores = {}
    for depth in (0, 1):
        keys = bigram | {"fsdp.forward_prefetch": depth}
        cuda = on_gpus(keys, 2).result
        host = run(keys | {"device.kind": "host", "comm.transport": "mpi"}, 2)
        for found in (cuda, host):
            prefetch = found.table("/timing/prefetch")
            assert prefetch["requested"][0] == depth
            assert prefetch["issued_ahead"][0] == depth
            assert prefetch["slots"][0] == depth + 1
            spans = found.table("/timing/spans")
            assert ahead(spans) == (0 if depth == 0 else gathers(spans) - ranks_of(spans))
            assert math.isclose(found.attribute("loss"), 1.5 * math.log(2), rel_tol=1e-6)
        scores[depth] = cuda.score_bytes()
        assert cuda.read("/timing/units/name").tolist() == host.read("/timing/units/name").tolist()
    assert scores[0] == scores[1]


def ranks_of(spans) -> int:
    return len(set(spans["rank"].tolist()))


def gathers(spans) -> int:
    """All gathers of all ranks."""
    return int((spans["kind"] == "gather").sum())


def ahead(spans) -> int:
    """Gathers that were issued before the compute that came before their own use was issued."""
    count = 0
    for rank in set(spans["rank"].tolist()):
        of_rank = spans["rank"] == rank
        computes = sorted(spans["sequence"][of_rank & (spans["kind"] == "compute")].tolist())
        for sequence in spans["sequence"][of_rank & (spans["kind"] == "gather")].tolist():
            after = [c for c in computes if c > sequence]
            # The compute that follows a gather at once is the one before its own use, or its own.
            own = own_use(spans, of_rank, sequence)
            count += 1 if after and own is not None and after[0] < own else 0
    return count


def own_use(spans, of_rank, sequence: int) -> int | None:
    """The sequence number of the first compute of the unit that a gather brought, after it."""
    unit = spans["unit"][of_rank & (spans["sequence"] == sequence)][0]
    same = of_rank & (spans["kind"] == "compute") & (spans["unit"] == unit)
    later = [s for s in spans["sequence"][same].tolist() if s > sequence]
    return min(later) if later else None


def test_one_rank_needs_no_nccl(bigram, on_gpus):
    found = on_gpus(bigram, 1)
    assert found.ranks[0]["call.ncclCommInitRankConfig"] == 0
    assert found.result.key("fsdp.forward_prefetch")["state"] == "inert"
    assert math.isclose(found.result.attribute("loss"), 1.5 * math.log(2), rel_tol=1e-6)


def test_replicas_gather_in_their_own_groups(bigram, on_gpus):
    found = on_gpus(bigram | {"mesh.shard": 2}, 4)
    assert all(rank["communicators.created"] == 1 for rank in found.ranks)
    assert "2 ranks" in found.result.key("mesh.shard")["observed"]
    assert math.isclose(found.result.attribute("loss"), 1.5 * math.log(2), rel_tol=1e-6)


def test_an_interrupted_run_goes_on_where_it_was(bigram, on_gpus):
    """Complete already: the same file, untouched, whatever it ran on."""
    first = on_gpus(bigram | {"output.existing": "resume"}, 2).result
    before = first.path.read_bytes()
    keys = bigram | {"output.existing": "resume", "output.file": first.path}
    again = on_gpus(keys, 2, reports=None).result
    assert again.path.read_bytes() == before


def test_a_file_of_the_host_is_not_gone_on_with_by_a_gpu(bigram, on_gpus, run, tmp_path):
    keys = bigram | {"output.file": tmp_path / "one.h5", "output.existing": "resume"}
    run(keys | {"device.kind": "host"}, 2)
    refused = on_gpus(keys, 2, reports=None, expect=2).result
    assert "device" in refused.stderr and "one.h5" in refused.stderr
