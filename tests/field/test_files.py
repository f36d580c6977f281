# SPDX-License-Identifier: Apache-2.0
"""Where results go and how inputs are shared: nothing is overwritten unasked, and locks are
explained.

Decides paths, file systems that refuse, and long texts; what the numbers are is test_inputs'
affair.
"""

import errno
import os
import subprocess
import threading
from pathlib import Path

import faults
import fixtures
import h5py
import numpy as np
import pytest
from run_foregather import ROOT, Foregather
from said import lines, refusal
from training import deck as training_deck


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("/proc/results.h5", ("/proc/results.h5",)),  # A directory that not even root can write to.
        ("{folder}/a-file/results.h5", ("a-file", "Not a directory")),
        ("{folder}/absent/results.h5", ("absent", "No such file or directory")),
        ("{folder}", ("not a regular file",)),
        ("/dev/null", ("/dev/null", "not a regular file")),
    ],
)
def test_f1_output_that_cannot_be_is_refused_before_any_work(place, words, run, ab, tmp_path):
    (tmp_path / "a-file").write_text("a file")
    result = run(ab | {"output.file": place.format(folder=tmp_path)}, ranks=2, expect=None)
    result.path = Path()
    refusal(result, *words)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ".deck"]


def test_existing_results_are_refused_and_kept_or_replaced_when_asked(run, ab, tmp_path):
    output = tmp_path / "results.h5"
    output.write_bytes(b"older")
    deck = ab | {"output.file": output}
    refused = run(deck, ranks=2, expect=None)
    refused.path = Path()
    refusal(refused, str(output), "output.existing = replace")
    assert output.read_bytes() == b"older" and not refused.part_left()
    result = run(deck | {"output.existing": "replace"}, ranks=2)
    assert result.attribute("complete", "/") == 1 and not result.part_left()
    assert "replaced" in result.key("output.existing")["observed"]


def test_left_over_part_is_replaced_and_told(run, ab, tmp_path):
    (tmp_path / "results.h5.part").write_bytes(b"a run that did not end")
    result = run(ab | {"output.file": tmp_path / "results.h5"}, ranks=2)
    assert result.stdout.count("results.h5.part, left by a run that did not end, was replaced") >= 1
    assert result.attribute("complete", "/") == 1


# Ways to name an input as an output; {part} stands for weights that lie where results are
# collected.
OVERWRITES = {
    "weights": "--output.file=w.h5",
    "tokens": "--output.file=ab.h5",
    "weights_by_another_spelling": "--output.file=./w.h5",
    "weights_by_their_whole_path": "--output.file={folder}/w.h5",
    "weights_through_a_linked_folder": "--output.file=linked/w.h5",
    "log_over_weights": "--output.log=w.h5",
    "log_over_tokens_by_another_spelling": "--output.log=./ab.h5",
    "log_over_results": "--output.log=out.h5",
    "log_over_results_by_another_spelling": "--output.log=./out.h5",
    "log_over_the_stop_file": "--output.log=./out.h5.stop",
    "log_over_the_deck": "--output.log=the.deck",
    "results_over_the_deck": "--output.file=the.deck",
    "part_over_weights": "--output.file=out.h5 --model.weights=out.h5.part",
}


@pytest.mark.parametrize("case", OVERWRITES)
def test_output_that_would_overwrite_an_input_is_refused(case, run, tmp_path):
    fixtures.bigram(tmp_path / "w.h5")
    fixtures.bigram(tmp_path / "out.h5.part")
    fixtures.write_tokens(tmp_path / "ab.h5", [fixtures.A, fixtures.B])
    (tmp_path / "linked").symlink_to(tmp_path)
    (tmp_path / "the.deck").write_text(
        "[job]\nname = score\n[model]\nweights = w.h5\n[data]\ntokens = ab.h5\n"
        "[output]\nfile = out.h5\nexisting = replace\n"
    )
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    result = run.words(["the.deck", *OVERWRITES[case].format(folder=tmp_path).split()])
    after = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert [path.name for path in before if after.get(path) != before[path]] == []
    assert result.code == 2 and len(lines(result.stderr)) == 1, result.stderr
    assert after == before


def test_variable_that_is_not_set_is_refused_by_its_name(run, ab):
    deck = ab | {"output.file": "${FIELD_RESULTS}/out.h5"}
    result = run(deck, ranks=2, env={"FIELD_RESULTS": None}, expect=None)
    refusal(result, "FIELD_RESULTS", "not set", "output.file", f"{result.deck}:")


def test_variable_is_expanded_and_both_texts_are_recorded(run, ab, tmp_path):
    (tmp_path / "runs").mkdir()
    deck = ab | {"output.file": "${FIELD_RESULTS}/out.h5"}
    result = run(deck, ranks=2, env={"FIELD_RESULTS": str(tmp_path / "runs")})
    result.path = tmp_path / "runs" / "out.h5"
    assert "${FIELD_RESULTS}/out.h5" in result.read("/provenance/deck_text")
    effective = result.read("/provenance/deck_effective")
    assert f"file = {tmp_path}/runs/out.h5" in effective
    assert result.key("output.file")["observed"] == str(result.path)


