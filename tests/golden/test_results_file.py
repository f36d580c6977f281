# SPDX-License-Identifier: Apache-2.0
"""The results file as its readers meet it: h5dump, h5ls, h5diff, h5py; layout, labels, provenance.

Decides what must be in the file and in which form; whether the scores are right is asked elsewhere.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import fixtures
import h5py
import numpy as np
import pytest
from run_foregather import NOT_COMPARED, Foregather, Result, dataset_names

IDS = np.array([b"first", b"second, \xc3\xbc", b"", b"fourth"], "S12")
LENGTHS = [12, 1, 0, 30]
NUMBERS = {
    "/score/logprob": (np.float32, "nat", "token"),
    "/score/greedy": (np.uint8, "1", "token"),
    "/score/document_nll": (np.float64, "nat", "document"),
    "/score/document_scored_tokens": (np.int64, "token", "document"),
    "/score/document_status": (np.uint8, "1", "document"),
    "/score/offsets": (np.int64, "token", "document"),
}
TABLES = {
    "/timing/spans": "rank step pass direction sequence slot stream kind unit issued_ns begin_ns "
    "end_ns bytes",
    "/timing/units": "name bytes tensors",
    "/timing/prefetch": "direction requested issued_ahead begun_ahead verdict gathers exposed_s "
    "overlapped_s slots slot_bytes",
    "/timing/phases": "name calls seconds_min seconds_mean seconds_max rank_of_max",
    "/timing/ranks": "peak_host_bytes device_bytes bytes_read bytes_gathered",
    "/provenance/deck": "key value default origin state observed reason",
    "/provenance/hosts": "rank host local_rank cores",
    "/provenance/environment": "name value",
    "/provenance/inputs": "path bytes modified sha256 verified",
    "/provenance/versions": "name version",
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> dict[str, Path]:
    """A small model, and documents that have names."""
    folder = tmp_path_factory.mktemp("inputs")
    model = fixtures.random_llama(folder / "model.h5", hidden_size=16, head_dim=8, vocab_size=31)
    tokens = fixtures.random_documents(folder / "tokens.h5", 31, LENGTHS)
    with h5py.File(tokens, "a") as file:
        kind = h5py.h5t.C_S1.copy()
        kind.set_size(12)
        kind.set_cset(h5py.h5t.CSET_UTF8)
        kind.set_strpad(h5py.h5t.STR_NULLPAD)
        space = h5py.h5s.create_simple((len(IDS),))
        h5py.h5d.create(file.id, b"id", kind, space).write(h5py.h5s.ALL, h5py.h5s.ALL, IDS, kind)
    return {"model.weights": model, "data.tokens": tokens}


@pytest.fixture(scope="module")
def result(inputs, tmp_path_factory) -> Result:
    """One run of two ranks with gathers, a title and a document left out."""
    deck = inputs | {
        "job.title": "Zwölf Töne, 3 documents",
        "data.max_documents": 3,
        "comm.transport": "mpi",
        "batch.tokens": 16,
    }
    return Foregather(tmp_path_factory.mktemp("run"))(deck, ranks=2, overrides=["device.threads=1"])


def said(*command) -> str:
    """What a command printed; AssertionError if it failed or complained."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("tool", ("h5dump", "h5ls", "h5diff"))
def test_hdf5_tools_read_the_file(tool, result):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    if tool == "h5dump":
        text = said("h5dump", result.path)
        assert all(
            f'DATASET "{name.split("/")[-1]}"' in text for name in dataset_names(result.path)
        )
    elif tool == "h5ls":
        listed = {line.split()[0]: line for line in said("h5ls", "-r", result.path).splitlines()}
        assert set(dataset_names(result.path)) <= set(listed)
        assert f"Dataset {{{sum(LENGTHS)}}}" in listed["/score/logprob"]
    else:
        assert said("h5diff", result.path, result.path) == ""


def test_root_says_what_the_file_is(result):
    with h5py.File(result.path) as file:
        attributes = {name: value for name, value in file.attrs.items()}
        assert sorted(file) == ["provenance", "score", "timing"]
    assert attributes["format"] in (b"foregather.results", "foregather.results")
    assert attributes["format_version"] == 1 and attributes["complete"] == 1
    title = attributes["title"]
    assert (title.decode() if isinstance(title, bytes) else title) == "Zwölf Töne, 3 documents"
    assert not result.part_left()


