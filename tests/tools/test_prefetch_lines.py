# SPDX-License-Identifier: Apache-2.0
"""prefetch_lines shows the figures of results files as they stand there, and refuses other files.

Decides the figures; the real files are made and shown by `make run`.
"""

import h5py
import numpy as np
import pytest
from conftest import ROOT  # noqa: F401 - puts tools/ on the path
from foregather_tools import prefetch_lines


def results(path, *, depth, exposed, overlapped, speed, tokens=(100, 60), rate=1.25e8, complete=1):
    """A results file with what the tool reads."""
    with h5py.File(path, "w") as file:
        file.attrs["complete"] = complete
        columns = {
            "direction": np.array([b"forward"]),
            "requested": [depth],
            "exposed_s": [exposed],
            "overlapped_s": [overlapped],
            "issued_ahead": [depth],
            "begun_ahead": [float(depth)],
            "verdict": np.array([b"observed"]),
        }
        for name, values in columns.items():
            file[f"timing/prefetch/{name}"] = values
        phases = file.create_group("timing/phases")
        phases.attrs["tokens_per_second"] = speed
        phases.attrs["link_rate_emulated"] = rate
        file["timing/ranks/tokens"] = tokens
    return str(path)


def test_a_line_for_each_file_with_the_first_as_measure(tmp_path, capsys):
    files = [
        results(tmp_path / "a.h5", depth=0, exposed=19.68812, overlapped=0, speed=40.0),
        results(tmp_path / "b.h5", depth=1, exposed=5.5, overlapped=16.04449, speed=64.0),
    ]
    assert prefetch_lines.main(files) == 0
    head, first, second, *notes = capsys.readouterr().out.splitlines()
    assert first.split() == [
        "0",
        "19.688",
        "0.000",
        "0",
        "0",
        "observed",
        "40.0",
        "1.000",
        "x",
        files[0],
    ]
    assert second.split() == [
        "1",
        "5.500",
        "16.044",
        "1",
        "1",
        "observed",
        "64.0",
        "0.625",
        "x",
        files[1],
    ]
    assert len({line.index(str(tmp_path)) for line in (first, second)}) == 1
    assert head.index("file") == first.index(str(tmp_path))
    assert notes[-1] == "The link was EMULATED at 1 Gb/s; these are not this machine's times."


def test_runs_over_other_tokens_are_not_compared(tmp_path, capsys):
    files = [
        results(tmp_path / "a.h5", depth=0, exposed=1, overlapped=0, speed=40.0, rate=0),
        results(
            tmp_path / "b.h5", depth=1, exposed=1, overlapped=1, speed=64.0, rate=0, tokens=(9, 9)
        ),
    ]
    assert prefetch_lines.main(files) == 0
    out = capsys.readouterr().out
    assert "other tokens" in out.splitlines()[2] and "EMULATED" not in out


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("absent", "does not exist"),
        ("folder", "is no file"),
        ("no results", "is no results file"),
        ("incomplete", "is no complete results file"),
    ],
)
def test_other_files_are_refused(tmp_path, capsys, fault, message):
    path = tmp_path / "a.h5"
    if fault == "no results":
        with h5py.File(path, "w") as file:
            file.attrs["complete"] = 1
    elif fault == "folder":
        path.mkdir()
    elif fault == "incomplete":
        results(path, depth=0, exposed=1, overlapped=0, speed=1.0, complete=0)
    assert prefetch_lines.main([str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and f"{path} {message}" in said.err
