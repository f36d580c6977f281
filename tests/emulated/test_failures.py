# SPDX-License-Identifier: Apache-2.0
"""Every function of CUDA, NCCL and cuBLASLt that the program calls is made to fail in turn.

Decides how a run must end then: within seconds, on all ranks, with one line that says what was
attempted; what only gives something back is told and harms no result.
"""

import os
import re
import signal
import subprocess
import time
from collections import Counter

import pytest
from emulated_runs import GPUS, OnGpus
from run_foregather import PROGRAM, Foregather, deck_text, launcher_words, start, wait

FAIL = "FOREGATHER_EMULATION_FAIL"
# What gives back: a failure is told, the results are whole.
GIVE_BACK = re.compile(r"Destroy|Free|Finalize")
# Without an answer nobody can wait for what is under way.
ANSWERS = re.compile(r"Query")
# Asked again and again by whoever waits.
POLLED = re.compile(r"Query|GetAsyncError")
# What is asked only when something has failed already, or cannot be asked to fail.
TEXTS = re.compile(r"GetError|GetLastError|GetStatus|PeekAtLast|GetVersion|kernel_fault")
# Which functions are called is known by a run alone: as many tests divide them, for as many cores.
SHARES = 4
SOME_WORDS = re.compile(
    r"(CUDA|NCCL|cuBLASLt)[^\n]* (failed to|did not|has no) |no memory for |no GPU can be used"
)


@pytest.fixture(scope="module")
def deck(golden):
    return golden("qwen2") | {"comm.timeout": "20 s"}  # with biases


@pytest.fixture(scope="module")
def calls(deck, tmp_path_factory) -> Counter:
    """How often rank 1 of two calls each function in a run that goes well."""
    on_gpus = OnGpus(Foregather(tmp_path_factory.mktemp("calls")))
    return on_gpus(deck, 2).ranks[1]


def lines(stderr: str) -> list[str]:
    """What the program itself has said."""
    said = (line for line in stderr.splitlines() if SOME_WORDS.search(line))
    return [line for line in said if not line.startswith("emulation:")]


def ends_well(found, expect: tuple[int, ...], waits: bool = True) -> None:
    """One line of cause, an exit status, and no report of the checker on the way down."""
    assert found.result.code in expect, found.result.stderr
    assert len(lines(found.result.stderr)) == 1, found.result.stderr
    assert "emulation: RACE" not in found.result.stderr
    assert not waits or "IN_USE" not in found.result.stderr
    assert found.result.seconds < 30