def test_scores_have_their_types_units_and_labels(result):
    with h5py.File(result.path) as file:
        for name, (kind, units, label) in NUMBERS.items():
            assert file[name].dtype == kind, name
            assert file[name].attrs["units"].decode() == units, name
            assert file[name].dims[0].label == label, name
        for name in ("loss", "perplexity", "standard_error"):
            assert file["score"].attrs[name].dtype == np.float64
        assert file["score"].attrs["scored_tokens"] == 11
        assert "bits_per_byte" not in file["score"].attrs  # The token file knows no bytes.
        assert file["score/logprob"].shape == file["score/greedy"].shape == (sum(LENGTHS),)
        with h5py.File(result.key("data.tokens")["value"]) as tokens:
            assert np.array_equal(file["score/offsets"], tokens["offsets"])
            assert np.array_equal(file["score/id"], tokens["id"])
            assert file["score/id"].id.get_type() == tokens["id"].id.get_type()


def test_documents_left_out_are_marked(result):
    assert result.read("/score/document_status").tolist() == [0, 1, 1, 3]
    assert np.isnan(result.read("/score/logprob")[13:]).all()
    assert result.read("/score/document_nll").tolist()[1:] == [0, 0, 0]


def test_every_column_says_what_it_is(result):
    with h5py.File(result.path) as file:
        for name in dataset_names(result.path):
            dataset = file[name]
            numbers = h5py.check_string_dtype(dataset.dtype) is None
            if numbers or dataset.shape != ():  # A text alone is told by its name.
                assert dataset.attrs.get("long_name"), name
            assert not numbers or dataset.attrs.get("units"), name
            assert dataset.ndim <= 2 and dataset.dtype.names is None, name


def strings(file: h5py.File) -> dict[str, h5py.h5t.TypeID]:
    """HDF5's own types of all strings: of datasets and attributes, not of dimensions' labels."""
    found = {}

    def visit(name: str, item) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item.id.get_type()
        for key in item.attrs:
            if key != "DIMENSION_LABELS":  # HDF5 itself writes these, and reads no others.
                found[f"{name}@{key}"] = item.attrs.get_id(key).get_type()

    visit("/", file["/"])
    file.visititems(visit)
    return {name: kind for name, kind in found.items() if kind.get_class() == h5py.h5t.STRING}


def test_strings_are_fixed_length_and_null_padded(result):
    with h5py.File(result.path) as file:
        found = strings(file)
        assert {
            "/@title",
            "score/logprob@units",
            "timing/spans/kind",
            "provenance/deck_text",
        } <= set(found)
        for name, kind in found.items():
            assert not kind.is_variable_str(), name
            assert kind.get_strpad() == h5py.h5t.STR_NULLPAD, name
            assert kind.get_cset() == h5py.h5t.CSET_UTF8, name


def test_only_plain_storage_is_used(result):
    with h5py.File(result.path) as file:
        assert result.path.read_bytes()[8] == 3  # Superblock: metadata have checksums.
        for name in dataset_names(result.path):
            assert file[name].compression is None and not file[name].is_virtual, name
            assert file[name].id.get_create_plist().get_external_count() == 0, name


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_their_columns(name, result):
    table = result.table(name)
    assert set(TABLES[name].split()) <= set(table)
    lengths = {column: len(values) for column, values in table.items()}
    assert len(set(lengths.values())) == 1 and min(lengths.values()) > 0, lengths


def test_spans_lie_within_the_run(result):
    spans = result.table("/timing/spans")
    assert set(spans["kind"]) == {"gather", "compute", "wait"}
    assert set(spans["rank"]) == {0, 1} and set(spans["direction"]) == {"forward"}
    enqueued = spans["kind"] != "wait"
    assert np.all(spans["issued_ns"][enqueued] <= spans["begin_ns"][enqueued])
    assert np.all(spans["begin_ns"] <= spans["end_ns"])
    assert min(spans["issued_ns"].min(), spans["begin_ns"].min()) == 0
    units = result.table("/timing/units")
    assert set(spans["unit"]) == set(units["name"])
    phases = result.rows("/timing/phases", "name")
    for name in ("load", "compute", "gather", "exposed", "write", "run"):
        row = phases[name]
        assert 0 <= row["seconds_min"] <= row["seconds_mean"] <= row["seconds_max"], name
    assert result.attribute("tokens_per_second", "/timing/phases") == pytest.approx(
        13 / phases["run"]["seconds_max"]
    )
    assert result.attribute("flop_per_second", "/timing/phases") > 0
    assert (result.table("/timing/ranks")["peak_host_bytes"] > 1 << 20).all()


