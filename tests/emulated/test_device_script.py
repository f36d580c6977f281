# SPDX-License-Identifier: Apache-2.0
"""tests/device/run.sh on the doubles: every part that they model runs to its end, the table and the
file say the same, what is left out is told, and no figure can pass for a GPU's.

Decides nothing about speed: shapes are tiny, and nothing here has a GPU.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "device" / "run.sh"
BUILD = Path(os.environ.get("BUILD", "build/release-host")) / "emulated"
TABLES = {
    "golden",
    "products",
    "forward",
    "forward_families",
    "streaming",
    "contention",
    "nccl_setup",
    "nccl_windows",
    "nccl_gathers",
}
# A folder of a virtual environment, as the tests' own Python is of one.
VENV = os.environ.get("VENV", str(Path(sys.executable).parents[1]))


def run(folder: Path, *words: str, **env: str) -> tuple[subprocess.CompletedProcess, Path]:
    """The script with its output in a folder, and its file."""
    output = folder / "device.h5"
    done = subprocess.run(
        [str(SCRIPT), "--tiny", "--output", str(output), *words],
        # What the bench executes is no test of it: its coverage goes elsewhere.
        env=os.environ
        | {"BUILD": str(BUILD), "VENV": VENV, "PYTHON_TORCH": "false"}
        | {"GCOV_PREFIX": str(folder / "gcov")}
        | env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done, output


@pytest.fixture(scope="module")
def tried(tmp_path_factory) -> tuple[str, Path]:
    """What a whole run on two emulated GPUs printed, and its file."""
    done, output = run(tmp_path_factory.mktemp("device"), FOREGATHER_EMULATION_GPUS="2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "emulation: RACE" not in done.stderr, done.stderr
    return done.stdout, output


def notes(path: Path) -> dict[str, list[tuple[str, str]]]:
    """By part: (kind, text)."""
    found: dict[str, list[tuple[str, str]]] = {}
    with h5py.File(path) as file:
        columns = (file[f"notes/{name}"].asstr()[()] for name in ("part", "kind", "text"))
        for part, kind, text in zip(*columns):
            found.setdefault(part, []).append((kind, text))
    return found


def test_every_part_that_can_run_has_its_table_in_the_file_and_in_the_text(tried):
    said, path = tried
    with h5py.File(path) as file:
        assert TABLES | {"provenance", "notes"} == set(file)
        for table in TABLES:
            assert f"---- {table} ----" in said
            lengths = {len(column) for column in file[table].values()}
            assert len(lengths) == 1 and lengths != {0}, table
    assert not path.with_name(path.name + ".part").exists()


def test_columns_of_numbers_have_units_and_numbers(tried):
    with h5py.File(tried[1]) as file:
        for table in TABLES:
            for name, column in file[table].items():
                if h5py.check_string_dtype(column.dtype) is None:
                    assert column.attrs["units"], f"{table}/{name}"
                    if name.endswith(("_s", "tflops")):
                        assert np.all(column[()] >= 0), f"{table}/{name}"
        assert file["products/ours_s"].attrs["units"] == "s"
        assert file["contention/copy_alone_gbytes_per_s"].attrs["units"] == "GB/s"


def test_an_emulation_is_marked_everywhere(tried):
    said, path = tried
    with h5py.File(path) as file:
        assert file.attrs["emulated"] and "nothing about any GPU" in file.attrs["warning"]
        assert all(file[table].attrs["emulated"] for table in TABLES)
        assert file["provenance/gpus"][0] == 2 and file["provenance/cublaslt"].asstr()[0]
        assert all(file.attrs[name] for name in ("date", "revision", "host"))
    assert "*** figures of an emulation" in said


def test_golden_models_pass_within_the_limits_of_their_tests(tried):
    with h5py.File(tried[1]) as file:
        golden = file["golden"]
        assert golden["dtype"].asstr()[()].tolist() == ["fp32", "bf16"]
        assert golden["passed"][()].all()
        assert 0 < golden["largest_difference"][0] <= 5e-5


def test_streamed_layers_are_witnessed_and_gathers_are_of_all_ranks(tried):
    with h5py.File(tried[1]) as file:
        assert file["streaming/depth"][()].tolist() == [0, 1, 2]
        assert set(file["streaming/verdict"].asstr()[()]) <= {"observed", "issued", "not observed"}
        assert "inert" not in set(file["streaming/verdict"].asstr()[()])
        assert (file["streaming/copy_gbytes_per_s"][()] > 0).all()
        assert file["nccl_gathers/ranks"][()].tolist() == [2]
        assert file["forward/logprobs_not_finite"][()].tolist() == [0, 0, 0, 0]


def test_what_is_left_out_is_told_with_its_reason(tried):
    said, path = tried
    told = notes(path)
    assert told["torch"][0][0] == "skipped" and "no PyTorch" in told["torch"][0][1]
    assert told["sanitizer"][0][0] == "skipped"
    assert "skipped  torch: " in said
    assert "failed" not in {kind for part in told.values() for kind, _ in part}


def test_without_a_gpu_every_part_is_skipped(tmp_path):
    done, path = run(tmp_path, FOREGATHER_EMULATION_GPUS="0")
    assert done.returncode == 0, done.stdout + done.stderr
    told = notes(path)
    assert told["provenance"][0][0] == "skipped"
    for part in ("golden", "products", "nccl"):
        assert told[part] == [("skipped", "no GPU can be used")]


def test_a_part_that_fails_keeps_the_others_and_the_status_says_so(tmp_path):
    done, path = run(
        tmp_path,
        "--parts",
        "products contention",
        FOREGATHER_EMULATION_GPUS="1",
        FOREGATHER_EMULATION_FAIL="cublasLtMatmul:3",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    told = notes(path)
    assert {part for part in told if told[part][0][0] == "failed"} == {"products", "contention"}
    assert "cuBLASLt failed to" in told["products"][0][1]


# In place of the bench's part products: a row and a half, and it dies before it can say why.
DYING = """#!/bin/bash
case "$*" in *products*)
    while [ "$1" != --out ]; do shift; done
    echo '{"table": "products", "row": {"model": "m", "dtype": "fp32", "tokens": 1},'\\
        '"part": "products", "emulated": true}' >> "$2"
    printf '{"table": "products", "row": {"mod' >> "$2"
    kill -KILL $$ ;;
esac
exec "$BENCH" "$@"
"""


def test_a_part_that_is_killed_keeps_its_rows_and_is_told(tmp_path):
    (tmp_path / "foregather").symlink_to(ROOT / BUILD / "foregather")
    (tmp_path / "device_bench").write_text(DYING)
    (tmp_path / "device_bench").chmod(0o755)
    done, path = run(
        tmp_path,
        "--parts",
        "products contention",
        FOREGATHER_EMULATION_GPUS="1",
        BUILD=str(tmp_path),
        BENCH=str(ROOT / BUILD / "device_bench"),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert notes(path)["products"] == [("failed", "ended with status 137")]
    assert "half a row" in notes(path)["report"][0][1]
    with h5py.File(path) as file:
        assert file["products/tokens"][()].tolist() == [1]
        assert len(file["contention/copy"]) > 0


def test_the_report_refuses_a_column_without_a_unit(tmp_path):
    rows = tmp_path / "rows"
    row = {"table": "x", "row": {"weight": 1.0}, "part": "x", "emulated": True}
    rows.write_text(json.dumps(row))
    done = subprocess.run(
        [sys.executable, str(SCRIPT.with_name("report.py")), str(rows), str(tmp_path / "x.h5")],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0 and "column weight has no unit" in done.stderr
    assert not (tmp_path / "x.h5").exists()
