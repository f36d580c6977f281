# SPDX-License-Identifier: Apache-2.0
"""What the field cases share: paths, runs in a folder of their own, the bigram model and its
documents.

Decides where fixtures lie; each test decides its deck and what it expects.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("tools", "tests/support", "tests/tools")]

import fixtures  # noqa: E402
from run_foregather import Foregather, Result  # noqa: E402


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


def mark_tokenizer(path: Path, digest: str) -> Path:
    """Says in a weights or token file which tokenizer it belongs to."""
    with h5py.File(path, "r+") as file:
        file.attrs["tokenizer_sha256"] = digest
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Where the runs that share inputs lie, with those inputs."""
    folder = tmp_path_factory.mktemp("keys")
    fixtures.bigram(folder / "bigram.h5")
    fixtures.uniform(folder / "uniform.h5", vocab=4)
    fixtures.write_tokens(folder / "a.h5", [fixtures.A])
    fixtures.write_tokens(folder / "ab.h5", [fixtures.A, fixtures.B])
    fixtures.write_tokens(folder / "eight.h5", [fixtures.A] * 8)
    mark_tokenizer(fixtures.bigram(folder / "marked.h5"), "a" * 64)
    for name in ("a", "b"):
        tokens = fixtures.write_tokens(folder / f"made-by-{name}.h5", [fixtures.A, fixtures.B])
        mark_tokenizer(tokens, name * 64)
    size = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 2, "head_dim": 64}
    fixtures.random_llama(folder / "slow.h5", vocab_size=512, **size)
    fixtures.random_documents(folder / "long.h5", 512, [3000])
    return folder


@pytest.fixture(scope="session")
def start(folder) -> Foregather:
    """Runs in that folder."""
    return Foregather(folder)


@pytest.fixture(scope="session")
def tiny(start, folder) -> Callable[..., Result]:
    """tiny(changes, ranks): F-BG with documents A and B through mpi; equal calls share one run."""
    known: dict[str, Result] = {}

    def run(
        changes: dict[str, Any], ranks: int = 2, env: dict[str, str] | None = None
    ) -> Result:
        name = json.dumps([changes, ranks, env or {}], sort_keys=True)
        if name not in known:
            deck = {"model.weights": "bigram.h5", "data.tokens": "ab.h5", "comm.transport": "mpi"}
            known[name] = start(deck | changes, ranks, env=env, expect=None)
            known[name].path = folder / known[name].path
        return known[name]

    return run
