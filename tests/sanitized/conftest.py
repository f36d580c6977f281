# SPDX-License-Identifier: Apache-2.0
"""Where the tests under sanitizers find the helpers of others.

Decides nothing of what is run or expected.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / part) for part in ("tools", "tests/support", "tests/golden", "tests/field")
]
