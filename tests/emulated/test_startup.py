# SPDX-License-Identifier: Apache-2.0
"""Which device a run takes, what it refuses before any work, and what it tells of the environment.

Decides nodes by the doubles' environment: how many GPUs there are, and which of them a rank sees.
"""

import pytest
from emulated_runs import GPUS, OnGpus, program
from run_foregather import Foregather, launcher_words

CUDA = {"device.kind": "cuda"}


def launched(each: str):
    """A launcher whose ranks set a variable by their local rank first."""

    def words(ranks: int) -> list[str]:
        return [*launcher_words(ranks), "sh", "-c", f'{each} exec "$0" "$@"']

    return words


@pytest.mark.parametrize(
    "gpus, why",
    [
        ("none", "this machine has no CUDA driver"),
        ("0", "no GPU can be used: "),
    ],
)
def test_auto_takes_the_host_where_there_is_no_gpu_and_says_why(gpus, why, golden, run):
    found = run(golden("llama"), 2, env={GPUS: gpus})
    assert "host (" in found.stdout and why in found.stdout
    assert found.key("device.kind")["observed"] == "host"
    assert why in found.key("device.kind")["reason"]
    refused = run(golden("llama") | CUDA, 2, env={GPUS: gpus}, expect=2)
    assert why in refused.stderr and "device.kind = cuda" in refused.stderr
    assert not refused.part_left() and not refused.path.exists()


def test_auto_takes_the_gpus_where_every_rank_has_one(golden, on_gpus):
    found = on_gpus(golden("llama"), 2, kind=None).result
    assert found.key("device.kind")["observed"] == "cuda"
    hosts = found.table("/provenance/hosts")
    assert len(set(hosts["device"])) == 2 and all("GPU-" in text for text in hosts["device"])
    assert "cuda" in found.stdout and "threads per rank" not in found.stdout


def test_auto_takes_the_host_where_one_rank_has_no_gpu_and_says_so_at_the_start(golden, run):
    found = run(golden("llama"), 3, env={GPUS: "2"})
    note = found.stdout.splitlines()[: found.stdout[: found.stdout.index("----")].count("\n")]
    assert any("there are GPUs, but device.kind = auto takes the host" in line for line in note)
    assert found.key("device.kind")["observed"] == "host"
    reason = found.key("device.kind")["reason"]
    assert "rank 2" in reason and "2 GPUs, too few for local rank 2" in reason


@pytest.mark.parametrize("capability, runs", [("70", False), ("75", False), ("86", True), ("120", True)])
def test_a_gpu_that_the_kernels_were_not_compiled_for_is_not_taken(capability, runs, golden, run):
    env = {GPUS: "1", "FOREGATHER_EMULATION_CAPABILITY": capability}
    found = run(golden("llama"), 1, env=env)
    assert found.key("device.kind")["observed"] == ("cuda" if runs else "host")
    if not runs:
        refused = run(golden("llama") | CUDA, 1, env=env, expect=2)
        dotted = f"{capability[:-1]}.{capability[-1]}"
        assert f"has compute capability {dotted}" in refused.stderr and "8.0" in refused.stderr


def test_heads_that_do_not_fit_a_gpus_shared_memory_are_refused(golden, run):
    env = {GPUS: "1", "FOREGATHER_EMULATION_SHARED": str(36 << 10)}
    refused = run(golden("llama") | CUDA, 1, env=env, expect=2)
    assert "heads of" in refused.stderr and "device.kind = host" in refused.stderr
    assert not refused.part_left()


def test_too_few_gpus_are_refused_by_name(golden, run):
    refused = run(golden("llama") | CUDA, 4, env={GPUS: "3"}, expect=2)
    assert "rank 3" in refused.stderr and "3 GPUs, too few for local rank 3" in refused.stderr
    assert refused.seconds < 10


def test_two_ranks_on_one_gpu_are_refused_by_name(golden, tmp_path):
    run = Foregather(tmp_path, launched("CUDA_VISIBLE_DEVICES=2"))
    refused = run(golden("llama") | CUDA, 2, env={GPUS: "4"}, expect=2)
    assert "rank 0" in refused.stderr and "rank 1" in refused.stderr
    assert "would share the GPU 0000:" in refused.stderr
    assert refused.seconds < 10


def test_ranks_that_see_one_gpu_each_take_it(golden, tmp_path):
    run = Foregather(tmp_path, launched("CUDA_VISIBLE_DEVICES=$((3-OMPI_COMM_WORLD_LOCAL_RANK))"))
    seen = OnGpus(run)(golden("llama"), 3).result.table("/provenance/hosts")["device"]
    (tmp_path / "all").mkdir()
    run = Foregather(tmp_path / "all", launched("CUDA_VISIBLE_DEVICES=3,2,1,0"))
    others = OnGpus(run)(golden("llama"), 3).result.table("/provenance/hosts")["device"]
    assert list(others) == list(seen) and len(set(seen)) == 3