def test_paths_are_relative_to_the_working_directory(run, ab, tmp_path):
    (tmp_path / "decks").mkdir()
    first = run(ab | {"output.file": "here.h5"}, ranks=0)
    elsewhere = first.deck.rename(tmp_path / "decks" / "moved.deck")
    (tmp_path / "here.h5").unlink()
    assert run.words([elsewhere]).code == 0
    assert (tmp_path / "here.h5").exists() and not (tmp_path / "decks" / "here.h5").exists()


# Files that are shared.


@pytest.fixture(scope="module")
def fault_library(tmp_path_factory) -> Path:
    """The library of faults."""
    return faults.library(tmp_path_factory.mktemp("library"))


def test_f1_file_system_without_locks_is_explained_and_can_be_overruled(run, ab, fault_library):
    fault = {"LD_PRELOAD": str(fault_library), "FAULT": "no-locks", "FAULT_AT": str(errno.ENOLCK)}
    result = run(ab, ranks=2, env=fault, expect=None)
    words = (str(ab["model.weights"]), "HDF5_USE_FILE_LOCKING=FALSE", f"errno = {errno.ENOLCK}")
    refusal(result, *words, "No locks available", lines_said=None)
    overruled = run(ab, ranks=2, env=fault | {"HDF5_USE_FILE_LOCKING": "FALSE"})
    assert overruled.attribute("scored_tokens") == 4
    recorded = overruled.rows("/provenance/environment", "name")
    assert recorded["HDF5_USE_FILE_LOCKING"]["value"] == "FALSE"


def test_f1_file_system_that_knows_no_locks_is_explained_or_read(run, ab, fault_library):
    fault = {"LD_PRELOAD": str(fault_library), "FAULT": "no-locks", "FAULT_AT": str(errno.ENOSYS)}
    result = run(ab, ranks=0, env=fault, expect=None)  # HDF5 may be built to go on without.
    if result.code == 0:
        assert result.attribute("scored_tokens") == 4
    else:
        refusal(result, str(ab["model.weights"]), "HDF5_USE_FILE_LOCKING=FALSE", lines_said=None)


def test_f1_two_jobs_read_the_same_weights_at_once(ab, tmp_path):
    results = {}

    def score(name: str) -> None:
        (tmp_path / name).mkdir()
        results[name] = Foregather(tmp_path / name)(ab | {"comm.link_rate": "0.01 MB/s"}, ranks=2)

    threads = [threading.Thread(target=score, args=(name,)) for name in ("one", "two")]
    with h5py.File(ab["model.weights"]):  # And so does a reader that is no job.
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results["one"].score_bytes() == results["two"].score_bytes()


def test_f1_weights_that_nobody_may_write_to_are_read(run, ab, tmp_path):
    weights = fixtures.bigram(tmp_path / "w.h5")
    weights.chmod(0o444)
    before = weights.stat().st_mtime_ns
    assert run(ab | {"model.weights": weights}, ranks=2).attribute("scored_tokens") == 4
    assert weights.stat().st_mtime_ns == before


def test_f1_weights_that_another_job_writes_are_refused(run, ab, tmp_path):
    weights = fixtures.bigram(tmp_path / "w.h5")
    with h5py.File(weights, "r+"):
        result = run(ab | {"model.weights": weights}, ranks=2, expect=None)
    refusal(result, str(weights), "another job", lines_said=None)


def test_f1_file_that_was_cut_off_is_refused(run, ab, tmp_path):
    weights = fixtures.random_llama(tmp_path / "w.h5", vocab_size=512, hidden_size=64)
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    result = run(ab | {"model.weights": weights}, ranks=2, expect=None)
    refusal(result, str(weights), lines_said=None)


# Every job, and what of these it has of its own.


@pytest.fixture
def crowd(bigram, tmp_path) -> dict[str, dict]:
    """The ordinary deck of each job in a folder with links, somebody's file and inputs to hit."""
    fixtures.bigram(tmp_path / "w.h5")
    fixtures.write_tokens(tmp_path / "t.h5", [fixtures.A, fixtures.B])
    (tmp_path / "theirs.h5").write_bytes(b"somebody's")
    (tmp_path / "link.h5").symlink_to("theirs.h5")
    (tmp_path / "dangling.h5").symlink_to("nowhere.h5")
    (tmp_path / "out.h5.part").symlink_to("theirs.h5")
    (tmp_path / "closed").mkdir(mode=0o500)
    (tmp_path / "secret.h5").write_bytes((tmp_path / "w.h5").read_bytes())
    (tmp_path / "secret.h5").chmod(0)
    files = {"model.weights": "w.h5", "data.tokens": "t.h5"}
    machine = ROOT / "inputs/machines/two-cores.deck"
    (tmp_path / "machine").write_bytes(machine.read_bytes())
    decks = {
        "score": files,
        "train": training_deck(Path("w.h5"), Path("t.h5")),
        "bench": files | {"bench.pairs": 3, "bench.tokens": 4},
        "plan": {"plan.model": "w.h5", "plan.ranks": 2, "plan.tokens": 8, "plan.machine": machine},
    }
    replace = {"output.existing": "replace"}
    return {job: {"job.name": job, "output.file": "new.h5"} | replace | decks[job] for job in decks}


