#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills or stops a random rank of a running job at a random moment, and looks at what is left.

Decides the jobs, the moments (from a seed; of stops, after all ranks are up) and what a clean end
is; test_kill_campaign.py plays a few, and as a program it plays many and prints a table:
kill_campaign.py 50 [--seed 1] [--stop].
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(ROOT / part) for part in ("tools", "tests/support", "tests/tools")]

import fixtures
import h5py
from run_foregather import LAUNCH, MPIRUN, PROGRAM, deck_text, group_bytes, start
from said import messages
from training import deck, state, step_file

STEPS, EVERY = 12, 2
TIMEOUT_S = 2  # comm.timeout of jobs of which a rank stops.
KILL_LIMIT_S = 15
# A silent rank is given up after 1.25 x comm.timeout + 5 s, and ten more until all have ended.
STOP_LIMIT_S = 1.25 * TIMEOUT_S + 5 + 10


@dataclass
class Hit:
    """One job that was hurt."""

    job: str
    ranks: int
    victim: int
    moment: float = 0.0  # seconds after the start
    phase: str = ""
    laid_out: bool = False  # results.h5.part had all its places at that moment
    seconds: float = 0.0  # from the hit to the end of all processes
    status: int | None = None
    late: bool = False  # stopped when it had left MPI like all others: its launcher alone waits
    kept: str = ""  # what was there to go on from
    newest: str = ""  # checkpoint
    stderr: str = ""
    faults: list[str] = field(default_factory=list)

    def row(self) -> str:
        """A line of the table."""
        end = "; ".join(self.faults) or ("whole, was past MPI's end" if self.late else "clean")
        return (
            f"{self.job:5} {self.ranks} ranks, rank {self.victim} at {self.moment:5.2f} s, "
            f"{self.phase:22} ended after {self.seconds:5.2f} s with {self.status}, "
            f"{self.kept}: {end}"
        )


@dataclass
class Whole:
    """A job that nobody hurt."""

    up: float  # seconds until all ranks were up and watched each other
    seconds: float  # until its end
    result: dict[str, bytes]


