# SPDX-License-Identifier: Apache-2.0
"""How a job begins: launcher and MPI agree, what cannot be is refused once, --check needs no job.

Decides launchers' environments and machines that are pretended; decks' faults are test_deck_law's.
"""

import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import fixtures
import h5py
import numpy as np
import pytest
from run_foregather import PROGRAM
from said import bare, lines, refusal

LONELY = {
    "i": {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"},
    "ii": {"OMPI_COMM_WORLD_SIZE": "4"},
    "iii": {"PMI_SIZE": "4"},
    "pmix": {"PMIX_SIZE": "4"},
}


@pytest.mark.parametrize("case", LONELY)
def test_t22_one_rank_of_an_announced_four_is_refused(case, run, ab, tmp_path):
    result = run(ab, ranks=0, env=LONELY[case], expect=None)
    message = refusal(result, "1 rank was started", "announces 4", "--mpi=pmix")
    assert "mismatch" in message and next(iter(LONELY[case])) in message
    assert [path.suffix for path in tmp_path.iterdir()] == [".deck"]


def test_t22_iv_no_launcher_at_all_runs(run, ab):
    result = run(ab, ranks=0)
    assert result.attribute("loss") == pytest.approx(1.5 * np.log(2))
    assert "announces" not in result.stdout


@pytest.mark.parametrize(("case", "ranks"), [("v", 0), ("vi", 2)])
def test_t22_batch_size_that_differs_is_told_with_both_numbers_and_recorded(case, ranks, run, ab):
    result = run(ab, ranks=ranks, env={"SLURM_NTASKS": "4"})
    started = "2 ranks were" if case == "vi" else "1 rank was"
    warning = f"{started} started but SLURM_NTASKS announces 4"
    told = [line for line in result.stdout.splitlines() if warning in line]
    assert told and told[0].startswith("note: ")
    assert warning in result.read("/provenance/report")
    environment_then = result.rows("/provenance/environment", "name")
    assert environment_then["SLURM_NTASKS"]["value"] == "4"
    # Before the job, not only at its end.
    assert result.stdout.index(warning) < result.stdout.index("----")


def test_e3_launcher_and_batch_that_agree_are_not_told(run, ab):
    assert "announces" not in run(ab, ranks=2, env={"SLURM_NTASKS": "2"}).stdout


def test_e3_information_and_check_are_exempt(run, ab, tmp_path):
    run(ab | {"output.file": "out.h5"}, ranks=0)
    deck = next(tmp_path.glob("*.deck"))
    for words in (["--check", deck, "--output.existing=replace"], ["--version"], ["--help"]):
        # A rank other than 0 of an announced job is silent, so that four do not say it four times.
        result = run.words(words, env={"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"})
        assert result.code == 0 and result.stdout


@pytest.mark.parametrize(
    ("ranks", "changes", "words"),
    [
        (4, {"mesh.shard": 3}, ("mesh.shard = 3 does not divide the 4 ranks",)),
        (3, {"mesh.shard": 4}, ("mesh.shard = 4 does not divide the 3 ranks",)),
        (2, {"comm.transport": "shared", "comm.link_rate": "1 MB/s"}, ("comm.link_rate", "shared")),
        (2, {"comm.transport": "nccl", "device.kind": "host"}, ("nccl", "device.kind = host")),
    ],
)
def test_j2_what_cannot_be_is_refused_once_with_its_place(ranks, changes, words, run, ab):
    result = run(ab | changes, ranks=ranks, expect=None)
    message = refusal(result, *words)
    assert message.startswith(f"{result.deck}:")


@pytest.mark.parametrize("changes", [{"device.kind": "cuda"}, {"comm.transport": "nccl"}])
def test_j2_what_this_build_has_not_is_refused_once_with_its_place(changes, run, ab):
    if "cuda" in re.search("^backends *(.*)$", bare("--version").stdout, re.MULTILINE)[1]:
        pytest.skip("this build has the CUDA backend")
    result = run(ab | changes, ranks=4, expect=None)
    key, value = next(iter(changes.items()))
    message = refusal(result, f"{key} = {value}", "auto")
    assert message.startswith(f"{result.deck}:")


def kind(line: str) -> str:
    """What a line of stdout is: its first word, and the name in a row of the phase table."""
    row = re.match(r"(.{18}) +\d+( +\d+\.\d+){3} +\d+$", line)
    return row[1].strip() if row else line.split()[0]


def test_j2_lines_on_stdout_are_the_same_in_number_on_one_and_four_ranks(run, ab):
    deck = ab | {"comm.transport": "mpi", "batch.tokens": 1}
    said = {n: run(deck, ranks=n).stdout.splitlines() for n in (1, 4)}
    counts = {n: Counter(map(kind, said[n])) for n in said}
    # One rank: "prefetch inert". Four: depth, issue, "4 gathers a rank". Notes are looked at below.
    for n, expected in ((1, ["prefetch"]), (4, ["prefetch", "issued", "4"])):
        assert [counts[n].pop(word) for word in expected] == [1] * len(expected)
        for word in ("note", "note:"):
            counts[n].pop(word, None)
    assert counts[1] == counts[4]
    assert max(counts[4].values()) == 1
    for n in said:
        notes = [line for line in said[n] if line.startswith("note")]
        assert 0 < len(notes) == len(set(notes))


def test_j2_note_of_another_kind_of_job_is_told_once_on_four_ranks(run, ab):
    deck = ab | {"comm.transport": "shared", "fsdp.forward_prefetch": 2}
    result = run(deck, ranks=4)
    before = result.stdout.split("----")[0]
    assert before.count("fsdp.forward_prefetch = 2 is inert") == 1


def sparse_model(path: Path) -> Path:
    """A weights file as large as a model of 13 billion numbers, of which no byte was written."""
    config = fixtures.llama_config(
        hidden_size=5120,
        intermediate_size=13824,
        num_hidden_layers=40,
        num_attention_heads=40,
        num_key_value_heads=40,
        head_dim=128,
        vocab_size=32000,
    )
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    fixtures.write_model(path, fixtures.llama_config(), fixtures.blank(fixtures.llama_config()))
    with h5py.File(path, "r+") as file:
        del file["weights"], file["config"]
        file["config"] = fixtures.json.dumps(config)
        for name, shape in fixtures.expected_tensors(config).items():
            place = f"/weights/{name.replace('.', '/')}".encode()
            space = h5py.h5s.create_simple(tuple(shape))
            h5py.h5d.create(file.id, place, h5py.h5t.IEEE_F32LE, space, plist, links)
    return path


@pytest.fixture(scope="module")
def huge(tmp_path_factory) -> Path:
    """A folder with that model, documents for it, and a deck."""
    folder = tmp_path_factory.mktemp("huge")
    sparse_model(folder / "w.h5")
    fixtures.random_documents(folder / "t.h5", 32000, [100, 200, 300])
    (folder / "huge.deck").write_text(
        "[job]\nname = score\n[model]\nweights = w.h5\n[data]\ntokens = t.h5\n"
        "[fsdp]\nforward_prefetch = 2\n[output]\nfile = out.h5\n"
    )
    return folder


def in_bytes(size: str) -> float:
    """A size as --check prints it."""
    value, unit = size.split()
    return float(value) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]


