# SPDX-License-Identifier: Apache-2.0
"""Changed copies of the program's sources, built next to the emulated program and run in its place.

Decides where memory is ordered (a pattern finds the places), how one file is built anew, and what
counts as noticed; the tests decide what is changed and how much must be noticed.
"""

import os
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
from emulated_runs import DELAY, Emulated, OnGpus, program
from run_foregather import ROOT, Foregather, group_bytes

CHECKPOINTS = "checkpoints"  # folder in that of a training run
# A statement that orders: a wait, a record, a wait of the host, a drain. Host backends have none of
# the doubles' streams, and the device's own code makes the words, where others use them.
ORDERS = re.compile(r"^ *(?P<who>\S.*?)(?:\.|->)(?P<verb>wait|record|wait_host|sync)\(.*\);")
BEGINS = re.compile(r"(?:\.|->)(?:wait|record|wait_host|sync)\(")
REPORTED = re.compile(r"^emulation: ([A-Z_]+): ", re.MULTILINE)
ELSEWHERE = ("host", "device")
# The only waits that no run on a GPU reaches: for ranks that share a window of host memory, and
# of copies of trained weights from it, which fsdp.offload is refused with. Those of the latter the
# tests of training in tests/mpi/schedule miss.
NOT_ON_A_GPU = re.compile(r"^board_->|^memory_\.stages\.copy->wait\(began\)|\(\*written\)")
# What orders optimizers, gradients and segments: missed in training, of which runs are tried first.
IN_TRAINING = re.compile(
    r"\bbegan\b|update\.events|e\.updated|\bto\.filled\b|staging_\[turn\]\.filled|"
    r"\bgather_stream_\.sync\b|\be\.(computed|freed|reduce|wait|before)\b|\bw\.(drained|wait)\b"
)
# What orders passes that are measured: half an hour of runs, so it is taken away only where
# MUTATE_MEASURES is set. What orders runs is taken away always.
MEASURING_FILES = re.compile(r"^src/job/(alone|\w*rehearsal)")
MEMBER = re.compile(r"\w.*::(\w+)\(")  # of a class, where its definition begins
TRAINING_FILES = re.compile(r"^src/(job/(train|optimizer|checkpoints)|shard/download)")


@dataclass(frozen=True)
class Change:
    """What is put where in a source: (old, new) texts, each old one exactly once."""

    name: str
    file: str
    texts: tuple[tuple[str, str], ...] = ()
    line: int = 0  # or the line, from 1, whose statement goes
    verb: str = ""
    trains: bool = False  # likelier to be noticed in training
    measures: bool = False  # likelier where passes are measured

    def apply(self, text: str) -> str:
        """The changed source; AssertionError if it does not hold what is to be changed."""
        if self.line:
            lines = text.splitlines(keepends=True)
            at = lines[self.line - 1]
            lines[self.line - 1] = ORDERS.sub(lambda m: m[0][: m.start("who")] + ";", at)
            assert lines[self.line - 1] != at, f"{self.file}:{self.line}"
            return "".join(lines)
        for old, new in self.texts:
            assert text.count(old) == 1, f"{self.file} holds {text.count(old)} times: {old}"
            text = text.replace(old, new)
        return text


def sites() -> list[Change]:
    """One change for each statement that orders: it is taken away."""
    found, seen = [], Counter()
    for path in sorted((ROOT / "src").rglob("*.cpp")):
        file = path.relative_to(ROOT)
        if any(part in ELSEWHERE for part in file.parts):
            continue
        times = False  # a function that measures, in whatever file
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if member := MEMBER.match(line):
                times = member[1].startswith("time_")
            if not BEGINS.search(line.partition("//")[0]):
                continue
            match = ORDERS.match(line)
            assert match, f"{file}:{number}: one statement in one line, or it cannot be taken away"
            if NOT_ON_A_GPU.search(line.strip()):
                continue
            trains = bool(TRAINING_FILES.match(str(file)) or IN_TRAINING.search(line))
            name = f"{file.stem}: {match['who'].lstrip('*')} {match['verb']}"
            seen[name] += 1
            name += f" ({seen[name]})" if seen[name] > 1 else ""
            measures = bool(MEASURING_FILES.match(str(file)))
            if measures and not os.environ.get("MUTATE_MEASURES"):
                continue
            found.append(
                Change(name, str(file), (), number, match["verb"], trains, measures or times)
            )
    return found


