# SPDX-License-Identifier: Apache-2.0
"""bench refuses what no run could be made with, before it starts one.

Decides which inputs are refused; what it measures is nothing that a test could fix.
"""

import fixtures
import pytest
from conftest import ROOT  # noqa: F401 - puts tools/ on the path
from results_files import write_results


@pytest.fixture
def measure(tool, tmp_path):
    """measure(words, **paths) calls the tool with a program that never ends well, and tells
    whether it was started.
    """
    weights, tokens = tmp_path / "w.h5", tmp_path / "t.h5"
    fixtures.bigram(weights)
    fixtures.write_tokens(tokens, [[0, 1, 2]])
    started = tmp_path / "started"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {started}\nexit 3\n")
    program.chmod(0o755)

    def call(*words, weights=weights, tokens=tokens):
        begin = ("--program", program, "--mpirun", f"sh {program}", "--parts", "curve")
        return tool("bench", weights, tokens, *begin, *words), started.exists()

    return call


@pytest.mark.parametrize("option", ["--repeat", "--ranks", "--documents"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_counts_below_one_are_refused(measure, option, value):
    said, started = measure(f"{option}={value}")
    assert said.status == 2 and not started and said.out == ""
    assert said.err == f"bench: refused: {option} {value}: give 1 or more\n"


@pytest.mark.parametrize("which", ["weights", "tokens"])
@pytest.mark.parametrize("kind", ["absent", "no HDF5", "results"])
def test_files_that_are_not_what_they_should_be_are_refused(measure, tmp_path, which, kind):
    path = tmp_path / "other.h5"
    if kind == "no HDF5":
        path.write_bytes(b"no HDF5")
    elif kind == "results":
        write_results(path)
    what = {"weights": "is no weights file", "tokens": "is no token file"}[which]
    message = {"absent": "does not exist", "no HDF5": "cannot be read as HDF5"}.get(kind, what)
    said, started = measure(**{which: path})
    assert said.status == 2 and not started and said.out == ""
    assert f"{path} {message}" in said.err and said.err.count("\n") == 1


def test_good_inputs_are_run_and_a_failed_run_is_status_1(measure):
    said, started = measure()
    assert said.status == 1 and started and "ended with 3" in said.err
