# SPDX-License-Identifier: Apache-2.0
"""Starts a tool's module under a Python that has the packages of requirements.txt.

Decides which interpreter runs (this one, or that of the project's own .venv); knows nothing of the
tools.
"""

import importlib
import os
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def launch(module: str) -> None:
    """Runs `module`.main(sys.argv[1:]) and ends the process with its exit status.

    If a third-party package is missing here and the project's .venv exists, the process is replaced
    by that interpreter (same arguments); if it is missing there too, the status is 2.
    """
    try:
        main = importlib.import_module(module).main
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("foregather_tools"):
            raise
        python = PROJECT / ".venv" / "bin" / "python"
        if python.exists() and Path(sys.prefix).resolve() != (PROJECT / ".venv").resolve():
            os.execv(python, [str(python), *sys.argv])
        name = os.path.basename(sys.argv[0])
        print(
            f"{name}: the Python package '{missing.name}' is not installed for {sys.executable}; "
            "run `make deps` in the project, or install tools/requirements.txt into the Python "
            "that runs this tool",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(main(sys.argv[1:]))
