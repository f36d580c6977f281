# SPDX-License-Identifier: Apache-2.0
"""What the tests under Slurm share: one cluster for all of them, and that all are skipped where it
cannot be started.

Decides when the cluster lives; cluster.py decides what it is.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / part) for part in ("tools", "tests/support", "tests/golden", "tests/field")
]

from cluster import CannotRun, Cluster, require  # noqa: E402


@pytest.fixture(scope="session")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    """A Slurm of one node."""
    try:
        require()
    except CannotRun as why:
        pytest.skip(str(why))
    with Cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running
    assert running.daemons() == []
