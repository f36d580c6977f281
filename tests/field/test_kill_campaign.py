# SPDX-License-Identifier: Apache-2.0
"""Random ranks killed and stopped at random moments: the job ends, what it left opens, and it can
go on to the same bits (T21).

Plays a few of kill_campaign.py; DEATHS in the environment is how many are killed (2), STOPS how
many are stopped (0), DEATHS_SEED which moments.
"""

import os
import signal

import pytest
from kill_campaign import Campaign

SEED = int(os.environ.get("DEATHS_SEED", "1"))


@pytest.fixture(scope="module")
def campaign(tmp_path_factory) -> Campaign:
    """Jobs and moments."""
    return Campaign(tmp_path_factory.mktemp("campaign"), SEED)


@pytest.mark.parametrize(
    "blow",
    [signal.SIGKILL] * int(os.environ.get("DEATHS", "2"))
    + [signal.SIGSTOP] * int(os.environ.get("STOPS", "0")),
)
def test_t21_rank_hurt_at_a_random_moment_ends_the_job_which_can_go_on(blow, campaign):
    hit = campaign.play(blow)
    print(hit.row())
    assert not hit.faults, f"seed {SEED}: {hit.row()}\n{hit.stderr}"
