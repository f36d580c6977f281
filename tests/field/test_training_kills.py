# SPDX-License-Identifier: Apache-2.0
"""Training that dies in a save goes on from the newest complete checkpoint to the same bits (T19).

Decides at which writes ranks die and what is left lying about; faults.py makes the faults. KILLS in
the environment is how many moments are tried (5), KILLS_SEED which ones; -s shows what each tore.
"""

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import fixtures
import h5py
import numpy as np
import pytest
from faults import library
from run_foregather import Foregather, Result
from said import messages
from training import deck, notes, state, step_file, steps_in

KILLS = int(os.environ.get("KILLS", "5"))
MOMENTS = random.Random(int(os.environ.get("KILLS_SEED", "1")))
STEPS, EVERY, RANKS = 6, 2, 2


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A model, documents and the library of faults."""
    folder = tmp_path_factory.mktemp("inputs")
    shape = {"hidden_size": 24, "intermediate_size": 51, "vocab_size": 97, "head_dim": 12}
    fixtures.random_llama(folder / "w.h5", **shape)
    fixtures.random_documents(folder / "t.h5", 97, [40, 7, 33, 2, 64, 16, 55])
    library(folder)
    return folder


@pytest.fixture(scope="module")
def asked(inputs) -> dict:
    """Six steps, a checkpoint after every second."""
    changes = {"train.steps": STEPS, "train.batch_documents": 2, "checkpoint.every": EVERY}
    return deck(inputs / "w.h5", inputs / "t.h5", train__shuffle=True) | changes


def fault(inputs: Path, name: str, rank: int, at: int = 0, file: str = "step-") -> dict[str, str]:
    """The environment of a fault in writes of checkpoints."""
    preload = {"LD_PRELOAD": str(inputs / "faults.so"), "FAULT_FILE": file}
    return preload | {"FAULT": name, "FAULT_RANK": str(rank), "FAULT_AT": str(at)}


@pytest.fixture(scope="module")
def unbroken(asked, tmp_path_factory) -> Path:
    """The checkpoints of the run that nobody kills."""
    folder = tmp_path_factory.mktemp("unbroken")
    Foregather(folder)(asked | {"checkpoint.directory": folder / "kept"}, RANKS)
    return folder / "kept"


@pytest.fixture(scope="module")
def writes(asked, inputs, tmp_path_factory) -> list[int]:
    """How often each rank writes to checkpoints in such a run."""
    counts = []
    for rank in range(RANKS):
        folder = tmp_path_factory.mktemp("counted")
        env = fault(inputs, "count-writes", rank)
        done = Foregather(folder)(asked | {"checkpoint.directory": folder / "kept"}, RANKS, env=env)
        (said,) = re.findall(r"^writes (\d+)$", done.stderr, re.MULTILINE)
        counts.append(int(said))
    return counts


def whole_ones(folder: Path) -> list[int]:
    """The steps of checkpoints under their final names, each of which must be whole."""
    steps = []
    for path in sorted(folder.glob("step-*.h5")):
        with h5py.File(path) as file:
            assert file.attrs["complete"] == 1 and file["train/step"][()].size
        steps.append(int(path.stem.removeprefix("step-")))
    return steps


def goes_on(asked: dict, folder: Path, run: Foregather, unbroken: Path) -> Result:
    """Starts the same deck again, which must end as the unbroken run did."""
    result = run(asked | {"checkpoint.directory": folder, "output.existing": "replace"}, RANKS)
    assert state(step_file(folder, STEPS)) == state(step_file(unbroken, STEPS))
    assert steps_in(folder)[-1] == STEPS  # And no unfinished one is left.
    return result


@pytest.fixture(scope="module")
def torn() -> list[str]:
    """The unfinished checkpoint that each kill left."""
    return []


@pytest.mark.parametrize("kill", range(KILLS))
def test_t19_killed_in_a_save_it_goes_on_from_the_newest_whole_one(
    kill, asked, inputs, writes, unbroken, run, tmp_path, torn
):
    rank = MOMENTS.randrange(RANKS)
    at = MOMENTS.randint(1, writes[rank])
    kept = tmp_path / "kept"
    own = asked | {"checkpoint.directory": kept, "output.flush_every": 0.001}
    killed = run(own, RANKS, env=fault(inputs, "tear-write", rank, at), expect=None)
    assert killed.code != 0 and not killed.path.exists(), (rank, at)
    with h5py.File(f"{killed.path}.part") as file:
        rows = file["train/step"][()]
        assert np.isfinite(file["train/loss"][()][rows > 0]).all()
    whole = whole_ones(kept)
    assert whole in ([], [2], [2, 4]), (rank, at)
    parts = list(kept.glob("*.part"))
    torn += [
        f"rank {rank} in its write {at} of {writes[rank]}: {part.name} of {part.stat().st_size} B"
        for part in parts
    ]
    result = goes_on(asked, kept, run, unbroken)
    told = notes(result)
    if whole:
        assert f"training goes on from {step_file(kept, whole[-1])}" in told, (rank, at)
    else:
        assert f"no complete checkpoint in {kept}: training starts anew" in told, (rank, at)
    assert [note for note in told if note.startswith("skipped ")] == [
        f"skipped {part}: not complete: its save was interrupted, or is under way" for part in parts
    ]


def test_t19_every_kill_was_in_the_middle_of_a_write(torn):
    print("", *torn, f"{len(torn)} of {KILLS} kills tore a save", sep="\n")
    assert len(torn) == KILLS


def test_g1_f4_complete_mark_without_the_name_is_no_checkpoint(
    asked, inputs, unbroken, run, tmp_path
):
    kept = tmp_path / "kept"
    env = fault(inputs, "die-in-flush", 0, 2, "step-00000004")  # The last act before its name.
    own = asked | {"checkpoint.directory": kept}
    killed = run(own, RANKS, env=env, expect=None)
    (part,) = kept.glob("*.part")
    with h5py.File(part) as file:
        assert file.attrs["complete"] == 1
    assert killed.code != 0 and whole_ones(kept) == [2]
    tool = shutil.which("h5dump")
    assert tool, "h5dump is not installed"
    first = step_file(kept, 2)
    subprocess.run([tool, "-d", "/train/step", first], check=True, stdout=subprocess.DEVNULL)
    assert f"training goes on from {first}" in notes(goes_on(asked, kept, run, unbroken))


def test_t19_what_is_broken_is_skipped_and_told_with_the_reason(asked, unbroken, run, tmp_path):
    kept = tmp_path / "kept"
    shutil.copytree(unbroken, kept)
    newest, middle = step_file(kept, 6), step_file(kept, 4)
    content = newest.read_bytes()
    newest.write_bytes(content[: len(content) * 2 // 3])
    with h5py.File(middle, "a") as file:
        file.attrs["complete"] = np.int64(0)
    higher = kept / "step-00000008.h5.part"
    higher.write_bytes(content)
    told = notes(goes_on(asked, kept, run, unbroken))
    assert told[0] == f"training goes on from {step_file(kept, 2)}"
    skipped = dict(note.split(": ", 1) for note in told if note.startswith("skipped "))
    assert skipped.keys() == {f"skipped {path}" for path in (higher, newest, middle)}
    assert "not complete" in skipped[f"skipped {higher}"]
    assert "complete" in skipped[f"skipped {middle}"]
    assert "truncated" in skipped[f"skipped {newest}"]
    assert whole_ones(kept) == [2, 4, 6] and not higher.exists()


@pytest.mark.parametrize("rank", range(RANKS))
def test_disk_full_in_a_save_leaves_the_checkpoint_before_and_says_so(
    rank, asked, inputs, unbroken, run, tmp_path
):
    kept = tmp_path / "kept"
    env = fault(inputs, "disk-full", rank, file="step-00000004")
    failed = run(asked | {"checkpoint.directory": kept}, RANKS, env=env, expect=1)
    (said,) = messages(failed.stderr)
    broken, before = step_file(kept, 4), step_file(kept, 2)
    assert f"checkpoint {broken} " in said
    assert rank == 0 or f"rank {rank} " in said
    assert f"the last complete one is {before}" in said
    assert "full" in said or "No space" in said
    assert steps_in(kept) == [2]
    assert f"training goes on from {before}" in notes(goes_on(asked, kept, run, unbroken))


def test_disk_full_before_the_first_step_is_one_message(asked, inputs, run, tmp_path):
    env = fault(inputs, "disk-full", 0, file=".h5.part")
    failed = run(asked | {"checkpoint.directory": tmp_path / "kept"}, RANKS, env=env, expect=1)
    said, *more = messages(failed.stderr)
    assert not more and "full" in said, failed.stderr
    assert steps_in(tmp_path / "kept") == [] and not failed.path.exists()
