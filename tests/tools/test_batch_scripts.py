# SPDX-License-Identifier: Apache-2.0
"""What the scripts of jobs/ do where a batch system answers otherwise than a real one does here.

Decides with stand-ins for squeue and for the program; a real Slurm is tried in tests/slurm.
"""

import os
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from conftest import ROOT


@pytest.fixture
def project(tmp_path) -> Path:
    """A folder with jobs/, and a program that prints the deck and the end that it is told."""
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    program = tmp_path / "foregather"
    program.write_text('#!/bin/sh\necho "ends ${SLURM_JOB_END_TIME-unset}; $*"\n')
    program.chmod(0o755)
    return tmp_path


def stand_in(folder: Path, name: str, script: str) -> dict[str, str]:
    """An environment in which a command is this script."""
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}


@pytest.mark.parametrize("given", ["", None], ids=["empty", "unset"])
@pytest.mark.parametrize("answer", ["exit 1", "true", "echo N/A"])
def test_end_that_slurm_does_not_tell_is_told_as_unknown(answer, given, project):
    env = stand_in(project, "squeue", answer) | ({} if given is None else {"SLURM_JOB_END_TIME": given})
    words = ["bash", "-eu", "-c", ". jobs/launch.sh; check 2 2 a.deck"]
    done = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, check=True)
    assert "the end of the job is not known (squeue: '" in done.stdout
    assert "set job.max_time" in done.stdout
    assert "ends unset; --check a.deck --ranks 2 --ranks-per-node 2" in done.stdout


def test_end_that_slurm_tells_is_passed_on(project):
    env = stand_in(project, "squeue", "echo 2031-02-03T04:05:06")
    words = ["bash", "-eu", "-c", ". jobs/launch.sh; check 2 2 a.deck"]
    done = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, check=True)
    end = int(datetime(2031, 2, 3, 4, 5, 6).timestamp())
    assert f"ends {end}; " in done.stdout and "not known" not in done.stdout


@pytest.mark.parametrize("deck", ["mine here.deck", "inputs/tiny.deck"])
def test_local_script_finds_a_deck_of_the_callers_folder_and_of_the_project(deck, project, tmp_path):
    env = stand_in(project, "mpirun", 'shift 5; exec "$@"')
    there = tmp_path / "elsewhere"
    there.mkdir()
    (there / "mine here.deck").touch()
    copied = project / "own"
    copied.mkdir()
    (copied / "jobs").mkdir()
    (copied / "jobs/local.sh").write_bytes((ROOT / "jobs/local.sh").read_bytes())
    (copied / "foregather").write_bytes((project / "foregather").read_bytes())
    (copied / "foregather").chmod(0o755)
    words = ["bash", str(copied / "jobs/local.sh"), deck, "2", "--batch.tokens=8"]
    done = subprocess.run(words, cwd=there, env=env, capture_output=True, text=True, check=True)
    found = there / deck if deck.startswith("mine") else deck
    assert f"; {found} --batch.tokens=8" in done.stdout
