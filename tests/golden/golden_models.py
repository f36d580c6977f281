# SPDX-License-Identifier: Apache-2.0
"""Where the golden models lie, and how the project's tools are called as their user calls them.

Decides no expectation: what the folders hold is told by data/, and by make_expected.py.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "data"


def call_tool(name: str, *words) -> str:
    """What one of tools/ printed under this Python; AssertionError if it failed."""
    command = [sys.executable, str(ROOT / "tools" / name), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
