# SPDX-License-Identifier: Apache-2.0
"""However a job on two hosts ends, it ends whole: every rank, launcher and host is gone soon.

Decides who is killed and how; hosts.py is what must leave nothing behind.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import fixtures
import pytest
from faults import alive, until
from run_foregather import PROGRAM, Foregather, deck_text, start, wait


class Watched:
    """A job of four ranks on two hosts that gathers for a minute, and all its processes."""

    def __init__(self, run: Foregather):
        fixtures.random_llama(run.folder / "model.h5", vocab_size=4096, hidden_size=512)
        fixtures.random_documents(run.folder / "tokens.h5", 4096, [64] * 64)
        deck = run.folder / "job.deck"
        keys = {"model.weights": "model.h5", "data.tokens": "tokens.h5", "batch.tokens": 64}
        deck.write_text(deck_text(keys | {"output.file": "results.h5"}))
        self.process = start([*run.launcher(4), str(PROGRAM), str(deck)], run.folder)
        self.folder = run.folder.resolve()
        self.seen: set[int] = set()

    def look(self) -> dict[int, int]:
        """The process of each rank; remembers every process that works in the job's folder."""
        ranks = {}
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or (entry / "cwd").resolve() != self.folder:
                    continue
                self.seen.add(int(entry.name))
                words = (entry / "environ").read_bytes().split(b"\0")
                program = os.readlink(entry / "exe") == str(PROGRAM.resolve())
            except OSError:  # It ended meanwhile.
                continue
            for word in words:
                if program and word.startswith(b"OMPI_COMM_WORLD_RANK="):
                    ranks[int(word.split(b"=")[1])] = int(entry.name)
        return ranks

    def running(self) -> dict[int, int]:
        """Waits until the job scores; the process of each rank."""
        until(lambda: len(self.look()) == 4, 20, "all ranks started")
        until((self.folder / "results.h5.part").exists, 20, "results begun")
        return self.look()

    def gone(self) -> None:
        """Every process that was ever seen has ended."""
        until(lambda: not any(alive(pid) for pid in self.seen), 10, "every process is gone")
        assert not self.look()

    def clear(self) -> None:
        """Ends what a failed test left."""
        self.look()
        for pid in self.seen:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def job(two_hosts):
    """A job over a link on which a pass takes seconds."""
    watched = Watched(two_hosts("10mbit"))
    yield watched
    watched.clear()


def interfaces() -> set[str]:
    """The network interfaces of this host."""
    return set(os.listdir("/sys/class/net"))


def host_of(pid: int) -> int:
    """What tells the host of a process from another."""
    return os.stat(f"/proc/{pid}/ns/net").st_ino


def remote_rank(job: Watched, ranks: dict[int, int]) -> None:
    (launcher,) = [pid for pid in job.seen if comm(pid) == "mpirun"]
    remote = [pid for pid in ranks.values() if host_of(pid) != host_of(launcher)]
    assert len(remote) == 2
    os.kill(remote[-1], signal.SIGKILL)


def comm(pid: int) -> str:
    """The name of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def interrupt(job: Watched, _: dict[int, int]) -> None:
    job.process.send_signal(signal.SIGINT)


def kill_launcher(job: Watched, _: dict[int, int]) -> None:
    job.process.kill()


ENDS: list[Callable] = [remote_rank, interrupt, kill_launcher]


@pytest.mark.parametrize("end", ENDS, ids=[end.__name__ for end in ENDS])
def test_nothing_is_left_after(end, job):
    before = interfaces()
    end(job, job.running())
    wait(job.process, 15)
    assert job.process.returncode != 0
    job.gone()
    assert interfaces() == before


def test_two_runs_at_once_do_not_meet(two_hosts):
    run = two_hosts("100mbit")
    command = [*run.launcher(2), "sh", "-c", "hostname; sleep 1"]
    runs = [start(command, run.folder) for _ in range(2)]
    said = [wait(process, 20)[0].split() for process in runs]
    assert [process.returncode for process in runs] == [0, 0]
    assert len(set(said[0] + said[1])) == 4


def test_a_program_runs_once_on_each_host_as_a_peer_of_torchrun(two_hosts):
    run = two_hosts("100mbit")
    words = "echo $RANK $WORLD_SIZE $MASTER_ADDR $(hostname)"
    launcher = [run.launcher(2)[0], "each", "100mbit", "--"]
    done = subprocess.run(
        [*launcher, "sh", "-c", words], capture_output=True, text=True, check=True
    )
    told = sorted(line.split() for line in done.stdout.splitlines())
    assert [line[:3] for line in told] == [["0", "2", "10.77.0.1"], ["1", "2", "10.77.0.1"]]
    assert told[0][3] != told[1][3]
    failed = subprocess.run([*launcher, "sh", "-c", "exit $RANK"], check=False)
    assert failed.returncode == 1
