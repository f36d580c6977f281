# SPDX-License-Identifier: Apache-2.0
"""Runs the program as its user does, deck and mpirun and all, and reads what it leaves behind.

Decides how a run is launched, bounded in time and cleaned up; each test decides the deck and what
it expects.
"""

import itertools
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("FOREGATHER", ROOT / "foregather")).absolute()
MPIRUN = shlex.split(os.environ.get("MPIRUN", "mpirun"))
LAUNCH = ["--oversubscribe", "--bind-to", "none", "-n"]
# Ranks outnumber cores in most tests, and may be root's.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMP_NUM_THREADS": "1",
    "LC_ALL": "C",
}
# What a launcher around the tests would leave in their environment is not the program's launcher.
LAUNCHERS = ("SLURM_", "PMI", "PALS_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "HYDRA_", "MPI_LOCAL")
NOT_COMPARED = ("/provenance", "/timing")  # What may differ from run to run.


@dataclass
class Result:
    """What one run said, how it ended, and the file that it was told to write."""

    stdout: str
    stderr: str
    code: int  # Exit status of the launcher, or of the program where there was none; < 0: a signal.
    path: Path  # The results file: Result does not say that it exists.
    deck: Path
    seconds: float
    command: list[str]

    def read(self, name: str) -> Any:
        """A dataset's values; strings as str."""
        return read(self.path, name)

    def attribute(self, name: str, of: str = "/score") -> Any:
        """An attribute of a group or dataset."""
        with h5py.File(self.path) as file:
            return plain(file[of].attrs[name])

    def table(self, name: str) -> dict[str, np.ndarray]:
        """All columns of a group such as /timing/spans, strings as str."""
        return table(self.path, name)

    def rows(self, name: str, key: str) -> dict[str, dict[str, Any]]:
        """A table by rows, found by their value in the column `key`."""
        columns = self.table(name)
        count = len(columns[key])
        rows = [{c: plain(columns[c][i]) for c in columns} for i in range(count)]
        return {row[key]: row for row in rows}

    def key(self, name: str) -> dict[str, Any]:
        """/provenance/deck of one key: value, default, origin, state, observed, reason."""
        return self.rows("/provenance/deck", "key")[name]

    def score_bytes(self) -> dict[str, bytes]:
        """The raw bytes of every dataset and attribute below /score, by name."""
        return group_bytes(self.path, "/score")

    def part_left(self) -> bool:
        """Whether the unfinished file is still there."""
        return Path(f"{self.path}.part").exists()


def launcher_words(ranks: int) -> list[str]:
    """What starts that many ranks on this host."""
    return [*MPIRUN, *LAUNCH, str(ranks)]


class Foregather:
    """run = Foregather(tmp_path); result = run({"model.weights": path, ...}, ranks=2)."""

    def __init__(
        self,
        folder: Path,
        launcher: Callable[[int], list[str]] = launcher_words,
        program: Path = PROGRAM,
    ):
        self.folder = Path(folder)
        self.launcher = launcher
        self.program = program
        self.numbers = itertools.count()

    def __call__(
        self,
        deck: Mapping[str, Any] | str,
        ranks: int = 1,
        overrides: Iterable[str] = (),
        env: Mapping[str, str | None] | None = None,
        expect: int | tuple[int, ...] | None = 0,
        timeout: float = 120.0,
    ) -> Result:
        """Writes the deck (a mapping from section.key, or its text), runs it, waits.

        A mapping gets job.name = score and an output.file of its own where it has none. ranks = 0
        starts the program without a launcher. `overrides` are words of the command line such as
        "--batch.tokens=64" or "batch.tokens=64". A value of None in `env` takes a variable away.
        expect: the exit status, some of which any will do, or None for whatever comes.
        """
        number = next(self.numbers)
        path, output = self.folder / f"{number}.deck", self.folder / f"{number}.h5"
        words = [word if word.startswith("-") else f"--{word}" for word in overrides]
        text = deck if isinstance(deck, str) else deck_text({"output.file": output} | dict(deck))
        path.write_bytes(text.encode())
        result = self.words([str(path), *words], ranks, env, timeout)
        result.path, result.deck = output_file(text, words, output), path
        if expect is not None:
            check_status(result, expect)
        return result

    def words(
        self,
        words: Iterable[Any],
        ranks: int = 0,
        env: Mapping[str, str | None] | None = None,
        timeout: float = 120.0,
    ) -> Result:
        """Runs the program with these words on its command line; any exit status will do."""
        command = [*(self.launcher(ranks) if ranks else []), str(self.program), *map(str, words)]
        begin = time.monotonic()
        process = start(command, self.folder, env)
        stdout, stderr = wait(process, timeout)
        seconds = time.monotonic() - begin
        return Result(stdout, stderr, process.returncode, Path(), Path(), seconds, command)


def deck_text(deck: Mapping[str, Any]) -> str:
    """A deck's text from section.key: value; booleans become true and false."""
    keys = {"job.name": "score"} | dict(deck)
    lines: dict[str, list[str]] = {}
    for key, value in keys.items():
        section, name = key.split(".", 1)
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        lines.setdefault(section, [f"[{section}]"]).append(f"{name} = {shown}")
    return "\n\n".join("\n".join(part) for part in lines.values()) + "\n"


def output_file(text: str, words: Iterable[str], default: Path) -> Path:
    """The file that a deck's text and the command line name for results, or `default`."""
    found, section = default, ""
    for line in (line.strip() for line in text.splitlines()):
        section = line[1:-1].strip() if line.startswith("[") else section
        key, _, value = line.partition("=")
        if section == "output" and key.strip() == "file" and value.strip():
            found = Path(value.strip())
    for word in words:
        if word.startswith("--output.file="):
            found = Path(word.partition("=")[2])
    return found


def environment(changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """The environment of a run: this one without launchers' variables, plus ours, plus changes."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    merged: dict[str, str | None] = kept | ENVIRONMENT | dict(changes or {})
    return {key: value for key, value in merged.items() if value is not None}


def start(
    command: list[str], folder: Path, env: Mapping[str, str | None] | None = None
) -> subprocess.Popen:
    """Starts a command in a session of its own, its output in pipes."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def wait(process: subprocess.Popen, timeout: float) -> tuple[str, str]:
    """Its stdout and stderr; past `timeout` seconds the job is ended and AssertionError raised."""
    try:
        return process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)  # mpirun ends its ranks on this, not on SIGKILL
    try:
        stdout, stderr = process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
    raise AssertionError(
        f"not done after {timeout} s: {shlex.join(process.args)}\n{stdout}\n{stderr}"
    )


def check_status(result: Result, expect: int | tuple[int, ...]) -> None:
    """AssertionError, with all that was said, unless the run ended with one of these statuses."""
    expected = (expect,) if isinstance(expect, int) else expect
    assert result.code in expected, (
        f"exit status {result.code}, not {expect}: {shlex.join(result.command)}\n"
        f"--- deck\n{result.deck.read_text()[:4000]}\n"
        f"--- stdout\n{result.stdout}\n--- stderr\n{result.stderr}"
    )


def plain(value: Any) -> Any:
    """Bytes as str, numpy's numbers as Python's."""
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if isinstance(value, np.generic) else value


def values(dataset: h5py.Dataset) -> Any:
    """A dataset's values; strings as str, in an array of objects where there are several."""
    read_out = dataset[()]
    if h5py.check_string_dtype(dataset.dtype) is None:
        return plain(read_out)
    if isinstance(read_out, np.ndarray):
        return np.array([plain(text) for text in read_out.tolist()], object)
    return plain(read_out)


def read(path: Path, name: str) -> Any:
    """The values of one dataset of a file.

    Without a lock, which would keep a run from opening the file to go on with it.
    """
    with h5py.File(path, locking=False) as file:
        return values(file[name])


def table(path: Path, name: str) -> dict[str, np.ndarray]:
    """The columns of one group of a file."""
    with h5py.File(path) as file:
        return {column: values(dataset) for column, dataset in file[name].items()}


def dataset_names(path: Path) -> list[str]:
    """The full names of all datasets of a file."""
    names: list[str] = []

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            names.append(f"/{name}")

    with h5py.File(path) as file:
        file.visititems(visit)
    return names


def group_bytes(path: Path, group: str) -> dict[str, bytes]:
    """Raw bytes of a group's datasets and attributes, by name; shapes and types count."""
    found: dict[str, bytes] = {}

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            head = f"{item.shape} {item.dtype.str} ".encode()
            found[name] = head + np.ascontiguousarray(item[()]).tobytes()
        for key, value in item.attrs.items():
            array = np.asarray(value)  # Labels of dimensions are references to text.
            raw = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
            found[f"{name}@{key}"] = raw

    with h5py.File(path) as file:
        add("", file[group])
        file[group].visititems(add)
    return found
