# SPDX-License-Identifier: Apache-2.0
"""What the tests of the emulated program share: paths, imported models, runs on emulated GPUs.

Decides where things lie; each test decides what it runs and expects.
"""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("tools", "tests/support", "tests/golden", "tests/field", "tests/emulated")
sys.path[:0] = [str(ROOT / part) for part in PARTS]

if "FOREGATHER" not in os.environ:
    pytest.exit("FOREGATHER names no program: run `make check-emulated`", returncode=2)

from emulated_runs import OnGpus  # noqa: E402
from golden_models import GOLDEN, call_tool  # noqa: E402
from run_foregather import Foregather  # noqa: E402


@pytest.fixture
def run(tmp_path) -> Foregather:
    """Runs whose decks and results lie in this test's folder."""
    return Foregather(tmp_path)


@pytest.fixture
def on_gpus(run) -> OnGpus:
    """Runs on emulated GPUs."""
    return OnGpus(run)


@pytest.fixture(scope="session")
def golden(tmp_path_factory):
    """golden(name): the deck that scores a golden model."""
    folder = tmp_path_factory.mktemp("golden")

    def deck(name: str) -> dict:
        weights = folder / f"{name}.h5"
        if not weights.exists():
            call_tool("import_model", GOLDEN / name, weights)
        tokens = GOLDEN / name / "tokens.h5"
        return {"model.weights": weights, "data.tokens": tokens, "batch.tokens": 64}

    return deck


def pytest_terminal_summary(terminalreporter):
    """A table of what was noticed of changes to the sources, of tests that passed too."""
    told = [
        value
        for kind in ("passed", "failed")
        for report in terminalreporter.stats.get(kind, [])
        for name, value in report.user_properties
        if name == "noticed"
    ]
    for line in sorted(told):
        terminalreporter.write_line(f"noticed: {line}")