class Campaign:
    """campaign = Campaign(folder, seed); campaign.play(signal.SIGKILL) gives a Hit."""

    def __init__(self, folder: Path, seed: int):
        self.folder = folder
        self.random = random.Random(seed)
        self.number = 0
        self.unbroken: dict[tuple[str, int], Whole] = {}
        shape = {"hidden_size": 24, "intermediate_size": 51, "vocab_size": 97, "head_dim": 12}
        fixtures.random_llama(folder / "w.h5", **shape)
        fixtures.random_documents(folder / "t.h5", 97, [40, 7, 33, 2, 64, 16, 55, 21] * 6)

    def deck_of(self, job: str, here: Path, stops: bool) -> dict[str, Any]:
        """Jobs of one to two seconds, that flush and save all the time."""
        common = {
            "output.file": here / "results.h5",
            "output.log": here / "log.jsonl",
            "output.flush_every": 0.001,
            "comm.transport": "mpi",
            "comm.link_rate": "1 MB/s",
            "comm.timeout": f"{TIMEOUT_S if stops else 60} s",
        }
        weights, tokens = self.folder / "w.h5", self.folder / "t.h5"
        if job == "score":
            given = {"model.weights": weights, "data.tokens": tokens, "batch.tokens": 64}
            return given | common | {"output.existing": "resume"}
        changes = {"train.steps": STEPS, "train.batch_documents": 4, "train.shuffle": True}
        saves = {"checkpoint.every": EVERY, "checkpoint.directory": here / "kept"}
        return deck(weights, tokens) | changes | saves | common | {"output.existing": "replace"}

    def begin(self, job: str, ranks: int, here: Path, stops: bool):
        """The launcher; all processes of the job have this folder in their environment."""
        path = here / "job.deck"
        path.write_text(deck_text(self.deck_of(job, here, stops)))
        command = [*MPIRUN, *LAUNCH, str(ranks), str(PROGRAM), str(path)]
        return start(command, here, {"KILL_CAMPAIGN": str(here)})

    def result(self, job: str, here: Path) -> dict[str, bytes]:
        """What a finished job must equal to the bits."""
        if job == "score":
            return group_bytes(here / "results.h5", "/score")
        return state(step_file(here / "kept", STEPS))

    def whole(self, job: str, ranks: int) -> Whole:
        """How long the job takes that nobody hurts, and what it comes to."""
        if (job, ranks) not in self.unbroken:
            here = self.folder / f"whole-{job}-{ranks}"
            here.mkdir()
            begin = time.monotonic()
            process = self.begin(job, ranks, here, stops=False)
            all_up(here, process)
            up = time.monotonic() - begin
            _, stderr = process.communicate(timeout=120)
            assert process.returncode == 0, stderr
            seconds = time.monotonic() - begin
            self.unbroken[job, ranks] = Whole(up, seconds, self.result(job, here))
        return self.unbroken[job, ranks]

    def play(self, blow: signal.Signals, resume: bool = True) -> Hit:
        """One job hit at a random moment while it runs; what is wrong is in `faults`."""
        job, ranks = self.random.choice(["score", "train"]), self.random.choice([2, 3, 4])
        victim, share = self.random.randrange(ranks), self.random.random()
        whole = self.whole(job, ranks)
        early = whole.up if blow == signal.SIGSTOP else 0
        while True:
            self.number += 1
            here = self.folder / f"{self.number}-{job}"
            here.mkdir()
            hit = Hit(job, ranks, victim)
            if self.hurt(hit, here, blow, share * (whole.seconds - early)):
                break
            share *= 0.9  # It had ended, or was not there yet: that moment is none.
        self.look(hit, here)
        if resume and not hit.faults:
            self.go_on(hit, here, whole.result)
        return hit

    def hurt(self, hit: Hit, here: Path, blow: signal.Signals, delay: float) -> bool:
        """Runs the job, hits it so long after its start (a stop: after all ranks are up), and waits
        until all its processes are gone.
        """
        stops = blow == signal.SIGSTOP
        begin = time.monotonic()
        process = self.begin(hit.job, hit.ranks, here, stops)
        if stops:
            all_up(here, process)
        time.sleep(delay)
        while not (found := ranks_of(here, hit.victim)) and process.poll() is None:
            time.sleep(0.001)  # No rank is there yet.
        if not found:
            process.communicate()
            return False
        pid = found[0]
        hit.phase, hit.laid_out = phase(here), laid_out(here)
        hit.moment = time.monotonic() - begin
        os.kill(pid, blow)
        self.ended(hit, here, process, pid if stops else 0)
        return True

    def ended(self, hit: Hit, here: Path, process: subprocess.Popen, stopped: int) -> None:
        """Waits for the end of a job that was hit; `stopped`: the process that was, 0: killed."""
        struck = time.monotonic()
        limit = STOP_LIMIT_S if stopped else KILL_LIMIT_S
        gone(here, limit)
        if hit.phase == "finishing" and ranks_of(here) == [stopped]:
            # The others have left MPI in order, so it was past the last that ranks do together.
            hit.late = True
            os.kill(stopped, signal.SIGCONT)
            gone(here, 5)
        hit.seconds = time.monotonic() - struck
        left = processes(here)
        if left:
            hit.faults.append(f"{len(left)} processes left after {limit} s")
            for one in left:
                os.kill(one, signal.SIGKILL)
        _, hit.stderr = process.communicate(timeout=20)
        hit.status = process.returncode
        if hit.status == 0 and hit.phase != "finishing":
            hit.faults.append("its status is 0")
        told = messages(hit.stderr)
        if stopped and not left and (hit.status, len(told)) != ((0, 0) if hit.late else (1, 1)):
            hit.faults.append(f"status {hit.status} and these lines: {told}")

    def look(self, hit: Hit, here: Path) -> None:
        """Whether what it left is what is promised: what has its final name is whole, and an
        unfinished file opens once it has been laid out.
        """
        whole = [here / "results.h5", *sorted((here / "kept").glob("step-*.h5"))]
        found = [what_is_in(path) for path in whole if path.exists()]
        hit.faults += [one for one in found if not one.startswith("whole ")]
        part = here / "results.h5.part"
        if part.exists():
            found.append(what_is_in(part))
            if hit.laid_out and found[-1].startswith("unreadable"):
                hit.faults.append(f"it was laid out: {found[-1]}")
        hit.newest = whole[-1].stem if len(whole) > 1 else ""
        shown = [one for one in found if "step-" not in one or hit.newest in one]
        hit.kept = " and ".join(shown) or "nothing yet"

    def go_on(self, hit: Hit, here: Path, expected: dict[str, bytes]) -> None:
        """The same deck again must come to what the unbroken job came to, and say once what
        becomes of an unfinished file.
        """
        left = (here / "results.h5.part").exists()
        process = self.begin(hit.job, hit.ranks, here, stops=False)
        stdout, stderr = process.communicate(timeout=120)
        told = re.findall(r"^note: (?:resumed: .* in )?/\S*results\.h5\.part.*", stdout, re.M)
        if process.returncode != 0:
            hit.faults.append(f"it cannot go on: {stderr}")
        elif self.result(hit.job, here) != expected:
            hit.faults.append("gone on with, it comes to other bits")
        elif hit.newest not in stdout:
            hit.faults.append(f"it did not go on from {hit.newest}")
        elif len(told) != int(left and not hit.newest):  # A checkpoint stands in for it.
            hit.faults.append(f"of what it left is told: {told}")


