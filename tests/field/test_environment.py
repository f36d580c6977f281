# SPDX-License-Identifier: Apache-2.0
"""Variables that override a key are told, or refused all at once; those without effect are told.

Decides that each job does it; which variable touches which key is the unit test's.
"""

import pytest
from said import refusal
from training import deck

MPI = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_io": "ompio"}
IDLE = {"NCCL_PROTO": "Simple", "CUDA_VISIBLE_DEVICES": "0", "OPENBLAS_NUM_THREADS": "4", "UCX_LOG_LEVEL": "error"}
TOLD = {
    "comm.transport": "OMPI_MCA_pml=ob1 overrides comm.transport: ",
    "output.file": "OMPI_MCA_io=ompio overrides output.file: ",
}
IDLY = (
    "NCCL_PROTO=Simple has no effect on comm.transport: device.kind is host",
    "CUDA_VISIBLE_DEVICES=0 has no effect on device.kind: ",
    "OPENBLAS_NUM_THREADS=4 has no effect on device.threads: ",
)
BENCH = {"bench.pairs": 5, "bench.steps": 1, "bench.warmup": 1}


@pytest.mark.parametrize("job", ["score", "train", "bench"])
def test_overriding_variables_are_told_or_refused_all_at_once(job, run, ab, tmp_path):
    asked = dict(ab)
    if job == "train":
        asked = deck(ab["model.weights"], ab["data.tokens"])
    elif job == "bench":
        asked |= {"job.name": "bench"} | BENCH
    told = run(asked, ranks=2, env=MPI | IDLE)
    row = told.key("output.environment")
    assert row["observed"] == "variables that override keys: 2"
    for line in TOLD.values():
        assert f"note: {line}" in told.stdout and line in row["reason"]
    for line in IDLY:
        assert f"note: {line}" in told.stdout and line not in row["reason"]
    if job != "bench":
        recorded = told.rows("/provenance/environment", "name")
        assert {name: recorded[name]["value"] for name in MPI | IDLE} == MPI | IDLE
    strict = asked | {"output.environment": "strict", "output.file": tmp_path / "strict.h5"}
    refused = run(strict, ranks=2, env=MPI | IDLE, expect=2)
    refusal(refused, "output.environment = strict", *TOLD.values(), lines_said=None)
    assert "NCCL_PROTO" not in refused.stderr and not list(tmp_path.glob("strict.h5*"))
    if job == "score":
        run(strict, ranks=2, env=IDLE)  # What has no effect is no reason to refuse.


def test_value_that_is_no_text_is_told_and_recorded_as_text(run, ab):
    told = run(ab | {"comm.transport": "mpi"}, ranks=2, env={"UCX_TLS": "tcp\udcff\x01"})
    assert "note: UCX_TLS=tcp?? overrides comm.transport: " in told.stdout
    assert told.rows("/provenance/environment", "name")["UCX_TLS"]["value"] == "tcp??"
    assert "UCX_TLS=tcp??" in told.read("/provenance/report")
