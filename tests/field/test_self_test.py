# SPDX-License-Identifier: Apache-2.0
"""`foregather --self-test` passes on an installation that works, says what is wrong with one that
does not, and leaves nothing behind.

Decides what is made to fail; what each check compares is its own.
"""

from pathlib import Path

import pytest
from faults import library
from run_foregather import Foregather, Result, launcher_words

CHECKS = ["folder", "MPI", "HDF5", *(f"products {n}" for n in ("openblas", "onednn", "blis"))]
KNOWN = "perplexity 2.8284271 of 4 tokens, equal bits at prefetch depths 0 and 1"


def told(result: Result) -> dict[str, tuple[str, str]]:
    """Of each check whether it passed, and what was found."""
    found = {}
    for line in result.stdout.splitlines():
        if line.startswith(("ok ", "FAIL ")):
            word, rest = line.split(None, 1)
            name, _, what = rest.partition(": ")
            assert name not in found
            found[name] = (word, what)
    return found


@pytest.fixture
def tmpdir(tmp_path) -> Path:
    """Where the program makes its temporary folder."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("ranks, transports", [(0, ["auto"]), (3, ["mpi", "shared"])])
def test_self_test_passes_and_leaves_nothing(ranks, transports, tmpdir, run):
    result = run.words(["--self-test"], ranks, {"TMPDIR": str(tmpdir)})
    assert result.code == 0, result.stdout + result.stderr
    scored = [f"score {name}" for name in transports]
    found = told(result)
    assert list(found) == [*CHECKS, "kernels", "inputs", *scored]
    assert {word for word, _ in found.values()} == {"ok"}
    assert all(found[name][1] == KNOWN for name in scored)
    last = result.stdout.splitlines()[-1]
    assert last.startswith(f"self-test: {len(found)} checks, 0 failed, on {max(ranks, 1)} rank")
    assert result.seconds < 10
    assert not list(tmpdir.iterdir()) and list(tmpdir.parent.iterdir()) == [tmpdir]


@pytest.mark.parametrize("place", ["/absent", "/proc"])
def test_self_test_without_a_folder_says_so_and_ends(place, tmp_path):
    def launch(ranks: int) -> list[str]:  # The launcher has a folder of its own there.
        return [*launcher_words(ranks), "env", f"TMPDIR={place}"]

    result = Foregather(tmp_path, launch).words(["--self-test"], 2)
    assert result.code == 1
    assert told(result).keys() == {"folder"}
    word, what = told(result)["folder"]
    assert word == "FAIL" and place in what and "set TMPDIR to a folder" in what
    assert result.stdout.splitlines()[-1] == "self-test: 1 checks, 1 failed, on 2 ranks"


def test_self_test_names_the_rank_that_cannot_write_and_ends(tmpdir, run):
    library(tmpdir.parent)
    fault = {"LD_PRELOAD": str(tmpdir.parent / "faults.so"), "FAULT": "disk-full"}
    env = fault | {"FAULT_RANK": "1", "TMPDIR": str(tmpdir)}
    result = run.words(["--self-test"], 2, env, timeout=20)
    assert result.code == 1
    word, what = told(result)["score mpi"]
    assert word == "FAIL" and "rank 1" in what and "the file system may be full" in what
    assert not [path for path in tmpdir.rglob("*") if path.suffix in (".h5", ".part")]