def check(folder: Path, *words: str) -> tuple[str, float]:
    """What --check prints there, with an environment of a PATH without mpirun, and its seconds."""
    begin = time.monotonic()
    done = subprocess.run(
        [PROGRAM, "--check", *words],
        cwd=folder,
        env={"PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout, time.monotonic() - begin


def test_check_plans_a_huge_model_without_reading_its_weights(huge):
    size = (huge / "w.h5").stat()
    assert size.st_size > 50e9 and size.st_blocks * 512 < 50e6
    text, seconds = check(huge, "huge.deck", "--ranks", "8", "--ranks-per-node", "4")
    assert seconds < 2
    assert "ranks: 8, 4 on a node, shard groups of 8" in text
    weights = re.search(r"^ +weights +([0-9.]+ \w+) ", text, re.MULTILINE)[1]
    assert in_bytes(weights) == pytest.approx(size.st_size / 8, rel=0.01)
    assert re.search(r"^ +slots .* 3 x ", text, re.MULTILINE)
    for row in ("activations", "inputs and results", "total", "results on disk"):
        assert re.search(rf"^ +{row} +[0-9.]+ (B|KiB|MiB|GiB)", text, re.MULTILINE)
    assert not list(huge.glob("out*"))


def test_check_says_what_a_node_must_hold(huge):
    total = {}
    for per_node in (1, 4):
        text, _ = check(huge, "huge.deck", "--ranks", "8", "--ranks-per-node", str(per_node))
        node = re.search(rf"{per_node} ranks? on a node: ([0-9.]+ \w+)", text)
        total[per_node] = in_bytes(node[1])
    assert total[4] == pytest.approx(4 * total[1], rel=0.02)


def test_check_prints_deck_schedule_and_notes_of_a_small_model(bigram, tmp_path):
    (tmp_path / "small.deck").write_text(
        f"[job]\nname = score\n[model]\nweights = {bigram}/w.h5\n[data]\ntokens = {bigram}/ab.h5\n"
        "[comm]\ntransport = mpi\n[output]\nfile = out.h5\n"
    )
    text, seconds = check(tmp_path, "small.deck", "--ranks=4", "--batch.tokens=4")
    assert seconds < 2 and not list(tmp_path.glob("out*"))
    assert "tokens = 4  # command line" in text and "transport = mpi  # small.deck:8" in text
    assert "2 documents, 6 tokens, 2 packs, 1 passes" in text
    order = re.findall(r"^ +(gather|compute) +use +(\d+) +(\S+)", text, re.MULTILINE)
    assert order[:4] == [
        ("gather", "0", "embedding.0"),
        ("gather", "1", "layer.0"),
        ("compute", "0", "embedding.0"),
        ("gather", "2", "layer.1"),
    ]
    assert "note: " in text and "mesh.shard = 1 would fit" in text
    inert, _ = check(tmp_path, "small.deck", "--fsdp.forward_prefetch=2")
    assert "fsdp.forward_prefetch = 2 is inert" in inert
    clamped, _ = check(tmp_path, "small.deck", "--ranks=2", "--fsdp.forward_prefetch=9")
    assert "fsdp.forward_prefetch = 9 is clamped to 3" in clamped


def test_check_finds_what_the_run_would_refuse(run, ab, bigram, tmp_path):
    deck = tmp_path / "1.deck"
    fixtures.write_tokens(tmp_path / "bad.h5", [[0, 4]])
    deck.write_text(
        f"[job]\nname = score\n[model]\nweights = {bigram}/w.h5\n[data]\ntokens = bad.h5\n"
        "[output]\nfile = out.h5\n"
    )
    checked, started = run.words(["--check", deck]), run.words([deck])
    assert lines(checked.stderr) == lines(started.stderr)
    refusal(checked, "/tokens[1] is 4")
    refusal(run.words(["--check", deck, "--data.tokens=absent.h5"]), "absent.h5")
    wrong = [f"--data.tokens={bigram}/ab.h5", "--ranks=4", "--mesh.shard=3"]
    refusal(run.words(["--check", deck, *wrong]), "mesh.shard", "3", "does not divide")