def made(*names: str) -> dict[str, list[str]]:
    """Variables of the Makefile, as words."""
    command = ["make", "--no-print-directory", *(f"print-{name}" for name in names)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    told = re.findall(r"^(\w+) = (.*) \([\w ]+\)$", done.stdout, re.MULTILINE)
    return {name: shlex.split(value) for name, value in told}


class Builder:
    """Compiles one changed source as the emulated program's are, and links it in place of the
    object that the program has of it."""

    def __init__(self):
        names = ("MPICXX", "CPPFLAGS", "LDFLAGS", "build", "emu", "emu_flags", "emu_obj", "fibers")
        self.make = made(*names, "archive", "emu_libs")
        assert program() == (ROOT / self.make["emu"][0] / "foregather").absolute(), (
            "make builds another program than the one under test: is MODE told to both?"
        )

    def __call__(self, change: Change, folder: Path) -> Path:
        """The changed program."""
        make, source = self.make, ROOT / change.file
        changed, theirs = folder / f"changed_{source.name}", folder / "changed.o"
        changed.write_text(change.apply(source.read_text()))
        # Not optimized and without debug information, for speed; what was read and written last
        # is no longer used in some: no warnings.
        words = ["-O0", "-g0", "-w", "-iquote", source.parent, "-c", changed, "-o", theirs]
        self.call([*make["MPICXX"], *make["CPPFLAGS"], *make["emu_flags"], *words])
        own = f"{make['emu'][0]}/{change.file.removesuffix('.cpp')}.o"
        objects = [f"{make['build'][0]}/src/main.o", *make["emu_obj"], *make["fibers"]]
        # Of the archive, a member is taken only for what is missing: not the one that was changed.
        linked = [theirs, *(each for each in objects if each != own), *make["archive"]]
        out = folder / "changed"
        words = ["-Wl,--strip-debug", *linked, "-o", out, *make["emu_libs"]]
        self.call([*make["MPICXX"], *make["LDFLAGS"], *words])
        return out

    @staticmethod
    def call(words: list[Any]) -> None:
        """Runs a compiler; AssertionError with what it said."""
        done = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Situation:
    """A run in which a change may be noticed."""

    name: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    ranks: int = 2
    env: Mapping[str, str] = field(default_factory=dict)
    status: int = 0
    cause: str = ""  # what the error names: which call meets a fault first is a matter of time
    trains: bool = False

    @property
    def measures(self) -> bool:
        """Are passes measured, before the run or in place of one?"""
        return self.keys.get("job.name") == "bench" or "auto" in self.keys.values()

    @property
    def has_steps(self) -> bool:
        """Are there steps of training, in a run or a bench?"""
        return self.trains or self.keys.get("bench.job") == "train"


OFFLOAD = {"fsdp.offload": "params"}
BF16 = {"fsdp.param_dtype": "bf16", "fsdp.reduce_dtype": "bf16", "checkpoint.resume": "none"}
AUTO = {"fsdp.forward_prefetch": "auto", "fsdp.backward_prefetch": "auto"}
BENCH = {"job.name": "bench", "bench.depths": "0, 2", "bench.pairs": 2, "bench.steps": 2}
FAIL = "FOREGATHER_EMULATION_FAIL"
SITUATIONS = (
    Situation("2 ranks, offload", OFFLOAD),
    Situation("2 ranks"),
    Situation("1 rank, offload", OFFLOAD, ranks=1),
    # Errors on the way, of one process without a launcher: what is enqueued then must be waited
    # for before its memory goes.
    Situation("a copy of the load fails", {}, 0, {FAIL: "cudaMemcpyAsync:4"}, 1),
    Situation("a copy of the second pass fails", {}, 0, {FAIL: "cudaMemcpyAsync:18"}, 1),
    # Whoever drains is told what a copy has come to: here of the load's last one.
    Situation("the load's last copy faults", {}, 0, {FAIL: "copy_fault:9"}, 1, "stream load"),
    # Gathers that are under way when a rank fails.
    Situation("a rank's first gather fails", {}, 2, {FAIL: "ncclAllGather:1@1"}, 1),
    Situation("a kernel cannot be launched", OFFLOAD, 0, {FAIL: "attention:3"}, 1),
    # Passes that are measured before a run, and the sources and slots that come after them.
    Situation("auto, 2 ranks", AUTO),
    Situation("auto, 2 ranks, offload", AUTO | OFFLOAD),
    Situation("auto, a kernel of the first pass cannot be launched", AUTO | OFFLOAD, 0,
              {FAIL: "attention:2"}, 1),
    Situation("training, 2 ranks", trains=True),
    Situation("auto training, 2 ranks", AUTO, trains=True),
    Situation("auto training, a kernel of backward cannot be launched", AUTO, 2,
              {FAIL: "attention_dq:2@1"}, 1, trains=True),
    Situation("bench, 2 ranks", BENCH),
    Situation("bench of training, 2 ranks", BENCH | {
        "bench.job": "train", "train.accumulate": 3, "bench.depths": 1,
        "bench.pairs": 1, "bench.steps": 1}),
    Situation("training, 1 rank", ranks=1, trains=True),
    Situation("training, 2 x 2, bf16", BF16 | {"mesh.shard": 2}, 4, trains=True),
    Situation("training, a kernel of backward cannot be launched", {}, 0,
              {FAIL: "attention_dq:8"}, 1, trains=True),
    Situation("training, 2 ranks, a kernel of backward cannot be launched", {}, 2,
              {FAIL: "attention_dq:9"}, 1, "attention_dq", True),
    Situation("training, the last copy of a checkpoint faults", {}, 0,
              {FAIL: "copy_fault:23", DELAY: "3000"}, 1, "stream load", True),
    Situation("training, the last rounding of its weights faults", BF16, 0,
              {FAIL: "kernel_fault:10"}, 1, "stream compute", True),
    # One of the last that the run records, behind a copy of what is saved.
    Situation("training, a save fails", {"checkpoint.resume": "none", "train.steps": 1}, 0,
              {FAIL: "cudaEventRecord:480"}, 1, "checkpoint", True),
)  # fmt: skip


def said(found: Emulated) -> str:
    """What the program says it ended for: an error of a rank, or else the first line of its own."""
    others = ("emulation: ", "---", "mpirun", " ", "MPI_ABORT", "with errorcode", "NOTE", "You may")
    lines = found.result.stderr.splitlines()
    own = [each for each in lines if each and not each.startswith(others)]
    errors = [each for each in own if each.startswith("foregather: rank")]
    return (errors or own or ["nothing is said"])[0].removeprefix("foregather: ")[:120]


def results(found: Emulated) -> list[dict[str, bytes]]:
    """The bytes of what a run has computed: scores, or losses and the last checkpoint."""
    checkpoints = sorted((found.result.path.parent / CHECKPOINTS).glob("step-*.h5"))
    if not checkpoints:
        with h5py.File(found.result.path) as file:
            times_alone = "bench" in file
        return [] if times_alone else [found.result.score_bytes()]
    tables = [group_bytes(found.result.path, name) for name in ("/train", "/evaluation")]
    return tables + [group_bytes(checkpoints[-1], name) for name in ("/weights", "/optimizer")]


def noticed(found: Emulated, expected: Emulated, cause: str = "") -> list[str]:
    """What tells this run from the one that nothing was changed for."""
    # From what was said, not from the counters: a process that is aborted leaves none.
    kinds = Counter(REPORTED.findall(found.result.stderr))
    told = [f"{n} {kind}" for kind, n in sorted(kinds.items())]
    if found.result.code != expected.result.code:
        told.append(f"status {found.result.code}: {said(found)}")
    elif found.result.code != 0 and (
        cause not in said(found) if cause else said(found) != said(expected)
    ):
        told.append(f"another error: {said(found)}")
    elif found.result.code == 0 and results(found) != results(expected):
        told.append("other results")
    return told


class Trial:
    """trial(change) builds and runs a change; the programs' runs without it are made once."""

    def __init__(
        self, folder: Path, score: Mapping[str, Any], train: Mapping[str, Any], build: Builder
    ):
        self.folder, self.score, self.train, self.build = folder, score, train, build
        self.expected: dict[str, Emulated] = {}

    def run(self, situation: Situation, folder: Path, executable: Path, delay_us: int) -> Emulated:
        """One run of a program, whatever comes of it."""
        env = {DELAY: str(delay_us), "GCOV_PREFIX": str(self.folder / "counts")}
        on_gpus = OnGpus(Foregather(folder, program=executable))
        keys = {"fsdp.forward_prefetch": 1, "comm.timeout": 20}
        deck = dict(self.score)
        if situation.trains:
            deck = dict(self.train) | {"checkpoint.directory": folder / CHECKPOINTS}
        return on_gpus(deck | keys | dict(situation.keys), situation.ranks,
                       env | dict(situation.env), reports=None, expect=None)  # fmt: skip

    def unchanged(self, situation: Situation) -> Emulated:
        """The run of the program as it is: silent, with the status that is expected."""
        if situation.name not in self.expected:
            folder = self.folder / f"expected{SITUATIONS.index(situation)}"
            folder.mkdir()
            found = self.run(situation, folder, program(), 0)
            assert found.result.code == situation.status, found.result.stderr
            assert situation.cause in said(found), found.result.stderr
            assert not REPORTED.search(found.result.stderr), found.result.stderr
            self.expected[situation.name] = found
        return self.expected[situation.name]

    def __call__(self, change: Change, folder: Path, always: bool = True) -> str:
        """Where and how the change was noticed, "" if it was not: in one situation without delays
        and with some; if not `always`, with long delays alone will do."""
        executable = self.build(change, folder)
        # What is drained is missed where something fails, all else sooner where nothing does.
        by_hope = sorted(SITUATIONS, key=lambda s: (
            s.measures != change.measures, s.has_steps != change.trains,
            (s.status == 0) == (change.verb == "sync"),
        ))  # fmt: skip
        for situation in by_hope:
            for delays in ((0, 200),) if always else ((0, 200), (3000,)):
                told = self.told(situation, executable, folder, delays)
                if all(told):
                    return f"{situation.name}, {told[0]}"
        return ""

    def told(
        self, situation: Situation, executable: Path, folder: Path, delays: tuple[int, ...]
    ) -> list[str]:
        """What was noticed at each delay, up to the first at which nothing was."""
        told: list[str] = []
        expected = self.unchanged(situation)
        for delay in delays:
            where = folder / str(len(list(folder.iterdir())))
            where.mkdir()
            ran = self.run(situation, where, executable, delay)
            found = noticed(ran, expected, situation.cause)
            if not found:
                return [*told, ""]
            told.append(f"delay {delay}: {', '.join(found)}")
        return told
