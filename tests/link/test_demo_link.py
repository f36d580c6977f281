# SPDX-License-Identifier: Apache-2.0
"""`make demo-link` shows both depths over a link, and says in one line why a plain user cannot.

Decides what must come out, with a small model in the place of the demonstration's own; what the
link does to the prefetch is in test_two_hosts.py.
"""

import os
import re
import subprocess
import sys

import fixtures
from conftest import ROOT
from test_two_hosts import SHAPE

DEMO = ROOT / "tools" / "demo_link"
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


def test_demo_draws_both_depths_and_leaves_no_link(tmp_path):
    fixtures.random_llama(tmp_path / "smollm2-135m.h5", **SHAPE)
    fixtures.random_documents(tmp_path / "licences.h5", SHAPE["vocab_size"], [256] * 16)
    before = set(os.listdir("/sys/class/net"))
    command = [DEMO, os.environ.get("MPIRUN", "mpirun"), sys.prefix, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(os.listdir("/sys/class/net")) == before
    assert (tmp_path / "link-depths.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "link-depths.png: 2 runs, pass" in done.stdout
    assert done.stdout.count("2 ranks on 2 nodes") == 2 and "EMULATED" not in done.stdout
    (heading,) = re.findall(r"what gathering ahead was worth over a link of (\d+)mbit", done.stdout)
    assert int(heading) >= 200
    lines = done.stdout.split("over a link of")[-1].splitlines()
    assert [line.split()[0] for line in lines if "link-" in line and ".h5" in line] == ["0", "1"]


def test_a_plain_user_is_told_in_one_line_that_root_is_needed_and_why():
    told = subprocess.run(
        [*NOBODY, DEMO, "--probe"], capture_output=True, text=True, check=False, cwd="/"
    )
    assert told.returncode == 2 and told.stdout == "" and len(told.stderr.splitlines()) == 1
    assert "only root may: sudo make demo-link" in told.stderr and "namespaces" in told.stderr


def test_make_knows_the_demo():
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search(r"^  demo-link\s.*root", told.stdout, re.MULTILINE)
