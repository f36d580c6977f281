# SPDX-License-Identifier: Apache-2.0
"""A toolkit that lacks a header is named in the build's last line, and stops a build that asks for
CUDA.

Decides what is missing from a toolkit that is none; what a whole one builds is tested elsewhere.
"""

import os
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

HEADERS = ("cublasLt.h", "nvtx3/nvToolsExt.h", "nccl.h")


def make(toolkit: Path, *words: str) -> subprocess.CompletedProcess:
    """What make says with this toolkit."""
    settings = [f"CUDA_HOME={toolkit}", f"NCCL_HOME={toolkit}"]
    command = ["make", *settings, *words]
    # What the make around the tests was told is not told to this one.
    told = ("MAKE", "CUDA", "NCCL")
    env = {name: value for name, value in os.environ.items() if not any(t in name for t in told)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def toolkit(tmp_path) -> Path:
    """A folder with the names of a toolkit's files, and nothing in them."""
    for name in ("bin/nvcc", *(f"include/{header}" for header in HEADERS)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("char* commName;\n")
    (tmp_path / "bin/nvcc").chmod(0o755)
    return tmp_path


def test_toolkit_with_all_headers_is_taken(toolkit):
    assert "host and cuda backends" in make(toolkit, "print-cuda_told").stdout


@pytest.mark.parametrize("header", HEADERS[:2])
def test_missing_header_is_named(toolkit, header):
    (toolkit / "include" / header).unlink()
    told = make(toolkit, "print-cuda_told").stdout
    assert f"host backend only: not found: {header} " in told
    stopped = make(toolkit, "CUDA=1", "all")
    assert stopped.returncode != 0 and f"CUDA=1, but not found: {header}." in stopped.stderr
