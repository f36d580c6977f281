# SPDX-License-Identifier: Apache-2.0
"""`make install` puts everything that a user needs below PREFIX, and it works from there.

Decides what is looked for; the program that is installed is the one that was built before.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """PREFIX of an installation."""
    folder = tmp_path_factory.mktemp("installed")
    words = [f"DESTDIR={folder}", "PREFIX=/opt/of all/foregather"]
    subprocess.run(["make", "install", *words], cwd=ROOT, capture_output=True, check=True)
    return folder / "opt/of all/foregather"


def said(*command: object, at: Path) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        [str(word) for word in command], cwd=at, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_program_decks_and_tools_run_from_there(installed):
    share = installed / "share/foregather"
    assert said(installed / "bin/foregather", "--version", at=share).startswith("foregather")
    plan = said("./foregather", "--check", "inputs/plan.deck", "--ranks", "1", at=share)
    assert "llama-3.1-70b.json" in plan
    assert "usage: " in said(sys.executable, "tools/timeline", "--help", at=share)
    assert said("bash", "-n", "jobs/score.sbatch", at=share) == ""


def test_installation_passes_its_self_test(installed, tmp_path):
    found = said(installed / "bin/foregather", "--self-test", at=tmp_path)
    assert " 0 failed, on 1 rank" in found.splitlines()[-1] and "FAIL" not in found
    assert not list(tmp_path.iterdir())


def test_manual_page_has_every_key(installed):
    page = (installed / "share/man/man1/foregather.1").read_text().replace("\\-", "-")
    assert page.startswith(".TH FOREGATHER 1 ")
    reference = said(installed / "bin/foregather", "--help", at=installed)
    for line in reference.splitlines():
        assert line.replace("\\", "\\e") in page
    assert "\nfsdp.forward_prefetch\n" in page


def test_nothing_of_the_build_or_of_its_tests_goes_there(installed):
    left = {path.name for path in (installed / "share/foregather").rglob("*")}
    assert not left & {"__pycache__", "peers", "tests", "build"}
