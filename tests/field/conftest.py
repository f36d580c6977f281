# SPDX-License-Identifier: Apache-2.0
"""What the field cases share: paths, runs in a folder of their own, the bigram model and its documents.

Decides where fixtures lie; each test decides its deck and what it expects.
"""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("tools", "tests/support", "tests/tools")]

import fixtures  # noqa: E402
from run_foregather import Foregather  # noqa: E402


@pytest.fixture
def run(tmp_path) -> Foregather:
    """Runs whose decks and results lie in this test's folder."""
    return Foregather(tmp_path)


@pytest.fixture(scope="session")
def bigram(tmp_path_factory) -> Path:
    """A folder with F-BG as w.h5 and its documents as a.h5, b.h5, w-document.h5 and ab.h5."""
    folder = tmp_path_factory.mktemp("bigram")
    for name, path in fixtures.bigram_documents(folder).items():
        path.rename(folder / ("w-document.h5" if name == "w" else f"{name}.h5"))
    fixtures.bigram(folder / "w.h5")
    return folder


@pytest.fixture
def ab(bigram) -> dict[str, Path]:
    """The deck that scores documents A and B: 4 targets, loss 1.5 ln 2."""
    return {"model.weights": bigram / "w.h5", "data.tokens": bigram / "ab.h5"}
