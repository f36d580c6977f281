# SPDX-License-Identifier: Apache-2.0
"""A run that was killed goes on with output.existing = resume, and ends in the same bytes.

Decides where runs are killed and what may change between starts; faults.py makes the faults.
"""

import json
import re
import shutil
import signal
import threading
from pathlib import Path

import fixtures
import h5py
import numpy as np
import pytest
from faults import Job, library, until
from run_foregather import Foregather, Result, deck_text, group_bytes, read
from said import bare

# Documents are cut, some over several packs; everything that can be stored is.
SIZE = {"hidden_size": 24, "intermediate_size": 51, "vocab_size": 97, "num_hidden_layers": 3}
LENGTHS = [40, 7, 1, 0, 33, 64, 2, 90, 16, 55] * 4
ASKED = {
    "data.window": 16,
    "batch.tokens": 24,
    "score.entropy": True,
    "score.top_k": 2,
    "score.logits": True,
    "score.hidden_states": True,
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """Models, documents, the library of faults; those named other-* differ in content."""
    folder = tmp_path_factory.mktemp("inputs")
    fixtures.random_llama(folder / "model.h5", **SIZE)
    fixtures.random_llama(folder / "other-model.h5", seed=2, **SIZE)
    for name, seed in (("tokens", 1), ("other-tokens", 2)):
        path = fixtures.random_documents(folder / f"{name}.h5", 97, LENGTHS, seed=seed)
        with h5py.File(path, "a") as file:
            file["bytes"] = np.array(LENGTHS, np.int64) * 4
    library(folder)
    return folder


@pytest.fixture(scope="module")
def deck(inputs) -> dict:
    """The deck of all these runs."""
    return ASKED | {"model.weights": inputs / "model.h5", "data.tokens": inputs / "tokens.h5"}


@pytest.fixture(scope="module")
def unbroken(deck, tmp_path_factory) -> Result:
    """The run that nobody kills."""
    return Foregather(tmp_path_factory.mktemp("unbroken"))(deck, ranks=2)


def marks(part: Path) -> int:
    """Packs that are marked as done in a file that may be in the making."""
    try:
        return int(read(part, "/provenance/packs_done").sum())
    except OSError:
        return 0


def kill_in_the_middle(folder: Path, deck: dict, ranks: int, more_than: int = 3) -> Path:
    """Starts a job that gathers over a slow link, kills it when some packs are marked."""
    slow = {"comm.transport": "mpi", "comm.link_rate": "0.3 MB/s", "output.flush_every": 0.001}
    job = Job(folder, deck | slow, ranks)
    try:
        job.all_there()
        until(lambda: marks(job.part) > more_than, 30, "some packs done")
        job.send(ranks - 1, signal.SIGKILL)
        job.end(15)
    finally:
        job.clear()
    done = read(job.part, "/provenance/packs_done")
    assert more_than < done.sum() < len(done)
    return job.part


@pytest.fixture(scope="module")
def killed(deck, tmp_path_factory) -> Path:
    """What a killed run of three ranks left."""
    folder = tmp_path_factory.mktemp("killed")
    return kill_in_the_middle(folder, deck | {"output.log": folder / "log.jsonl"}, 3)


@pytest.fixture
def left(killed, tmp_path) -> dict:
    """A deck that goes on with a copy of it."""
    shutil.copy(killed, tmp_path / "results.h5.part")
    return {"output.file": tmp_path / "results.h5", "output.existing": "resume"}


@pytest.mark.parametrize(
    "ranks, changes",
    [
        (1, {"device.threads": 2}),
        (2, {"comm.transport": "mpi", "fsdp.forward_prefetch": 3}),
        (4, {"comm.transport": "shared", "mesh.shard": 2, "output.timeline": False}),
    ],
)
def test_f4_killed_run_goes_on_to_the_same_bytes(ranks, changes, deck, left, killed, unbroken, run):
    before = read(killed, "/provenance/packs_done")
    result = run(deck | left | changes, ranks)
    assert result.score_bytes() == unbroken.score_bytes()
    assert not result.part_left() and result.attribute("complete", "/") == 1
    assert result.table("/timing/ranks")["packs"].sum() == (before == 0).sum()
    assert result.read("/provenance/packs_done").all()
    runs = result.table("/provenance/runs")
    assert runs["ranks"].tolist() == [3, ranks]
    assert runs["packs_before"].tolist() == [0, before.sum()]
    assert [line.split()[-1] for line in runs["command_line"]][1] == str(result.deck)
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", at) for at in runs["started"])
    assert result.key("output.existing")["observed"].startswith(f"{before.sum()} of {len(before)}")
    assert f"resumed: {before.sum()} of {len(before)} packs" in result.stdout
    assert result.read("/provenance/resumed_deck_text") == result.deck.read_text()


def test_f4_run_killed_twice_goes_on(deck, left, killed, unbroken, run, tmp_path):
    first = marks(killed)
    part = kill_in_the_middle(tmp_path, deck | left, 2, more_than=first + 2)
    result = run(deck | left, ranks=3)
    assert result.score_bytes() == unbroken.score_bytes()
    runs = result.table("/provenance/runs")
    assert runs["ranks"].tolist() == [3, 2, 3] and runs["packs_before"][1] == first
    assert runs["packs_before"][2] > first + 2 and not part.exists()


def test_f4_run_goes_on_when_somebody_only_looked_at_the_file(deck, left, run):
    reader = h5py.File(f"{left['output.file']}.part")  # Holds a lock.
    closing = threading.Timer(1.2, reader.close)
    closing.start()
    result = run(deck | left, ranks=2)
    closing.join()
    assert result.attribute("complete", "/") == 1


CHANGES = {
    "batch.tokens": ({"batch.tokens": 25}, "batch.tokens was 24, is 25"),
    "window": ({"data.window": 12}, "data.window was 16, is 12"),
    "stride": ({"data.stride": 4}, "data.stride in force was 15, is 4"),
    "documents": ({"data.max_documents": 39}, "data.max_documents was 0, is 39"),
    "pieces": ({"fsdp.piece_bytes": "4 KiB"}, "fsdp.piece_bytes was 0, is 4096"),
    "temperature": ({"score.temperature": 0.5}, "score.temperature was 1, is 0.5"),
    "entropy": ({"score.entropy": False}, "score.entropy was true, is false"),
    "top_k": ({"score.top_k": 3}, "score.top_k was 2, is 3"),
    "hidden": ({"score.hidden_states": False}, "score.hidden_states was true, is false"),
    "logits": ({"score.logits": False}, "score.logits was true, is false"),
    "tokens": ({"data.tokens": "other-tokens.h5"}, "tokens was sha256 "),
    "weights": ({"model.weights": "other-model.h5"}, "weights was sha256 "),
}


@pytest.mark.parametrize("name", CHANGES)
def test_resume_would_be_refused_with_the_difference(name, deck, left, inputs, tmp_path):
    changes, words = CHANGES[name]
    changes = {k: inputs / v if str(v).endswith(".h5") else v for k, v in changes.items()}
    path = tmp_path / "check.deck"
    path.write_text(deck_text(deck | left | changes))
    refused = bare("--check", path, "--ranks", "2")
    assert refused.returncode == 2 and refused.stdout == ""
    assert refused.stderr.count(words) == 1 and "output.existing = resume" in refused.stderr


def test_resume_is_refused_with_all_differences_and_touches_nothing(deck, left, run, tmp_path):
    part = tmp_path / "results.h5.part"
    before = part.read_bytes()
    changes = CHANGES["window"][0] | CHANGES["batch.tokens"][0]
    result = run(deck | left | changes, ranks=3, expect=2)
    for name in ("window", "batch.tokens"):
        assert result.stderr.count(CHANGES[name][1]) == 1
    assert result.stdout == "" and part.read_bytes() == before and not result.path.exists()


def test_resume_is_refused_with_other_product_kernels_or_type(deck, left, run):
    others = {"device.products": "openblas", "fsdp.param_dtype": "bf16"}
    result = run(deck | left | others, ranks=2, env={"OPENBLAS_CORETYPE": "Nehalem"}, expect=2)
    assert "products was " in result.stderr and "Nehalem" in result.stderr
    assert "type of weights was fp32, is bf16" in result.stderr


def test_what_changes_no_score_may_change_and_is_told(deck, left, inputs, unbroken, run, tmp_path):
    moved = {"model.weights": tmp_path / "w.h5", "data.tokens": tmp_path / "t.h5"}
    for key, path in moved.items():
        shutil.copy(deck[key], path)
    log = tmp_path / "log.jsonl"
    log.write_text('{"event": "of the first start"}\n')
    changes = moved | {"data.stride": 15, "job.title": "again", "output.log": log}
    result = run(deck | left | changes, ranks=2)
    assert "resumed with a change: job.title was none, is again" in result.stdout
    assert "resumed with a change: comm.transport was mpi, is auto" in result.stdout
    assert result.score_bytes() == unbroken.score_bytes()
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events[0] == "of the first start" and events[-1] == "done"


def test_without_anything_to_resume_it_is_an_ordinary_run(deck, unbroken, run):
    result = run(deck | {"output.existing": "resume"}, ranks=2)
    assert result.score_bytes() == unbroken.score_bytes()
    assert result.table("/provenance/runs")["ranks"].tolist() == [2]
    assert result.key("output.existing")["observed"] == "no file was there"


def test_a_run_that_ended_badly_ends_so_again(deck, inputs, run, tmp_path):
    sick = tmp_path / "sick.h5"
    shutil.copy(inputs / "model.h5", sick)
    with h5py.File(sick, "a") as file:
        file["weights/lm_head/weight"][5, 3] = np.nan
    again = {"output.existing": "resume"}
    for changes, code, words in (
        ({"model.weights": sick, "output.file": tmp_path / "nan.h5"}, 1, "not finite"),
        (
            {"comm.transport": "mpi", "output.require": "observed", "data.max_documents": 1}
            | {"output.file": tmp_path / "unseen.h5"},
            3,
            "output.require",
        ),
    ):
        first = run(deck | changes, ranks=2, expect=code)
        second = run(deck | changes | again, ranks=2, expect=code)
        assert words in first.stderr and words in second.stderr
        assert "complete already" in second.stdout


def test_a_part_that_is_another_hdf5_file_is_kept_and_refused(deck, inputs, run, tmp_path):
    part = tmp_path / "mine.h5.part"
    shutil.copy(inputs / "tokens.h5", part)
    before = part.read_bytes()
    changes = {"output.file": tmp_path / "mine.h5", "output.existing": "resume"}
    result = run(deck | changes, ranks=2, expect=2)
    assert "mine.h5.part is an HDF5 file of something else" in result.stderr
    assert part.read_bytes() == before


def test_complete_results_are_done_already(deck, unbroken, inputs, run, tmp_path):
    path = tmp_path / "done.h5"
    shutil.copy(unbroken.path, path)
    before = path.read_bytes(), path.stat().st_mtime_ns
    again = {"output.file": path, "output.existing": "resume"}
    result = run(deck | again, ranks=3)
    assert result.stdout.count("is complete already") == 1
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before and not result.part_left()
    other = run(deck | again | {"data.tokens": inputs / "other-tokens.h5"}, ranks=2, expect=2)
    assert "tokens was sha256" in other.stderr and path.read_bytes() == before[0]
    path.write_text("somebody's notes")
    junk = run(deck | again, ranks=2, expect=2)
    assert "no complete results file" in junk.stderr
    assert path.read_text() == "somebody's notes"


def test_complete_results_that_only_lack_their_name_get_it(deck, left, unbroken, run, tmp_path):
    shutil.copy(unbroken.path, tmp_path / "results.h5.part")
    result = run(deck | left, ranks=2)
    assert "was complete: it is" in result.stdout
    assert result.path.read_bytes() == unbroken.path.read_bytes() and not result.part_left()


@pytest.mark.parametrize("junk", [b"", b"killed before anything was laid out"])
def test_what_cannot_be_opened_is_told_and_begun_anew(junk, deck, left, unbroken, run, tmp_path):
    (tmp_path / "results.h5.part").write_bytes(junk)
    result = run(deck | left, ranks=2)
    (told,) = [note for note in result.stdout.splitlines() if re.match("note: .*part", note)]
    assert "cannot be resumed, so the run starts anew" in told
    assert result.score_bytes() == unbroken.score_bytes()
    assert result.table("/provenance/runs")["ranks"].tolist() == [2]


def test_f4_run_killed_while_it_completes_its_file_goes_on(deck, inputs, unbroken, run, tmp_path):
    env = {"LD_PRELOAD": str(inputs / "faults.so"), "FAULT": "count-writes"}
    counted = run(deck, ranks=0, env=env)
    total = max(map(int, re.findall(r"^writes (\d+)$", counted.stderr, re.MULTILINE)))
    for before_the_last in (0, 20, 60):
        env |= {"FAULT": "die-in-write", "FAULT_AT": str(total - before_the_last)}
        killed = run(deck, ranks=0, env=env, expect=-signal.SIGKILL)
        assert killed.part_left()
        again = {"output.file": killed.path, "output.existing": "resume"}
        result = run(deck | again, ranks=2)
        assert result.score_bytes() == unbroken.score_bytes()
        assert result.attribute("complete", "/") == 1 and not result.part_left()
        assert group_bytes(result.path, "/timing").keys() >= {"phases/name"}


def test_check_tells_what_is_left_and_what_would_be_refused(deck, left, killed, tmp_path):
    path = tmp_path / "check.deck"
    path.write_text(deck_text(deck | left))
    done = read(killed, "/provenance/packs_done")
    text = bare("--check", path, "--ranks", "2").stdout
    assert f"resumed: {done.sum()} of {len(done)} packs" in text
    assert f"{(done == 0).sum()} packs, {((done == 0).sum() + 1) // 2} passes" in text
    refused = bare("--check", path, "--batch.tokens=25")
    assert refused.returncode == 2 and "batch.tokens was 24, is 25" in refused.stderr
