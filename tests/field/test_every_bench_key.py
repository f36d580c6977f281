# SPDX-License-Identifier: Apache-2.0
"""Every key of the job bench acts: two of its values give runs that differ in a recorded quantity
(a4).

Decides one probe for each key of that job, and what the ledger says of them. test_every_key.py sees
to it that no key of the table is left out.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from run_foregather import Result
from said import refusal
from test_every_key import (
    CORETYPE,
    MARKED,
    SLOW,
    WEIGHT_BYTES,
    Probe,
    code,
    device,
    environment,
    existing,
    fastest_gather,
    has_spans,
    log_events,
    offload_refused,
    products,
    timeout_code,
    total,
    write_junk,
)

TRAIN = {"bench.job": "train"}
BOTH = {"bench.transports": "mpi"}


def depths(name: str) -> Callable[[Result], list]:
    """A column of /bench/depths."""
    return lambda result: result.table("/bench/depths")[name].tolist()


def turns(name: str) -> Callable[[Result], list]:
    """A column of rank 0's rows of /bench/turns."""

    def column(result: Result) -> list:
        table = result.table("/bench/turns")
        return table[name][table["rank"] == 0].tolist()

    return column


def observed(key: str) -> Callable[[Result], str]:
    """What the ledger has seen of a key."""
    return lambda result: result.key(key)["observed"]


PROBES = {
    "job.name": Probe("bench", "benches", code, (0, 2)),
    "job.strict": Probe(False, True, code, (0, 2), {"bench.depths": "0, 9"}),
    "job.title": Probe("one", "two", lambda r: r.attribute("title", "/"), ("one", "two")),
    "job.max_time": Probe(0, 0.001, code, (0, 75)),
    "model.weights": Probe("bigram.h5", "slow.h5", total("bytes_read"), (WEIGHT_BYTES, ...)),
    "data.tokens": Probe(
        "a.h5",
        "ab.h5",
        lambda r: r.table("/bench/configurations")["documents"].tolist(),
        ([3], [4]),
        {"batch.tokens": 12},
    ),
    "data.any_tokenizer": Probe(False, True, code, (2, 0), MARKED),
    "device.kind": Probe("host", "cuda", device, ("host", ...), {"comm.transport": "auto"}),
    "device.threads": Probe(1, 2, observed("device.threads")),
    "device.products": Probe("onednn", "openblas", products, ("oneDNN", "OpenBLAS")),
    "device.tf32": Probe(
        False, True, lambda r: r.key("device.tf32")["value"], ("false", "true")
    ),
    "mesh.shard": Probe(1, 2, total("bytes_read"), (2 * WEIGHT_BYTES, WEIGHT_BYTES)),
    "fsdp.forward_prefetch": Probe(1, 2, depths("depth"), ([0, 1], [0, 2])),
    "fsdp.reshard_after_forward": Probe(
        True, False, lambda r: depths("backward_gathers")(r)[0], (2.0, 0.0), TRAIN
    ),
    "fsdp.param_dtype": Probe(
        "fp32", "bf16", lambda r: int(r.table("/bench/units")["bytes"].sum())
    ),
    "fsdp.reduce_dtype": Probe("fp32", "bf16", total("bytes_reduced"), (..., ...), TRAIN),
    "fsdp.piece_bytes": Probe(0, 32, lambda r: len(r.table("/bench/units")["name"]), (4, 6)),
    "fsdp.gather_memory": Probe(
        0, "5 KiB", depths("slots"), ([1, 2, 3], [1]), {"bench.depths": "0, 1, 2"}
    ),
    "fsdp.offload": Probe("none", "params", offload_refused("they are there already"), (0, 2)),
    "comm.transport": Probe(
        "mpi", "shared", lambda r: total("bytes_gathered")(r) > 0, (True, False)
    ),
    "comm.timeout": Probe("120 s", "0.001", timeout_code, (0, 1), SLOW | {"batch.tokens": 3000}),
    "comm.link_rate": Probe(
        "10 MB/s", "0.1 MB/s", lambda r: fastest_gather(r) > 1.001e5, (True, False)
    ),
    "batch.tokens": Probe(4, 6, depths("tokens"), ([4, 4], [6, 6])),
    "train.accumulate": Probe(
        1,
        2,
        lambda r: r.attribute("passes_per_step", "/bench/configurations"),
        (1, 2),
        TRAIN,
    ),
    "train.recompute": Probe("layer", "none", total("device_bytes"), (..., ...), TRAIN),
    "bench.job": Probe(
        "score", "train", lambda r: depths("backward_compute_s")(r)[0] > 0, (False, True)
    ),
    "bench.depths": Probe("0, 1", "2, 0, 1", depths("depth"), ([0, 1], [2, 0, 1])),
    "bench.transports": Probe(
        "mpi", "shared, mpi", depths("transport"), (["mpi"] * 2, ["shared", "mpi", "mpi"])
    ),
    "bench.tokens": Probe("3", "3, 4", depths("tokens"), ([3, 3], [3, 3, 4, 4])),
    "bench.steps": Probe(
        1, 3, lambda r: len(set(r.table("/timing/spans")["pass"].tolist())), (4, 8)
    ),
    "bench.warmup": Probe(
        1, 3, lambda r: len(set(r.table("/timing/spans")["pass"].tolist())), (4, 8)
    ),
    "bench.pairs": Probe(1, 2, turns("round"), ([0, 0], [0, 0, 1, 1])),
    "bench.seed": Probe(
        0, 1, turns("depth"), (..., ...), {"bench.pairs": 3, "bench.depths": "0, 1, 2"}
    ),
    "output.file": Probe(
        "one-b.h5", "two-b.h5", lambda r: r.path.exists() and r.path.name, ("one-b.h5", "two-b.h5")
    ),
    "output.existing": Probe(
        "refuse",
        "replace",
        existing,
        ((2, True), (0, False)),
        {"output.file": "existing-b.h5"},
        lambda f: write_junk(f, "existing-b.h5"),
    ),
    "output.timeline": Probe(True, False, has_spans, (True, False)),
    "output.timeline_passes": Probe(
        2, 64, lambda r: len(set(r.table("/timing/spans")["pass"].tolist())), (2, 4)
    ),
    "output.require": Probe("none", "observed", code, (0, 3)),
    "output.environment": Probe(
        "warn", "strict", environment, (0, 2), {"device.products": "openblas"}, env=CORETYPE
    ),
    "output.log": Probe(
        "", "progress.jsonl", log_events, ([], ["round", "depth", "depth", "done"])
    ),
}