def test_provenance_tells_what_ran(result, inputs):
    assert result.read("/provenance/deck_text") == result.deck.read_text()
    assert result.read("/provenance/command_line").split()[1:] == result.command[-2:]
    for moment in ("started", "finished"):
        assert re.fullmatch(
            r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", result.read(f"/provenance/{moment}")
        )
    keys = result.rows("/provenance/deck", "key")
    assert keys["device.threads"]["origin"] == "command line"
    assert (keys["batch.tokens"]["origin"], keys["batch.tokens"]["value"]) == ("deck", "16")
    assert (keys["mesh.shard"]["origin"], keys["mesh.shard"]["default"]) == ("default", "0")
    assert all(row["state"] in ("honoured", "inert", "clamped") for row in keys.values())
    assert all(row["observed"] or row["reason"] for row in keys.values())
    hosts = result.table("/provenance/hosts")
    assert hosts["rank"].tolist() == [0, 1] and hosts["local_rank"].tolist() == [0, 1]
    versions = result.rows("/provenance/versions", "name")
    assert {"foregather", "git", "mpi", "hdf5"} <= set(versions)
    files = result.rows("/provenance/inputs", "path")
    tokens = inputs["data.tokens"]
    assert files[str(tokens)]["bytes"] == tokens.stat().st_size
    assert files[str(tokens)]["sha256"] == said("sha256sum", tokens).split()[0]
    with h5py.File(inputs["model.weights"]) as file:
        digest = file.attrs["content_sha256"].decode()
        assert json.loads(file["config"][()])["vocab_size"] == 31
    assert files[str(inputs["model.weights"])]["sha256"] == digest
    environment = result.rows("/provenance/environment", "name")
    assert environment["OMP_NUM_THREADS"]["value"] == "1" and "PATH" not in environment


def everything_else(path: Path) -> dict[str, bytes]:
    """Bytes of all that must not differ between two runs."""
    with h5py.File(path) as file:
        kept = {f"@{name}": np.asarray(value).tobytes() for name, value in file.attrs.items()}
        for name in dataset_names(path):
            if not name.startswith(NOT_COMPARED):
                kept[name] = np.asarray(file[name][()]).tobytes()
        return kept | {"score@": repr(dict(file["score"].attrs)).encode()}


def test_runs_differ_in_provenance_and_timing_alone(inputs, run):
    one = run(inputs | {"batch.tokens": 16, "fsdp.forward_prefetch": 0, "comm.transport": "mpi"}, 2)
    other = run(inputs | {"batch.tokens": 16}, 3)
    ours, theirs = everything_else(one.path), everything_else(other.path)
    assert ours == theirs and {"@complete", "/score/logprob", "score@"} <= set(ours)
    excluded = [word for group in NOT_COMPARED for word in ("--exclude-path", group)]
    if shutil.which("h5diff"):
        assert said("h5diff", *excluded, one.path, other.path) == ""


def test_effective_deck_runs_again_and_scores_the_same(result, run):
    text = result.read("/provenance/deck_effective")
    again = run(text, ranks=2, overrides=[f"output.file={run.folder / 'again.h5'}"])
    assert again.path != result.path
    assert again.score_bytes() == result.score_bytes()
    ours, theirs = (r.rows("/provenance/deck", "key") for r in (again, result))
    given = {key for key in ours if key != "output.file"}
    assert {k: ours[k]["value"] for k in given} == {k: theirs[k]["value"] for k in given}


def test_deck_of_80_kb_is_kept_to_the_byte(inputs, run, tmp_path):
    names = np.array([f"name-{number:06d}" for number in range(5000)], "S12")
    tokens = fixtures.write_tokens(tmp_path / "many.h5", [[1, 2]] * 5000, id=names)
    comment = "# " + "ä comment that goes on and on, with = and [brackets] \t in it " * 2 + "\n"
    text = (
        f"# a deck\r\n[job]\nname=score   # the job\n{comment * 700}[model]\n"
        f"weights = {inputs['model.weights']}\n\n[data]\n tokens={tokens}\n"
        f"[output]\nfile = {tmp_path / 'long.h5'}\n# no line ends here"
    )
    assert len(text.encode()) > 80_000
    result = run(text, ranks=2)
    with h5py.File(result.path) as file:
        stored = file["provenance/deck_text"][()]
    assert (stored if isinstance(stored, bytes) else stored.encode()) == text.encode()
    assert result.read("/score/id").tolist() == [name.decode() for name in names]


def test_existing_file_is_kept_unless_it_is_to_be_replaced(inputs, run, tmp_path):
    path = tmp_path / "there.h5"
    path.write_text("somebody's work")
    deck = inputs | {"output.file": path}
    refused = run(deck, ranks=2, expect=2)
    assert "output.existing" in refused.stderr or "exists" in refused.stderr
    assert path.read_text() == "somebody's work" and not refused.part_left()
    replaced = run(deck | {"output.existing": "replace"}, ranks=2)
    assert replaced.attribute("complete", "/") == 1
    assert "replaced" in replaced.key("output.existing")["observed"]