def read_all(item: Any) -> None:
    """Reads a dataset."""
    if isinstance(item, h5py.Dataset):
        item[()]


def what_is_in(path: Path) -> str:
    """"whole", "part of" or "unreadable", and the file's name."""
    try:
        with h5py.File(path) as file:
            file.visititems(lambda _, item: read_all(item))
            return f"{'whole' if file.attrs['complete'] == 1 else 'part of'} {path.name}"
    except (OSError, KeyError, RuntimeError) as error:
        return f"unreadable {path.name} ({error})"


def all_up(here: Path, process: subprocess.Popen) -> None:
    """Waits until the log is there: then all ranks are past MPI's start, where a stopped one would
    be waited for until its limit of minutes, and watch each other.
    """
    while process.poll() is None and not (here / "log.jsonl").exists():
        time.sleep(0.001)


def laid_out(here: Path) -> bool:
    """Whether results.h5.part has its places: rank 0 alone makes them, then all open the file."""
    log = here / "log.jsonl"
    if (here / "results.h5").exists() or (log.exists() and '"event"' in log.read_text()):
        return True
    part = str(here / "results.h5.part")
    others = set(ranks_of(here)) - set(ranks_of(here, 0))
    return any(part in files_of(pid) for pid in others)


def files_of(pid: int) -> list[str]:
    """The files that a process has open."""
    try:
        return [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


def environment_of(pid: str) -> list[bytes]:
    """A process's environment; empty where it is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def processes(here: Path) -> list[int]:
    """All processes of the job in that folder."""
    mark = f"KILL_CAMPAIGN={here}".encode()
    numbers = (path.name for path in Path("/proc").iterdir() if path.name.isdigit())
    return [int(pid) for pid in numbers if mark in environment_of(pid)]


def ranks_of(here: Path, rank: int | str = "") -> list[int]:
    """The processes of all ranks, or of one."""
    mark = f"OMPI_COMM_WORLD_RANK={rank}".encode()
    found = {pid: environment_of(str(pid)) for pid in processes(here)}
    same = bytes.__eq__ if rank != "" else bytes.startswith
    return [pid for pid, words in found.items() if any(same(word, mark) for word in words)]


def gone(here: Path, seconds: float) -> None:
    """Waits until no process of the job is left, so long at most."""
    end = time.monotonic() + seconds
    while processes(here) and time.monotonic() < end:
        time.sleep(0.02)


def phase(here: Path) -> str:
    """What the job was at, by what lies there."""
    log = here / "log.jsonl"
    if (here / "results.h5").exists() or (log.exists() and '"event":"done"' in log.read_text()):
        return "finishing"
    if [path for path in (here / "kept").glob("*.part")]:
        return "in a save"
    if log.exists() and '"event"' in log.read_text():
        return "in a step"
    if (here / "results.h5.part").exists():
        return "loading or in a pass"
    return "in its decisions" if log.exists() else "start-up"


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Kills random ranks at random moments.")
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stop", action="store_true", help="SIGSTOP in place of SIGKILL")
    asked = parser.parse_args()
    blow = signal.SIGSTOP if asked.stop else signal.SIGKILL
    print(f"seed {asked.seed}, {blow.name}")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder), asked.seed)
        hits = []
        for _ in range(asked.count):
            hits.append(campaign.play(blow))
            print(hits[-1].row(), flush=True)
    clean = sum(not hit.faults and not hit.late for hit in hits)
    ends = [hit.seconds for hit in hits if not hit.late]
    phases = sorted({hit.phase for hit in hits})
    told = ", ".join(f"{sum(hit.phase == one for hit in hits)} {one}" for one in phases)
    print(
        f"{clean} of {len(ends)} ended clean; {told}; longest end "
        f"{max(ends, default=0):.2f} s; {len(hits) - len(ends)} more were past MPI's end; "
        f"{time.monotonic() - begin:.0f} s in all"
    )
    return any(hit.faults for hit in hits)


if __name__ == "__main__":
    sys.exit(main())