def test_missing_peer_access_is_told(golden, on_gpus):
    found = on_gpus(golden("llama"), 2, {"FOREGATHER_EMULATION_PEERS": "0"}).result
    assert found.stdout.count("has no peer access to") >= 2
    assert "has no peer access" not in on_gpus(golden("llama"), 2).result.stdout


OVERRIDES = {
    "NCCL_ALGO": ("Ring", "NCCL_ALGO=Ring overrides comm.transport: NCCL obeys it"),
    "NCCL_COMM_BLOCKING": ("1", "NCCL_COMM_BLOCKING=1 overrides comm.timeout"),
    "CUDA_LAUNCH_BLOCKING": ("1", "CUDA_LAUNCH_BLOCKING=1 overrides fsdp.forward_prefetch"),
    "NVIDIA_TF32_OVERRIDE": ("0", "overrides device.tf32 = true"),
}


def test_variables_that_override_a_key_are_told_or_refused(golden, on_gpus):
    env = {name: value for name, (value, _) in OVERRIDES.items()}
    keys = golden("llama") | {"device.tf32": True}
    told = on_gpus(keys, 2, env).result
    for name, (_, text) in OVERRIDES.items():
        assert text in told.stdout, name
    refused = on_gpus(
        keys | {"output.environment": "strict"}, 2, env, reports=None, expect=2
    ).result
    for name, (_, text) in OVERRIDES.items():
        assert text in refused.stderr, name
    assert not refused.part_left()
    quiet = {"NCCL_DEBUG": "WARN", "CUDA_LAUNCH_BLOCKING": "0", "NVIDIA_TF32_OVERRIDE": "1"}
    on_gpus(keys | {"output.environment": "strict"}, 2, quiet)


def test_the_number_of_hardware_queues_is_on_record(golden, on_gpus):
    found = on_gpus(golden("llama"), 2, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}).result
    recorded = found.table("/provenance/environment")
    assert dict(zip(recorded["name"], recorded["value"]))["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"


def test_tf32_changes_products_and_is_named(golden, on_gpus):
    plain = on_gpus(golden("llama"), 1).result
    tf32 = on_gpus(golden("llama") | {"device.tf32": True}, 1).result
    assert plain.score_bytes() != tf32.score_bytes()
    assert tf32.key("device.tf32")["state"] == "honoured"
    assert "TF32" in tf32.key("device.tf32")["observed"]
    assert "TF32" not in plain.key("device.products")["reason"]


def test_keys_of_the_host_are_inert_on_a_gpu(golden, on_gpus):
    keys = {"device.threads": 2, "device.products": "openblas"}
    found = on_gpus(golden("llama") | keys, 1).result
    for key in keys:
        assert found.key(key)["state"] == "inert"
        assert f"{key} " in found.stdout
    strict = on_gpus(golden("llama") | keys | {"job.strict": True}, 1, reports=None, expect=2)
    assert "device.threads" in strict.result.stderr


def test_transports_of_the_host_are_refused(golden, on_gpus):
    for transport in ("mpi", "shared"):
        keys = golden("llama") | {"comm.transport": transport}
        refused = on_gpus(keys, 2, reports=None, expect=2).result
        assert "nccl" in refused.stderr and "comm.transport" in refused.stderr


def test_what_a_gpu_cannot_hold_is_refused_before_anything_is_read(golden, on_gpus):
    env = {"FOREGATHER_EMULATION_MEMORY": str(16 << 20)}
    found = on_gpus(golden("llama"), 1, env, reports=None, expect=(1, 2)).result
    assert "16.0 MiB" in found.stderr or "no memory for" in found.stderr
    assert not found.part_left() and not found.path.exists()


def test_the_plan_of_a_gpu_run_needs_no_gpu_to_be_opened(golden, run, tmp_path):
    (tmp_path / "c.deck").write_text(
        "\n".join(
            ["[job]", "name = score", "[model]", f"weights = {golden('llama')['model.weights']}"]
            + ["[data]", f"tokens = {golden('llama')['data.tokens']}", "[device]", "kind = cuda"]
            + ["[output]", "file = o.h5"]
        )
    )
    words = ["--check", "c.deck", "--ranks", "16", "--ranks-per-node", "8"]
    for gpus in ("8", "none"):
        told = run.words(words, env={GPUS: gpus})
        assert told.code == 0, told.stderr
        assert "transport: nccl" in told.stdout and "cuda (asked for" in told.stdout
    assert "no CUDA driver" in told.stdout


def test_an_emulated_link_slows_gathers_and_shows_the_overlap(golden, on_gpus):
    keys = golden("llama") | {"comm.link_rate": "1 MB/s"}
    found = on_gpus(keys, 2).result
    assert found.key("comm.link_rate")["state"] == "honoured"
    assert "emulation" in found.key("comm.link_rate")["observed"]
    assert found.table("/timing/prefetch")["verdict"][0] in ("observed", "issued")
    assert "EMULATED" in found.stdout
    alone = on_gpus(keys | {"fsdp.offload": "params"}, 1).result
    assert alone.key("comm.link_rate")["state"] == "inert" and "EMULATED" not in alone.stdout


def test_the_emulated_program_is_not_the_product():
    assert "emulated" in str(program())
