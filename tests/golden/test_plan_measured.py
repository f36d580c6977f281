# SPDX-License-Identifier: Apache-2.0
"""Plans from what a bench has measured: what they take over, and what they predict of other links.

Decides what such a plan must say of measured steps. What compares times may try again, a fixed
number of times: two cores have other things to do as well.
"""

from pathlib import Path

import fixtures
import h5py
import numpy as np
import pytest
from run_foregather import ROOT, Foregather, Result

GUESS = "assumed: a test"
ALONE = {"OMPI_MCA_ess_singleton_isolated": "1"}  # A process without a launcher starts sooner.
# ---- from what a bench measured -----------------------------------------------------------------

ATTEMPTS, TOKENS = 4, 64
SHAPE = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 300,
}
MEASURED_AT, PREDICTED_AT = 30, (15, 45, 60)  # MB/s that a rank receives


@pytest.fixture
def run(tmp_path) -> Foregather:
    """Runs in this test's folder."""
    return Foregather(tmp_path)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A folder with a small model and its tokens."""
    folder = tmp_path_factory.mktemp("measured")
    fixtures.random_llama(folder / "w.h5", **SHAPE)
    fixtures.random_documents(folder / "t.h5", 300, [300, 100, 112])
    return folder


def rows(result: Result) -> dict[str, np.ndarray]:
    """The columns of /plan/rows."""
    return result.table("/plan/rows")


def bench(run: Foregather, inputs: Path, job: str, rate: float) -> Result:
    """The steps of depths 0 and 1 on a link of so many MB/s."""
    deck = {
        "job.name": "bench",
        "bench.job": job,
        "model.weights": inputs / "w.h5",
        "data.tokens": inputs / "t.h5",
        "batch.tokens": TOKENS,
        "comm.transport": "mpi",
        "comm.link_rate": f"{rate} MB/s",
        "device.threads": 1,
        "bench.depths": "0, 1",
        "bench.steps": 2,
        "bench.pairs": 1,
    }
    return run(deck, 2)


def predicted(run: Foregather, inputs: Path, job: str, measured: Path, rate: float) -> Result:
    """The plan of the same passes on another link."""
    deck = {
        "job.name": "plan",
        "plan.job": job,
        "plan.model": inputs / "w.h5",
        "plan.measured": measured,
        "plan.ranks": 2,
        "plan.tokens": TOKENS,
    }
    if rate != MEASURED_AT:
        deck["machine.network_bandwidth"] = f"{rate} MB/s, {GUESS}"
    return run(deck, 0, env=ALONE)


@pytest.mark.parametrize("job", ["score", "train"])
def test_a_bench_on_one_link_predicts_steps_on_three_others(job, run, inputs):
    base = bench(run, inputs, job, MEASURED_AT)
    for rate in PREDICTED_AT:
        off = []
        while len(off) < ATTEMPTS and (not off or max(map(abs, off[-1])) >= 0.1):
            if off:  # Whatever else ran may have disturbed either of the two.
                base = bench(run, inputs, job, MEASURED_AT)
            steps = bench(run, inputs, job, rate).table("/bench/depths")["step_s"]
            told = rows(predicted(run, inputs, job, base.path, rate))["step"]
            off.append(told / steps - 1)
        assert max(map(abs, off[-1])) < 0.1, f"{rate} MB/s, {len(off)} tries: {np.round(off, 3)}"


def test_a_bench_knows_what_it_measured(run, inputs):
    base = bench(run, inputs, "score", MEASURED_AT).path
    same = predicted(run, inputs, "score", base, MEASURED_AT)
    assert set(rows(same)["basis"]) <= {"measured", "fitted"}
    # An emulation stays one wherever its figures are shown.
    rate = f"EMULATED at {MEASURED_AT * 8e-3:.3g} Gb/s"
    with h5py.File(same.path) as file:
        assert file["plan/rows"].attrs["link_rate_bytes_per_s"] == MEASURED_AT * 1e6
        assert rate in file["provenance/report"][()].decode()
    assert rate in same.stdout and "on an EMULATED link, the least certain" in same.stdout
    assert set(rows(predicted(run, inputs, "score", base, 80))["basis"]) == {"assumed"}
    deck = {"job.name": "plan", "plan.job": "score", "plan.measured": base, "plan.tokens": TOKENS}
    deck |= {"plan.model": inputs / "w.h5", "plan.ranks": 2}
    other = ROOT / "inputs/models/smollm2-135m.json"
    for changes, words in (
        ({"plan.model": other}, "was measured with another model"),
        ({"plan.job": "train"}, "was measured with bench.job = score, and plan.job = train"),
        ({"fsdp.param_dtype": "bf16"}, "was measured with fsdp.param_dtype = fp32"),
        ({"machine.kind": "cuda"}, "was measured on host, and machine.kind = cuda"),
        ({"plan.measured": same.path}, "is no complete file of a bench: it has no /bench"),
    ):
        result = run(deck | changes, 0, env=ALONE, expect=2)
        assert words in result.stderr and len(result.stderr.splitlines()) == 1
    with h5py.File(base, "a") as file:
        del file["bench/configurations"].attrs["device"]
    result = run(deck, 0, env=ALONE, expect=2)
    assert "did not store what computed: say machine.kind = host, or cuda" in result.stderr
    # Memory is counted as where it was measured.
    memory = {
        kind: rows(run(deck | {"machine.kind": kind}, 0, env=ALONE))["memory"][0]
        for kind in ("host", "cuda")
    }
    assert memory["cuda"] != memory["host"] == rows(same)["memory"][0]
