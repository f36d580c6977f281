# SPDX-License-Identifier: Apache-2.0
"""The scripts in tools/ start, explain themselves, and say what to do where Python packages are
missing.

Decides how a tool behaves as a command; what it makes is tested elsewhere.
"""

import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT, start

TOOLS = (
    "import_model",
    "export_model",
    "tokenize",
    "compare",
    "timeline",
    "loss_curve",
    "scaling",
    "score_requests",
)


@pytest.mark.parametrize("name", TOOLS)
def test_help_ends_with_status_0_and_names_the_statuses(name):
    process = start(name, "--help")
    out, err = process.communicate()
    assert process.returncode == 0 and err == "" and "Exit status: 0 done" in " ".join(out.split())


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("words", [(), ("--unknown", "a", "b"), ("a", "b", "--repl")])
def test_wrong_words_end_with_status_2(name, words):
    process = start(name, *words)
    _, err = process.communicate()
    assert process.returncode == 2 and "usage:" in err


@pytest.mark.parametrize("name", TOOLS)
def test_tool_is_executable_from_any_folder(name, tmp_path):
    path = ROOT / "tools" / name
    assert os.access(path, os.X_OK) and path.read_text().startswith("#!/usr/bin/env python3\n")
    done = subprocess.run([sys.executable, path, "--help"], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0


@pytest.mark.parametrize("name", TOOLS)
def test_missing_packages_are_named_with_the_remedy(name, tmp_path):
    # A copy of the tools has no environment beside it, and -S hides the packages of this one.
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    command = [sys.executable, "-S", tmp_path / "tools" / name, "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "make deps" in done.stderr and "is not installed" in done.stderr
    assert "Traceback" not in done.stderr


def test_projects_own_environment_is_used_where_packages_are_missing(tmp_path):
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\necho "environment: $@"\n')
    python.chmod(0o755)
    command = [sys.executable, "-S", tmp_path / "tools" / "tokenize", "some words", "--ids"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout == f"environment: {tmp_path / 'tools' / 'tokenize'} some words --ids\n"