UNUSABLE = {
    **{
        f"{job}_{name}": (job, {"output.file": f"{name}.h5"}, ("symbolic link", name))
        for job in ("score", "train", "bench", "plan")
        for name in ("link", "dangling")
    },
    "part_that_is_a_link": ("score", {"output.file": "out.h5"}, ("out.h5.part", "symbolic link")),
    "bench_over_weights": ("bench", {"output.file": "w.h5"}, ("model.weights",)),
    "train_over_evaluation": (
        "train",
        {"train.evaluate": "theirs.h5", "output.file": "theirs.h5"},
        ("train.evaluate",),
    ),
    "plan_over_its_model": ("plan", {"output.file": "./w.h5"}, ("plan.model", "same file")),
    "plan_log_over_its_machine": (
        "plan",
        {"plan.machine": "machine", "output.log": "./machine"},
        ("plan.machine", "same file"),
    ),
    "plan_over_what_was_measured": (
        "plan",
        {"plan.measured": "theirs.h5", "plan.machine": "", "output.file": "./theirs.h5"},
        ("plan.measured", "same file"),
    ),
    "checkpoints_in_a_folder_of_the_results_name": (
        "train",
        {"checkpoint.directory": "new.h5"},
        ("checkpoint.directory", "new.h5"),
    ),
    "checkpoints_in_weights": ("train", {"checkpoint.directory": "w.h5"}, ("w.h5",)),
    "log_that_is_a_folder": ("score", {"output.log": "closed"}, ("closed", "output.log")),
}


def left_of(folder: Path) -> dict[str, bytes | str]:
    """What lies there but decks: contents, and where links point."""
    return {
        path.name: path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in folder.iterdir()
        if path.suffix != ".deck"
    }


@pytest.mark.parametrize("case", UNUSABLE)
def test_output_that_is_a_link_or_hits_an_input_is_refused_by_each_job(case, crowd, run, tmp_path):
    job, changes, words = UNUSABLE[case]
    before = left_of(tmp_path)
    result = run(crowd[job] | changes, ranks=0, expect=None)
    result.path = Path()
    refusal(result, *words)
    assert left_of(tmp_path) == before


FORBIDDEN = {
    "results": ("score", {"output.file": "closed/new.h5"}, ("closed/new.h5.part",)),
    "log": ("score", {"output.log": "closed/log"}, ("closed/log", "output.log")),
    "plan": ("plan", {"output.file": "closed/new.h5"}, ("closed/new.h5.part",)),
    "checkpoints": ("train", {"checkpoint.directory": "closed"}, ("folder closed",)),
    "weights": ("score", {"model.weights": "secret.h5"}, ("secret.h5", "weights file")),
    "tokens": ("score", {"data.tokens": "secret.h5"}, ("secret.h5", "token file")),
}
# Root may do anything, unless it gives that up.
MORTAL = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if not os.geteuid() else []


@pytest.mark.parametrize("case", FORBIDDEN)
def test_what_permissions_forbid_is_refused_with_the_reason(case, crowd, tmp_path):
    job, changes, words = FORBIDDEN[case]
    probe = subprocess.run([*MORTAL, "cat", tmp_path / "secret.h5"], capture_output=True)
    if probe.returncode == 0 or b"Permission denied" not in probe.stderr:
        pytest.skip("root's rights cannot be given up here (setpriv)")
    run = Foregather(tmp_path, launcher=lambda ranks: MORTAL)
    before = sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".deck")
    result = run(crowd[job] | changes, ranks=1, expect=None)
    result.path = Path()
    message = refusal(result, *words, "Permission denied")
    assert "HDF5" not in message
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".deck") == before


# Long texts.


def test_f6_deck_of_80_kb_and_5000_named_documents_are_stored_whole(run, bigram, tmp_path):
    names = np.array(
        [f"document {i} of a set with long names {'x' * 40}" for i in range(5000)], "S"
    )
    documents = [fixtures.A, fixtures.B] * 2500
    tokens = fixtures.write_tokens(tmp_path / "t.h5", documents, id=names)
    comments = "".join(f"# {i}: a remark that explains nothing at all\n" for i in range(2000))
    deck = (
        f"[job]\nname = score\n[model]\nweights = {bigram}/w.h5\n[data]\ntokens = {tokens}\n"
        f"{comments}[output]\nfile = {tmp_path}/out.h5\n"
    )
    assert len(deck) > 80_000
    result = run(deck, ranks=3)
    with h5py.File(result.path) as file:
        assert file["provenance/deck_text"][()].rstrip(b"\0") == deck.encode()
        assert (file["score/id"][()] == names).all()
        assert len(file["score/document_nll"]) == 5000
    assert result.attribute("perplexity") == pytest.approx(2**1.5, rel=1e-6)


def test_f6_title_and_deck_in_any_script_are_kept(run, ab):
    title = "Wörter, 単語, слова"
    result = run(ab | {"job.title": title}, ranks=0)
    assert result.attribute("title", "/") == title
    assert title in result.read("/provenance/deck_text")
