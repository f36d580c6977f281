# SPDX-License-Identifier: Apache-2.0
"""Every key of the job plan acts: two of its values give plans that differ in a recorded quantity
(a4).

Decides one probe for each key of that job, and what the ledger says of them. test_every_key.py sees
to it that no key of the table is left out.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest
from run_foregather import ROOT, Result
from test_every_key import Probe, code, existing, write_junk

MACHINE = """[machine]
name = eight and eight
kind = cuda
ranks_per_node = 8, assumed: a test
memory = 100 MB, assumed: a test
bf16_flops = 100 Gflop/s, assumed: a test
fp32_flops = 50 Gflop/s, assumed: a test
product_share = 0.5, assumed: a test
attention_share = 0.25, assumed: a test
memory_bandwidth = 10 GB/s, assumed: a test
memory_share = 0.5, assumed: a test
node_bandwidth = 4 GB/s, assumed: a test
node_share = 0.5, assumed: a test
node_latency = 20 us, assumed: a test
network_bandwidth = 1 Gb/s, assumed: a test
network_share = 0.5, assumed: a test
network_latency = 80 us, assumed: a test
step_gap = 1 ms, assumed: a test
compute_slowdown = 0.25, assumed: a test
collective_slowdown = 0.5, assumed: a test
"""


ALONE = {"OMPI_MCA_ess_singleton_isolated": "1"}  # A process without a launcher starts sooner.


def column(name: str) -> Callable[[Result], list]:
    """A column of /plan/rows."""
    return lambda result: result.table("/plan/rows")[name].tolist()


def attribute(name: str) -> Callable[[Result], str]:
    """An attribute of /plan/rows."""
    return lambda result: result.attribute(name, "/plan/rows")


def published(result: Result) -> bool:
    """Whether figures of others are in the report."""
    return "public case" in result.read("/provenance/report")


def sourced(first: str, second: str, quantity: Callable[[Result], Any], **keys: Any) -> Probe:
    """Two values of a quantity with its source."""
    with_keys = {key.replace("__", "."): value for key, value in keys.items()}
    guess = ", assumed: a guess"
    return Probe(first + guess, second + guess, quantity, (..., ...), with_keys)


step = column("step")
PROBES = {
    "job.name": Probe("plan", "plane", code, (0, 2)),
    "job.strict": Probe(False, True, code, (0, 2), {"plan.job": "score", "train.accumulate": 2}),
    "job.title": Probe("one", "two", lambda r: r.attribute("title", "/"), ("one", "two")),
    "fsdp.reshard_after_forward": Probe(True, False, column("slots"), ([2, 2], [7, 7])),
    "fsdp.param_dtype": Probe("bf16", "fp32", column("slot_bytes")),
    "fsdp.reduce_dtype": Probe("fp32", "bf16", column("reduce")),
    "fsdp.piece_bytes": Probe(0, "64 KiB", lambda r: len(r.table("/plan/units")["name"])),
    "fsdp.gather_memory": Probe(0, "500 KiB", column("forward_depth"), ([1, 1], [0, 0])),
    "train.accumulate": Probe(1, 3, column("passes"), ([1, 1], [3, 3])),
    "train.recompute": Probe("layer", "none", column("backward_compute")),
    "plan.job": Probe("score", "train", column("backward_compute")),
    "plan.model": Probe(
        "small.json", "large.json", lambda r: r.table("/plan/units")["elements"].sum()
    ),
    "plan.machine": Probe("m.deck", "other.deck", attribute("machine")),
    "plan.measured": Probe("", "m.deck", code, (0, 2)),
    "plan.ranks": Probe("8, 32", "4, 16", column("ranks"), ([8, 32], [4, 16])),
    "plan.shards": Probe("0", "8", column("replicas"), ([1, 1], [1, 4])),
    "plan.depths": Probe("1", "0, 2", column("depth"), ([1, 1], [0, 2, 0, 2])),
    "plan.tokens": Probe("512", "64", column("tokens"), ([512, 512], [64, 64])),
    "plan.document": Probe(0, 100, column("document"), ([512, 512], [100, 100])),
    "plan.published": Probe(False, True, published, (False, True)),
    "machine.name": Probe("a", "b", attribute("machine"), ("a", "b")),
    "machine.kind": Probe("cuda", "host", column("memory")),
    "machine.ranks_per_node": sourced("8", "32", step),
    "machine.memory": sourced("100 MB", "1 MB", column("fits")),
    "machine.bf16_flops": sourced("100 Gflop/s", "50 Gflop/s", step),
    "machine.fp32_flops": sourced("50 Gflop/s", "20 Gflop/s", step, fsdp__param_dtype="fp32"),
    "machine.product_share": sourced("0.5", "0.75", step),
    "machine.attention_share": sourced("0.25", "0.5", step),
    "machine.memory_bandwidth": sourced("10 GB/s", "5 GB/s", step),
    "machine.memory_share": sourced("0.5", "1", step),
    "machine.node_bandwidth": sourced("4 GB/s", "1 GB/s", column("forward_gather")),
    "machine.node_share": sourced("0.5", "0.25", column("forward_gather")),
    "machine.node_latency": sourced("20 us", "0 s", column("forward_gather")),
    "machine.network_bandwidth": sourced("1 Gb/s", "2 Gb/s", column("forward_gather")),
    "machine.network_share": sourced("0.5", "0.75", column("forward_gather")),
    "machine.network_latency": sourced("80 us", "1 ms", column("forward_gather")),
    "machine.step_gap": sourced("1 ms", "2 ms", step),
    "machine.compute_slowdown": sourced("0.25", "0", step),
    "machine.collective_slowdown": sourced("0.5", "0", step),
    "output.file": Probe("one.h5", "two.h5", lambda r: r.path.exists() and r.path.name),
    "output.existing": Probe(
        "refuse",
        "replace",
        existing,
        ((2, True), (0, False)),
        {"output.file": "existing.h5"},
        write_junk,
    ),
}


@pytest.fixture(scope="module")
def predict(start, folder):
    """predict(changes): a plan of a small Llama; equal calls share one run."""
    model = json.loads((ROOT / "inputs/train-tiny.json").read_text())
    (folder / "small.json").write_text(json.dumps(model | {"max_position_embeddings": 4096}))
    (folder / "large.json").write_text(json.dumps(model | {"hidden_size": 256}))
    (folder / "m.deck").write_text(MACHINE)
    (folder / "other.deck").write_text(MACHINE.replace("eight and eight", "another"))
    known: dict[str, Result] = {}
    short = {
        "job.name": "plan",
        "plan.model": "small.json",
        "plan.machine": "m.deck",
        "plan.ranks": "8, 32",
        "plan.depths": 1,
        "plan.tokens": 512,
    }

    def run(changes: dict[str, Any]) -> Result:
        name = json.dumps(changes, sort_keys=True)
        if name not in known:
            known[name] = start(short | changes, ranks=0, env=ALONE, expect=None)
            known[name].path = folder / known[name].path
        return known[name]

    return run


@pytest.mark.parametrize("key", PROBES)
def test_a4_two_values_of_the_key_give_plans_that_differ(key, predict, folder):
    probe = PROBES[key]
    seen = []
    for value in (probe.first, probe.second):
        probe.prepare(folder)
        seen.append(probe.quantity(predict(probe.with_keys | {key: value})))
    assert seen[0] != seen[1]
    for found, wanted in zip(seen, probe.expected):
        assert wanted is ... or found == wanted


INERT = {"machine.fp32_flops": "products are bf16"}
MAY_READ_ALIKE = {"output.file"}


@pytest.mark.parametrize("key", PROBES)
def test_every_key_of_plan_is_honoured_with_what_was_observed(key, predict):
    row = predict({}).key(key)
    if key in INERT:
        assert row["state"] == "inert" and INERT[key] in row["reason"], row
        return
    assert row["state"] == "honoured" and row["observed"], row
    assert key in MAY_READ_ALIKE or row["observed"] != row["value"]


def test_a_plan_of_score_tells_which_keys_of_training_cannot_matter(predict):
    result = predict({"plan.job": "score", "train.recompute": "none"})
    assert "train.recompute = none is inert: plan.job = score" in result.stdout
    assert result.key("fsdp.reduce_dtype")["state"] == "inert"


def test_every_value_of_a_machine_is_recorded_with_its_place(predict):
    result = predict({})
    with h5py.File(result.path) as file:
        text = file["provenance/deck_effective"][()].decode()
    for number, line in enumerate(MACHINE.splitlines(), 1):
        assert line.startswith("[") or f"{line}  # m.deck:{number}\n" in text
    row = result.key("machine.network_bandwidth")
    assert row["origin"] == "machine file"
    assert row["value"] == "1 Gb/s, assumed: a test"
    assert row["observed"] == "1.25e+08 bytes/s, assumed"
    assert Path(result.path).exists()