@pytest.fixture(scope="module")
def measure(start, folder):
    """measure(changes): one short turn of F-BG at each depth; equal calls share one run."""
    known: dict[str, Result] = {}
    short = {
        "job.name": "bench",
        "model.weights": "bigram.h5",
        "data.tokens": "ab.h5",
        "comm.transport": "mpi",
        "batch.tokens": 6,
        "bench.pairs": 1,
        "bench.steps": 1,
    }

    def run(changes: dict[str, Any], env: dict[str, str] | None = None) -> Result:
        name = json.dumps([changes, env or {}], sort_keys=True)
        if name not in known:
            known[name] = start(short | changes, ranks=2, env=env, expect=None)
            known[name].path = folder / known[name].path
        return known[name]

    return run


@pytest.mark.parametrize("key", PROBES)
def test_a4_two_values_of_the_key_give_benches_that_differ(key, measure, folder):
    probe = PROBES[key]
    (folder / "progress.jsonl").write_text("")
    seen = []
    for value in (probe.first, probe.second):
        probe.prepare(folder)
        seen.append(probe.quantity(measure(probe.with_keys | {key: value}, env=probe.env)))
    assert seen[0] != seen[1]
    for found, wanted in zip(seen, probe.expected):
        assert wanted is ... or found == wanted


INERT = {
    "device.tf32": "device.kind = host",
    "fsdp.forward_prefetch": "bench.depths is set",
    "comm.transport": "bench.transports is set",
    "batch.tokens": "bench.tokens is set",
}
MAY_READ_ALIKE = {"output.file", "device.kind", "bench.transports"}


@pytest.fixture(scope="module")
def ordinary(measure) -> Result:
    """A bench in which every key can act, but for those whose lists are given."""
    lists = {"bench.depths": "0, 1", "bench.transports": "mpi", "bench.tokens": "4, 6"}
    more = {"data.any_tokenizer": True, "device.threads": 1, "output.log": "ordinary-b.jsonl"}
    result = measure(MARKED | TRAIN | lists | more | {"comm.link_rate": "1 MB/s"})
    assert result.code == 0, result.stderr
    return result


@pytest.mark.parametrize("key", PROBES)
def test_every_key_of_bench_is_honoured_with_what_was_observed(key, ordinary):
    row = ordinary.key(key)
    if key in INERT:
        assert row["state"] == "inert" and INERT[key] in row["reason"], row
        return
    assert row["state"] == "honoured" and row["observed"], row
    assert key in MAY_READ_ALIKE or row["observed"] != row["value"]


def test_a_bench_of_score_tells_which_keys_of_training_cannot_matter(measure):
    result = measure({"train.recompute": "none"})
    assert "train.recompute = none is inert: bench.job = score" in result.stdout
    assert result.key("train.accumulate")["state"] == "inert"


def test_depths_beyond_the_units_are_clamped_and_told(measure):
    result = measure({"bench.depths": "0, 9"})
    assert result.code == 0 and depths("depth")(result) == [0, 3]
    row = result.key("bench.depths")
    assert (row["state"], row["observed"]) == ("clamped", "0, 3")
    assert "the model has 4 units" in row["reason"] and row["reason"] in result.stdout


def test_a_bench_is_not_resumed_and_needs_two_tokens(measure):
    refusal(measure({"output.existing": "resume"}), "output.existing = resume: a bench goes on")
    refusal(measure({"batch.tokens": 1}), "one token is no target")
    refusal(measure({"bench.depths": "1, 1"}), 'bench.depths has "1" twice')
