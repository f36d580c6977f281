# SPDX-License-Identifier: Apache-2.0
"""Damage to files of our own making is noticed: to data by the checksums beside them, to metadata
by those of HDF5.

Decides which byte is changed, in files made by the tools; which files are refused unharmed is
test_inputs' affair.
"""

import json
import re
import shutil
from pathlib import Path

import fixtures
import h5py
import numpy as np
import pytest
from foregather_tools.token_file import TokenFileWriter
from foregather_tools.weights_writer import write_weights
from run_foregather import ROOT
from said import refusal
from training import deck as training_deck
from training import step_file

DOCUMENTS = [[0, 1, 2, 3], [0, 0], [1, 2, 3, 0, 1]]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with what the tools write: weights w.h5, with a tokenizer, and tokens t.h5."""
    folder = tmp_path_factory.mktemp("made")
    plain = fixtures.bigram(folder / "plain.h5")
    with h5py.File(plain) as file:
        config = file["config"][()].decode()
    arrays = fixtures.bigram_arrays(json.loads(config))
    tensors = [fixtures.from_array(name, array, "float32") for name, array in arrays.items()]
    write_weights(folder / "w.h5", config, tensors, source="here", tokenizer_text='{"a": 1}')
    with TokenFileWriter(folder / "t.h5", "uint16", 4, False, ("score_from",)) as writer:
        for number, document in enumerate(DOCUMENTS):
            writer.add(f"document {number}", np.array(document), 2 * len(document), score_from=1)
        writer.finish("here", None)
    return folder


def damaged(original: Path, name: str, at: int, to: Path) -> Path:
    """A copy in which byte `at` of a dataset has another lowest bit."""
    shutil.copy(original, to)
    with h5py.File(original) as file:
        offset = file[name].id.get_offset()
    flip(to, offset + at)
    return to


def flip(path: Path, at: int) -> None:
    """Changes the lowest bit of one byte of a file."""
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def score(folder: Path, **changes: Path) -> dict:
    """The deck that scores them."""
    return {"model.weights": folder / "w.h5", "data.tokens": folder / "t.h5"} | changes


# What is damaged: the file, its dataset, the byte. All of these read as legal values.
DAMAGE = {
    "id_of_a_token": ("t", "tokens", 2),
    "end_of_a_document": ("t", "offsets", 8),
    "bytes_of_a_document": ("t", "bytes", 0),
    "where_scores_begin": ("t", "score_from", 9),
    "name_of_a_document": ("t", "id", 3),
    "config": ("w", "config", 40),
}


def expect_damage(result, path: Path, name: str, lines: int | None = 1) -> None:
    """Refused with the file, the dataset and both digests."""
    message = refusal(result, str(path), f"/{name}", "is not what was written", lines_said=lines)
    digests = re.findall(r"\b([0-9a-f]{12})\.\.\.", message)
    assert len(set(digests)) == 2 and "copy it again" in message, message


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_data_with_a_checksum_is_refused(case, made, run, tmp_path):
    file, name, at = DAMAGE[case]
    bad = damaged(made / f"{file}.h5", name, at, tmp_path / "bad.h5")
    key = {"t": "data.tokens", "w": "model.weights"}[file]
    expect_damage(run(score(made, **{key: bad}), ranks=2, expect=None), bad, name)


@pytest.mark.parametrize("job", ["train", "bench", "plan", "--check"])
def test_damage_is_refused_by_every_job(job, made, run, tmp_path):
    tokens = damaged(made / "t.h5", "tokens", 2, tmp_path / "bad-t.h5")
    config = damaged(made / "w.h5", "config", 40, tmp_path / "bad-w.h5")
    deck = {"job.name": job, "data.tokens": tokens, "model.weights": made / "w.h5"}
    if job == "plan":
        machine = ROOT / "inputs/machines/two-cores.deck"
        deck = {"job.name": job, "plan.model": config, "plan.machine": machine}
        deck |= {"plan.ranks": 2, "plan.tokens": 8}
        bad, name = config, "config"
    else:
        bad, name = tokens, "tokens"
    words = []
    if job == "train":
        deck = training_deck(made / "w.h5", tokens)
    if job == "--check":
        deck, words = score(made, **{"data.tokens": tokens}), ["--check"]
    expect_damage(run(deck, ranks=0, overrides=words, expect=None), bad, name)


def test_damaged_tokens_of_evaluation_and_tokenizer_are_refused_in_training(made, run, tmp_path):
    bad = damaged(made / "t.h5", "tokens", 2, tmp_path / "bad.h5")
    deck = training_deck(made / "w.h5", made / "t.h5")
    result = run(deck | {"train.evaluate": bad, "train.evaluate_every": 1}, expect=None)
    expect_damage(result, bad, "tokens")
    bad = damaged(made / "w.h5", "tokenizer", 3, tmp_path / "bad-w.h5")
    asked = {"model.weights": bad, "checkpoint.directory": tmp_path / "kept"}
    expect_damage(run(deck | asked, ranks=2, expect=None), bad, "tokenizer")


def test_what_checksums_covered_is_told_by_check_and_in_the_results(made, bigram, run):
    ours, foreign = score(made), score(made, **{"data.tokens": bigram / "ab.h5"})
    covered = "/tokens, /offsets, /score_from, /bytes, /id"
    verified = run(ours, ranks=2).table("/provenance/inputs")["verified"]
    assert verified.tolist() == ["", covered, "/config"]
    assert run(foreign).table("/provenance/inputs")["verified"].tolist() == ["", "", "/config"]
    said = run(ours, ranks=0, overrides=["--check"]).stdout
    assert f"checksums: {made}/t.h5: {covered} verified" in said
    assert f"checksums: {made}/w.h5: /config verified" in said
    said = run(foreign, ranks=0, overrides=["--check"]).stdout
    assert f"checksums: {bigram}/ab.h5: none, damage to its data is not noticed" in said


@pytest.mark.parametrize("name", ["config", "train/settings", "train/loss", "evaluation/loss"])
def test_damaged_text_or_history_of_a_checkpoint_is_refused(name, made, run, tmp_path):
    kept = tmp_path / "kept"
    deck = training_deck(made / "w.h5", made / "t.h5") | {
        "train.steps": 2,
        "train.evaluate": made / "t.h5",
        "train.evaluate_every": 1,
        "checkpoint.directory": kept,
        "checkpoint.every": 2,
    }
    run(deck, ranks=2)
    bad = damaged(step_file(kept, 2), name, 5, tmp_path / "bad.h5")
    asked = {"checkpoint.resume": bad, "train.steps": 3}
    expect_damage(run(deck | asked, ranks=2, expect=None), bad, name)


# Metadata.


def metadata(path: Path) -> list[int]:
    """A byte of the superblock, and one of each object header and each further block of one."""
    whole = path.read_bytes()
    assert whole[:8] == b"\x89HDF\r\n\x1a\n"
    assert whole[8] == 3, "the superblock's version"  # The first whose blocks all have checksums.
    headers = [at.start() for at in re.finditer(b"OHDR|OCHK|FRHP|FHDB|BTHD|BTLF", whole)]
    assert headers and all(whole[at + 4] == 2 for at in headers if whole[at : at + 4] == b"OHDR")
    return [20, *(at + 12 for at in headers)]


@pytest.mark.parametrize("file", ["w", "t"])
def test_metadata_of_what_the_tools_write_has_checksums(file, made, run, tmp_path):
    deck = score(made, **{{"t": "data.tokens", "w": "model.weights"}[file]: tmp_path / "bad.h5"})
    path = run(deck, ranks=0, expect=None).deck
    places = metadata(made / f"{file}.h5")
    for at in places[:: max(1, len(places) // 6)]:
        shutil.copy(made / f"{file}.h5", tmp_path / "bad.h5")
        flip(tmp_path / "bad.h5", at)
        result = run.words([path, "--check"])
        result.path = tmp_path / "none"
        refusal(result, str(tmp_path / "bad.h5"), lines_said=None)


# What no checksum covers.


def not_finite(result) -> dict[int, str]:
    """By rank, what of the weights was told to be not finite."""
    found = re.findall(r"foregather: warning: rank (\d+): (.*?); of what this rank", result.stderr)
    assert len(found) == len(dict(found)), result.stderr
    return {int(rank): told for rank, told in found}


@pytest.fixture(scope="module")
def sick(tmp_path_factory) -> dict[str, Path]:
    """Weights of four layers with an element that is not finite in the last rows of three
    tensors, as float32 and as bfloat16.
    """
    config = fixtures.llama_config(num_hidden_layers=4)
    arrays = fixtures.bigram_arrays(config)
    arrays["model.layers.1.mlp.up_proj.weight"][3, 2] = np.nan
    arrays["model.layers.2.mlp.down_proj.weight"][3, 1] = -np.inf
    folder = tmp_path_factory.mktemp("sick")
    return {
        dtype: fixtures.write_model(folder / f"{dtype}.h5", config, arrays, dtype)
        for dtype in ("float32", "bfloat16", "float16")
    }


@pytest.mark.parametrize(
    "dtype, changes",
    [
        ("float32", {"comm.transport": "shared"}),
        ("float16", {"comm.transport": "mpi"}),
        ("bfloat16", {"comm.transport": "mpi", "fsdp.param_dtype": "bf16"}),
    ],
)
def test_weight_that_is_not_finite_is_told_when_it_is_loaded(dtype, changes, sick, bigram, run):
    deck = {"model.weights": sick[dtype], "data.tokens": bigram / "ab.h5"} | changes
    alone = not_finite(run(deck | {"mesh.shard": 1}, ranks=2, expect=1))
    assert alone == {0: f"{sick[dtype]}: model.layers.1.mlp.up_proj.weight[3, 2] is nan"}
    assert set(not_finite(run(deck, ranks=2, expect=1)).values()) >= set(alone.values())


def test_weight_or_moment_that_is_not_finite_is_told_by_training_and_bench(
    sick, bigram, run, tmp_path
):
    kept = tmp_path / "kept"
    weights, tokens = sick["float32"], bigram / "ab.h5"
    told = {0: f"{weights}: model.layers.1.mlp.up_proj.weight[3, 2] is nan"}
    bad = run(training_deck(weights, tokens), expect=None)
    assert not_finite(bad) == told
    bench = {"job.name": "bench", "data.tokens": tokens, "bench.pairs": 3, "bench.tokens": 4}
    assert not_finite(run(bench | {"model.weights": weights}, expect=None)) == told
    deck = training_deck(bigram / "w.h5", tokens)
    deck |= {"checkpoint.directory": kept, "checkpoint.every": 1}
    assert not_finite(run(deck)) == {}
    with h5py.File(step_file(kept, 1), "r+") as file:
        file["optimizer/first_moment/lm_head/weight"][1, 3] = np.inf
    again = run(deck | {"train.steps": 2, "checkpoint.resume": "auto"}, expect=None)
    file = f"{step_file(kept, 1)}: optimizer/first_moment"
    assert not_finite(again) == {0: f"{file}: lm_head.weight[1, 3] is inf"}
