# SPDX-License-Identifier: Apache-2.0
"""What the tests of two hosts share: the launcher, and that all are skipped where it cannot work.

Decides how runs are started on the hosts; hosts.py decides what the hosts are, the tests what must
hold.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TWO_HOSTS = ROOT / "tests" / "link" / "two_hosts"
sys.path[:0] = [
    str(ROOT / part) for part in ("tools", "tests/support", "tests/golden", "tests/field")
]

from run_foregather import Foregather  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def hosts_can_be_made() -> None:
    """Skips every test, and says why, where this machine or user cannot make the hosts."""
    probe = subprocess.run([TWO_HOSTS, "--probe"], capture_output=True, text=True, check=False)
    if probe.returncode == 77:
        pytest.skip(probe.stderr.strip())
    assert probe.returncode == 0, probe.stderr


@pytest.fixture(scope="session")
def two_hosts(tmp_path_factory) -> Callable[[str], Foregather]:
    """two_hosts(rate): runs on two hosts joined at this rate, in a folder of their own."""

    def joined(rate: str) -> Foregather:
        folder = tmp_path_factory.mktemp("hosts")
        return Foregather(folder, lambda ranks: [str(TWO_HOSTS), str(ranks), rate, "--"])

    return joined