@pytest.mark.parametrize("share", range(SHARES))
def test_each_function_that_fails_ends_the_run_with_its_cause(share, deck, calls, on_gpus):
    names = [name.removeprefix("call.") for name in calls if re.match(r"call\.(cuda|nccl|cublas)", name)]
    assert len(names) > 30, names
    wrong = []
    for name in sorted(names)[share::SHARES]:
        if TEXTS.search(name):
            continue
        count = calls[f"call.{name}"]
        # Who waits asks as often as time goes by: what one run asked, the next may never come to.
        part = 20 if POLLED.search(name) else 2
        for number in sorted({1, max(1, count // part)}):
            found = on_gpus(
                deck, 2, {FAIL: f"{name}:{number}@1"}, reports=None, expect=None, timeout=60
            )
            try:
                expected = (0,) if GIVE_BACK.search(name) else (1, 2)
                ends_well(found, expected, waits=not ANSWERS.search(name))
            except AssertionError as error:
                wrong.append(f"{name}, call {number} of {count}: {error}")
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("kernel", ["pack_rows", "fold_logits", "rms_norm", "embed", "widen"])
def test_a_kernel_that_cannot_be_launched_is_named(kernel, deck, on_gpus):
    keys = deck | {"fsdp.param_dtype": "bf16"}
    found = on_gpus(keys, 2, {FAIL: f"{kernel}:1@1"}, reports=None, expect=1)
    ends_well(found, (1,))
    assert f"launch {kernel}" in lines(found.result.stderr)[0]


def test_a_kernel_that_faults_ends_all_ranks(deck, on_gpus):
    found = on_gpus(deck, 3, {FAIL: "kernel_fault:10@2"}, reports=None, expect=1)
    ends_well(found, (1,))
    assert "rank 2" in lines(found.result.stderr)[0]


def test_an_error_that_nccl_finds_by_itself_is_told_with_the_gather(deck, on_gpus):
    found = on_gpus(deck, 3, {"FOREGATHER_EMULATION_NCCL_ASYNC_ERROR": "6@1"}, reports=None, expect=1)
    ends_well(found, (1,))
    slow = deck | {"comm.link_rate": "0.2 MB/s"}  # host functions of the link are on the stream
    env = {"FOREGATHER_EMULATION_NCCL_ASYNC_ERROR": "4@1"}
    ends_well(on_gpus(slow, 2, env, reports=None, expect=1), (1,))
    assert re.search(r"rank 1 \(.*\): NCCL failed to run the gather of layer\.\d", found.result.stderr)


@pytest.mark.parametrize("function", ["ncclReduceScatter", "ncclAllReduce"])
def test_a_reduction_that_fails_ends_the_training_with_its_cause(function, deck, on_gpus):
    keys = deck | {
        "job.name": "train",
        "train.steps": 2,
        "train.learning_rate": 0.003,
        "train.schedule": "constant",
        "mesh.shard": 2,
    }
    found = on_gpus(keys, 4, {FAIL: f"{function}:2@1"}, reports=None, expect=1)
    ends_well(found, (1,))
    assert "reduction of " in lines(found.result.stderr)[0]


def test_a_gather_that_hangs_inside_nccl_is_told_as_such(deck, on_gpus):
    env = {"FOREGATHER_EMULATION_NCCL_HANG": "5@1"}
    found = on_gpus(deck | {"comm.timeout": "1 s"}, 3, env, reports=None, expect=1)
    told = [line for line in found.result.stderr.splitlines() if "comm.timeout = 1 s" in line]
    assert len(told) == 1, found.result.stderr
    assert "gather of layer" in told[0] and "all ranks arrived" in told[0]


def test_a_set_up_that_hangs_ends_at_the_time_limit(deck, on_gpus):
    env = {"FOREGATHER_EMULATION_NCCL_HANG": "1@1"}
    found = on_gpus(deck | {"comm.timeout": "1 s"}, 2, env, reports=None, expect=1)
    assert "first gather has taken longer than comm.timeout" in found.result.stderr
    assert found.result.seconds < 20


def children(pid: int) -> list[int]:
    """The processes that a launcher has started, in order."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
    return sorted(int(word) for word in found.stdout.split())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_gone_ends_the_others(how, deck, tmp_path):
    keys = deck | {"comm.timeout": "2 s", "comm.link_rate": "0.02 MB/s"}  # some 9 s of gathers
    path = tmp_path / "gone.deck"
    path.write_text(deck_text(keys | {"output.file": tmp_path / "gone.h5", "device.kind": "cuda"}))
    process = start([*launcher_words(3), str(PROGRAM), str(path)], tmp_path, {GPUS: "4"})
    try:
        while not (tmp_path / "gone.h5.part").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        time.sleep(1.0)
        ranks = children(process.pid)
        os.kill(ranks[1], how)
        begin = time.monotonic()
        stdout, stderr = wait(process, 30)
    finally:
        for pid in children(process.pid):
            os.kill(pid, signal.SIGKILL)
    assert process.returncode != 0
    assert time.monotonic() - begin < 20
    if how == signal.SIGSTOP:
        assert re.search(r"rank 1 \([^)]*\) did not arrive|rank 1 \([^)]*\) .*silent", stderr), stderr
